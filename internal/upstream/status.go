package upstream

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"comet/internal/input"
	"comet/internal/redact"
)

// State is the state of an upstream.
type State string

// The states.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Failed   State = "failed" // a new attempt follows
	Disabled State = "disabled"
	Stopped  State = "stopped"
	// AuthorizationRequired upstreams reject requests without an access token, and comet has none.
	AuthorizationRequired State = "authorization_required"
)

// Status describes an upstream without its secrets.
type Status struct {
	ID        string
	Source    string // the source given to Apply
	Transport Transport
	State     State
	Since     time.Time // of the state
	// Error is why the last start or session failed, one sentence, until the upstream is ready.
	Error       string
	Restarts    int       // starts after the first
	NextAttempt time.Time // of a Failed or AuthorizationRequired upstream

	Command string // the program without its arguments
	URL     string // without its secret parts
	// EnvNames and HeaderNames are the names of the configured variables and headers.
	EnvNames, HeaderNames []string
	Timeout               time.Duration

	// The following fields are set while the upstream is Ready.
	PID                                  int
	Protocol                             string // the negotiated protocol version
	ServerName, ServerVersion            string
	Instructions                         string
	Tools, Resources, Templates, Prompts int
	// Warnings describe mistakes of the upstream and what was left out because of them.
	Warnings []string
	// Stderr has the last lines of its standard error, oldest first, also after a failure.
	Stderr []string
}

const maxInstructions = 16 << 10

func (u *supervisor) status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.server
	out := Status{
		ID: s.ID, Source: u.source, Transport: s.transport(), State: u.state, Since: u.since, Error: u.failure,
		Restarts: max(0, u.starts-1), Command: redact.Text(s.Command), Timeout: s.timeout(),
		EnvNames: slices.Sorted(maps.Keys(s.Env)), HeaderNames: slices.Sorted(maps.Keys(s.Headers)), Stderr: u.stderr.lines(),
	}
	if u.state == Failed || u.state == AuthorizationRequired {
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

// describe adds the fields of a session.
func (s *session) describe(out *Status) {
	hide := s.launch.secrets.mask
	if s.process != nil {
		out.PID = s.process.cmd.Process.Pid
	}
	res := s.client.InitializeResult()
	out.Protocol, out.Instructions = res.ProtocolVersion, hide(input.ClipBytes(res.Instructions, maxInstructions))
	if res.ServerInfo != nil {
		out.ServerName, out.ServerVersion = hide(input.ClipBytes(res.ServerInfo.Name, MaxName)), hide(input.ClipBytes(res.ServerInfo.Version, MaxName))
	}
	c := s.catalogue.Load()
	out.Tools, out.Resources, out.Templates, out.Prompts = len(c.tools.items), len(c.resources.items), len(c.templates.items), len(c.prompts.items)
	out.Warnings = c.warnings()
	if w := s.inbound.invalid.warning(s.launch.secrets); w != "" {
		out.Warnings = append(out.Warnings, w)
	}
	if s.http != nil && s.http.base.lacking.Load() != nil {
		out.Warnings = append(out.Warnings, "calls are refused: "+hide(*s.http.base.lacking.Load()))
	}
}

// displayURL returns an address without its user, query and fragment, which may be secret.
func displayURL(raw string) string {
	if strings.Contains(raw, "${") { // a reference, not a URL
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
