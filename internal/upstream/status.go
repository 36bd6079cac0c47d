package upstream

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"comet/internal/redact"
)

// State is what an upstream is doing.
type State string

// The states.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Failed   State = "failed" // and tried again
	Disabled State = "disabled"
	Stopped  State = "stopped"
)

// Status is what a person may know of an upstream: everything but secrets.
type Status struct {
	ID        string
	Source    string // as Apply was told
	Transport Transport
	State     State
	Since     time.Time // of the state
	// Error is why the last start or session ended, a sentence; it stays until the
	// upstream is ready again.
	Error       string
	Restarts    int       // sessions and starts after the first
	NextAttempt time.Time // of a Failed upstream

	Command string // the program without its arguments
	URL     string // without what may be secret
	// EnvNames and HeaderNames are the names of what is given to the upstream.
	EnvNames, HeaderNames []string
	Timeout               time.Duration

	// What follows is known of a Ready upstream.
	PID                                  int
	Protocol                             string // the revision that is spoken
	ServerName, ServerVersion            string
	Instructions                         string
	Tools, Resources, Templates, Prompts int
	// Warnings say what the upstream does wrong and what was left out because of it.
	Warnings []string
	// Stderr is what it wrote last to its standard error, oldest first. It is kept
	// when the upstream fails.
	Stderr []string
}

const maxInstructions = 16 << 10

// status describes the upstream.
func (u *upstream) status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.server
	out := Status{
		ID: s.ID, Source: u.source, Transport: s.transport(), State: u.state, Since: u.since, Error: u.failure,
		Restarts: max(0, u.starts-1), Command: redact.Text(s.Command), Timeout: s.timeout(),
		EnvNames: slices.Sorted(maps.Keys(s.Env)), HeaderNames: slices.Sorted(maps.Keys(s.Headers)), Stderr: u.stderr.lines(),
	}
	if u.state == Failed {
		out.NextAttempt = u.nextAttempt
	}
	if s.URL != "" {
		out.URL = displayURL(s.URL)
	}
	if u.current != nil {
		u.current.describe(&out)
	}
	out.Warnings = append(slices.Clone(s.Warnings), out.Warnings...)
	return out
}

// describe adds what is known of a session.
func (r *ready) describe(out *Status) {
	hide := r.launch.secrets.mask
	if r.process != nil {
		out.PID = r.process.cmd.Process.Pid
	}
	if res := r.client.InitializeResult(); res != nil {
		out.Protocol = res.ProtocolVersion
		out.Instructions = hide(clipBytes(res.Instructions, maxInstructions))
		if res.ServerInfo != nil {
			out.ServerName, out.ServerVersion = hide(clipBytes(res.ServerInfo.Name, MaxName)), hide(clipBytes(res.ServerInfo.Version, MaxName))
		}
	}
	c := r.catalogue
	out.Tools, out.Resources, out.Templates, out.Prompts = len(c.tools.items), len(c.resources.items), len(c.templates.items), len(c.prompts.items)
	out.Warnings = c.warnings()
	if w := r.invalid.warning(r.launch.secrets); w != "" {
		out.Warnings = append(out.Warnings, w)
	}
}

// clipBytes returns at most n bytes of s, whole characters of valid text.
func clipBytes(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// displayURL is an address without what may be secret in it: user, query and fragment.
func displayURL(raw string) string {
	if strings.Contains(raw, "${") { // a reference, which is none
		return strings.SplitN(raw, "?", 2)[0]
	}
	u, err := url.Parse(raw)
	if err != nil {
		return redact.Mask
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		shown.RawQuery = redact.Mask
	}
	return shown.String()
}
