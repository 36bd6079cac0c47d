// Package upstream holds the MCP servers behind the gateway: it starts the ones that
// are programs, connects to the ones that are addresses, keeps one session with each and
// starts it again when it is lost. They are other people's programs, so nothing they do
// may reach further than themselves: what they send is bounded, what they break is
// theirs, and what a person has to know about it stands in their Status.
package upstream

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"
)

// What an upstream may send and hold. More is left out or refused, and said.
const (
	// MaxServers is how many upstreams a manager holds.
	MaxServers = 1000
	// MaxTools is how many tools, resources, templates or prompts of one upstream are kept.
	MaxTools = 10_000
	// MaxPages is how many pages of one list are asked for.
	MaxPages = 100
	// MaxName is the longest name of a tool or a prompt, in bytes.
	MaxName = 128
	// MaxCalls is how many calls run at an upstream at the same time.
	MaxCalls = 1000
	// MaxSubscriptions is how many resources of an upstream are watched.
	MaxSubscriptions = 1000

	maxCatalogue = 64 << 20 // bytes of one list, about
	maxItem      = 1 << 20  // bytes of one tool, about
)

// Options configures New; nil is the zero value.
type Options struct {
	// Logger hears of starts, failures and what upstreams write to their standard
	// error; default discards.
	Logger *slog.Logger
	// OnChange is told what changed, one call at a time, from a goroutine of the
	// manager's; several equal changes may be told as one. Look at the manager for
	// how things are now.
	OnChange func(Change)
	// LookupEnv finds the variables that ${NAME} means, default os.LookupEnv. A program
	// gets those of a minimal environment from it too.
	LookupEnv func(name string) (value string, set bool)
	// IsProtected reports whether ${file:/path} must not open a file; default none is.
	IsProtected func(path string) bool
	// DialContext connects to upstreams that are addresses; a netguard.Guard has one.
	// The default connects anywhere, and through the proxy that the environment names:
	// who writes the file of upstreams could also start a program with it.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Version is comet's, as upstreams are told; default "dev".
	Version string
	// MaxMessage is the longest message taken from or sent to an upstream, in bytes,
	// default 10 MiB.
	MaxMessage int
	// StartTimeout is how long a start may take until the tools are known, default
	// 60 s: programs are often downloaded first.
	StartTimeout time.Duration
	// StopGrace is how long a program has to end by itself after its standard input has
	// been closed, and again after SIGTERM; default 2 s.
	StopGrace time.Duration
	// RelistInterval is how often the lists of an upstream are read that does not tell of
	// changes, default 5 min.
	RelistInterval time.Duration
	// ChangeDelay is how long changes of a list are collected before it is read again,
	// default 200 ms.
	ChangeDelay time.Duration
	// Backoff is the wait before the second start, default 0.5 s. It doubles up to
	// MaxBackoff, default 30 s, varies by half of itself, and begins anew after a
	// minute of health.
	Backoff, MaxBackoff time.Duration
	// FirstStartWait is how long a call waits for an upstream that is being started for the
	// first time, default 2 s.
	FirstStartWait time.Duration
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.OnChange == nil {
		out.OnChange = func(Change) {}
	}
	if out.LookupEnv == nil {
		out.LookupEnv = os.LookupEnv
	}
	if out.IsProtected == nil {
		out.IsProtected = func(string) bool { return false }
	}
	if out.Version == "" {
		out.Version = "dev"
	}
	if out.MaxMessage <= 0 {
		out.MaxMessage = 10 << 20
	}
	out.StartTimeout = defaultDuration(out.StartTimeout, time.Minute)
	out.StopGrace = defaultDuration(out.StopGrace, 2*time.Second)
	out.RelistInterval = defaultDuration(out.RelistInterval, 5*time.Minute)
	out.ChangeDelay = defaultDuration(out.ChangeDelay, 200*time.Millisecond)
	out.Backoff = defaultDuration(out.Backoff, 500*time.Millisecond)
	out.MaxBackoff = defaultDuration(out.MaxBackoff, 30*time.Second)
	out.FirstStartWait = defaultDuration(out.FirstStartWait, 2*time.Second)
	return out
}

func defaultDuration(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
