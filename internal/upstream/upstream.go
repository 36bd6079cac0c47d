// Package upstream manages the MCP servers that comet calls: it starts local programs and connects
// to addresses, keeps one session with each, and restarts lost sessions. Upstreams are not trusted:
// all they send is limited, and a failure affects only its own upstream and is shown in its Status.
package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"time"
)

// Limits of an upstream. What exceeds them is left out or rejected, with a warning.
const (
	// MaxServers limits the upstreams of a manager.
	MaxServers = 1000
	// MaxTools limits the tools, resources, templates and prompts of one upstream, each.
	MaxTools = 10_000
	// MaxPages limits the pages of one list.
	MaxPages = 100
	// MaxName limits the name of a tool or a prompt, in bytes.
	MaxName = 128
	// MaxCalls limits the concurrent calls of one upstream.
	MaxCalls = 1000
	// MaxSubscriptions limits the subscribed resources of one upstream.
	MaxSubscriptions = 1000

	maxCatalogue = 64 << 20 // bytes of one list, about
	maxItem      = 1 << 20  // bytes of one tool, about
)

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of changes.
const (
	Up              ChangeKind = "up"
	Down            ChangeKind = "down"
	Tools           ChangeKind = "tools"
	Resources       ChangeKind = "resources" // or the templates of resources
	Prompts         ChangeKind = "prompts"
	ResourceUpdated ChangeKind = "resource_updated"
)

// Change is a change of an upstream.
type Change struct {
	Server string
	Kind   ChangeKind
	// URI is the resource of ResourceUpdated.
	URI string
}

// TokenSource provides the access tokens of a session with an upstream.
type TokenSource interface {
	// Token returns an access token other than rejected, the one that the upstream has rejected ("" for none).
	// It returns "" if there is none.
	Token(ctx context.Context, rejected string) (string, error)
	// Require records scopes that the upstream requires for a request. It returns those that comet has not requested
	// yet, and all that the next authorization requests.
	Require(ctx context.Context, scopes []string) (missing, all []string, err error)
}

// Options configures New; nil is the zero value.
type Options struct {
	// Logger receives starts, failures and the standard error of upstreams; default discards.
	Logger *slog.Logger
	// OnChange receives changes one at a time, from a goroutine of the manager. Several equal
	// changes may be merged; the manager has the current state.
	OnChange func(Change)
	// LookupEnv returns the variables that ${NAME} refers to and those of the minimal environment
	// of a program, default os.LookupEnv.
	LookupEnv func(name string) (value string, set bool)
	// IsProtected reports whether ${file:/path} must not open a file; by default it may open any.
	IsProtected func(path string) bool
	// Tokens returns the source of the access tokens for an address of an upstream, nil for none.
	Tokens func(ctx context.Context, id, address string) (TokenSource, error)
	// Version is comet's version as sent to upstreams, default "dev".
	Version string
	// MaxMessage limits a message in either direction, in bytes, default 10 MiB.
	MaxMessage int
	// StartTimeout limits a start until the tools are known, default 60 s: programs are often
	// downloaded first.
	StartTimeout time.Duration
	// StopGrace is the time from closing a program's input to SIGTERM, and to SIGKILL, default 2 s.
	StopGrace time.Duration
	// ChangeDelay is the delay between a change of a list and reading it again, default 200 ms.
	ChangeDelay time.Duration
	// Backoff is the delay before the second start, default 0.5 s. It doubles up to MaxBackoff,
	// default 30 s, varies by half of itself, and is reset after a minute of health.
	Backoff, MaxBackoff time.Duration
	// FirstStartWait limits the wait of a call for the first start of an upstream, default 2 s.
	FirstStartWait time.Duration
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.OnChange == nil {
		out.OnChange = func(Change) {}
	}
	if out.LookupEnv == nil {
		out.LookupEnv = os.LookupEnv
	}
	if out.IsProtected == nil {
		out.IsProtected = func(string) bool { return false }
	}
	out.Version = cmp.Or(out.Version, "dev")
	out.MaxMessage = cmp.Or(out.MaxMessage, 10<<20)
	out.StartTimeout = cmp.Or(out.StartTimeout, time.Minute)
	out.StopGrace = cmp.Or(out.StopGrace, 2*time.Second)
	out.ChangeDelay = cmp.Or(out.ChangeDelay, 200*time.Millisecond)
	out.Backoff = cmp.Or(out.Backoff, 500*time.Millisecond)
	out.MaxBackoff = cmp.Or(out.MaxBackoff, 30*time.Second)
	out.FirstStartWait = cmp.Or(out.FirstStartWait, 2*time.Second)
	return out
}
