package agent

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Concurrency is how many pieces of work may run at once, default 1. As many more
	// may wait here for a place.
	Concurrency int
	// Cache remembers how requests ended, so that none runs twice; default a
	// NewMemoryCache. OpenCache gives one that survives the process.
	Cache Cache
	// NoRerun answers a request whose work was interrupted by the end of an earlier
	// process with a failure. By default it runs again.
	NoRerun bool
	// Drain is how long Run waits for running work once its context has ended, default
	// 30 s; less than 0 does not wait. Then the work's contexts end with ErrStopping.
	Drain time.Duration
	// Grace is how long functions may take to return after that, default 5 s.
	Grace time.Duration
	// KeepAlive is how often the server is told of work that is silent, so that it is not
	// taken for hung after 30 s; default 10 s. Less than 0 leaves that to the functions.
	KeepAlive time.Duration
	// Flush is how long output may wait for more of it, default 250 ms.
	Flush time.Duration
	// MaxPending and MaxPendingBytes are how much may wait for the server's
	// acknowledgement before Progress and Write block, default 1,024 messages and 16 MiB.
	MaxPending      int
	MaxPendingBytes int
	// Client makes the connection, default one of its own without a time limit.
	Client *http.Client
	// OnConnect is called with each hello of the server.
	OnConnect func(Hello)
	// Logger hears of lines that break and messages that are refused; default discards.
	Logger *slog.Logger

	// backoff is the first and the longest pause between two lines.
	backoff, maxBackoff time.Duration
}

// linger is how long Run waits, after the work has ended, for the server to acknowledge
// the last messages.
const linger = 5 * time.Second

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Concurrency = max(out.Concurrency, 1)
	if out.Cache == nil {
		out.Cache = NewMemoryCache(0)
	}
	out.Drain = cmp.Or(out.Drain, 30*time.Second)
	out.Grace = cmp.Or(max(out.Grace, 0), 5*time.Second)
	out.KeepAlive = cmp.Or(out.KeepAlive, 10*time.Second)
	out.Flush = cmp.Or(max(out.Flush, 0), 250*time.Millisecond)
	out.MaxPending = cmp.Or(max(out.MaxPending, 0), 1024)
	out.MaxPendingBytes = cmp.Or(max(out.MaxPendingBytes, 0), 16<<20)
	out.backoff = cmp.Or(out.backoff, 250*time.Millisecond)
	out.maxBackoff = cmp.Or(out.maxBackoff, 15*time.Second)
	if out.Client == nil {
		out.Client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}
