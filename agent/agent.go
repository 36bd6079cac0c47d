package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"comet/internal/wire/envelope"
)

// Handler does one piece of work. Its context ends with ErrCancelled, ErrDuration or
// ErrStopping as its cause; it should return soon then.
//
// An error that is none of Unsupported, Invalid and ResourceLimit is a failed result with
// exit code 1, unless the Result says another; so is a panic.
type Handler func(ctx context.Context, w *Work) (Result, error)

// customPrefix may stand before a capability that is not one of the standard ones.
const customPrefix = "custom:"

// Agent takes work from a server. Register functions with Handle, then call Run, once.
type Agent struct {
	url   string
	token string
	opts  Options
	log   *slog.Logger

	handlers map[string]Handler
	outbox   *outbox
	acks     *acks
	seen     *seen
	slots    chan struct{}

	mu       sync.Mutex
	hello    Hello
	greeted  bool
	draining bool
	jobs     map[Key]*job
	running  int
	// interrupted are requests that an earlier process did not end; the server is told at the
	// first hello, so that it need not find out by their silence.
	interrupted     []Key
	presenceChanged chan struct{}  // one token when the presence may have changed
	resend          chan struct{}  // one token when the server could not take a message
	handling        sync.WaitGroup // functions; nothing is added once draining
	posting         sync.WaitGroup // errors on their way into the outbox
}

// New returns an agent of the server at an address such as http://127.0.0.1:8080. The
// token must be bound to an agent of the registry.
func New(server, token string, opts *Options) (*Agent, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("agent: the server's address must be of the form http://host:port")
	}
	if token == "" {
		return nil, fmt.Errorf("agent: a token is needed, one that is bound to an agent")
	}
	o := opts.orDefaults()
	return &Agent{
		url: strings.TrimSuffix(u.String(), "/"), token: token, opts: o, log: o.Logger,
		handlers: map[string]Handler{}, jobs: map[Key]*job{},
		outbox: newOutbox(o.MaxPending, o.MaxPendingBytes), acks: newAcks(), seen: newSeen(seenMessages),
		slots: make(chan struct{}, o.Concurrency), presenceChanged: make(chan struct{}, 1), resend: make(chan struct{}, 1),
	}, nil
}

// Handle registers the function that does a type of work, a capability of the agent in
// the registry. The name counts with and without "custom:". Call it before Run.
func (a *Agent) Handle(workType string, h Handler) { a.handlers[withoutPrefix(workType)] = h }

func withoutPrefix(workType string) string { return strings.TrimPrefix(workType, customPrefix) }

// workTypes are the types of work that Handle was told, sorted.
func (a *Agent) workTypes() []string {
	var all []string
	for name := range a.handlers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Run works until ctx ends, and then as long as Options.Drain lets running work end: new
// work is refused in the meantime. It returns nil after that, and at once an error where
// the server refuses the agent at its first line; later on it tries again for ever.
func (a *Agent) Run(ctx context.Context) error {
	if len(a.handlers) == 0 {
		return errors.New("agent: nothing is registered with Handle")
	}
	if c, ok := a.opts.Cache.(interface{ Interrupted() ([]Key, error) }); ok {
		var err error
		if a.interrupted, err = c.Interrupted(); err != nil {
			return err
		}
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	lines := make(chan error, 1)
	go func() { lines <- a.keepConnected(life) }()
	select {
	case err := <-lines:
		a.Interrupt()
		a.handling.Wait()
		end(ErrStopping)
		a.posting.Wait()
		return err
	case <-ctx.Done():
	}
	err := a.drain()
	end(ErrStopping)
	err = errors.Join(err, a.connectionError(<-lines))
	a.posting.Wait()
	return err
}

// connectionError is nil for a line that ended because it was to.
func (a *Agent) connectionError(err error) error {
	if errors.Is(err, ErrStopping) {
		return nil
	}
	return err
}

// Interrupt ends the contexts of all running work with ErrStopping, as Run does itself
// when the patience of Options.Drain is over.
func (a *Agent) Interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		j.cancel(ErrStopping)
	}
}

// drain refuses new work and waits for what runs.
func (a *Agent) drain() error {
	a.mu.Lock()
	a.draining = true
	greeted := a.greeted
	a.mu.Unlock()
	a.announcePresence()
	ended := make(chan struct{})
	go func() {
		a.handling.Wait()
		close(ended)
	}()
	if a.opts.Drain > 0 {
		waitAtMost(ended, a.opts.Drain)
	}
	a.Interrupt()
	if !waitAtMost(ended, a.opts.Grace) {
		return errors.New("agent: a function did not return after its context had ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	if greeted && !a.outbox.emptied(ctx) {
		a.log.Warn("the server has not acknowledged everything")
	}
	return nil
}

// waitAtMost waits for a channel to be closed, and reports whether it was in time.
func waitAtMost(done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// presence is what the agent says of itself in heartbeats.
func (a *Agent) presence() envelope.Heartbeat {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := envelope.Heartbeat{AgentID: a.hello.AgentID, Status: envelope.PresenceOnline, Load: new(a.running * 100 / a.opts.Concurrency), Queue: new(max(len(a.jobs)-a.running, 0))}
	switch {
	case a.draining:
		h.Status = envelope.PresenceOffline
	case a.running >= a.opts.Concurrency:
		h.Status = envelope.PresenceBusy
	}
	return h
}

// resendLater has the line send everything once more in a while.
func (a *Agent) resendLater() {
	select {
	case a.resend <- struct{}{}:
	default:
	}
}

// announcePresence has the line send a heartbeat soon.
func (a *Agent) announcePresence() {
	select {
	case a.presenceChanged <- struct{}{}:
	default:
	}
}

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
