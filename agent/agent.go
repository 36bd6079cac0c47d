package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/background"
	"comet/internal/wire/envelope"
)

// Handler does one piece of work. Its context ends with the cause ErrCancelled, ErrMaxDuration or
// ErrStopping; it should return soon after that.
//
// An error that is none of Unsupported, Invalid and ResourceLimit is a failed result with exit
// code 1, unless the Result has another; so is a panic.
type Handler func(ctx context.Context, w *Work) (Result, error)

// customPrefix may precede a capability that is not one of the standard ones.
const customPrefix = "custom:"

// Agent takes work from a server. Register handlers with Handle, then call Run once.
type Agent struct {
	url   string
	token string
	opts  Options
	log   *slog.Logger

	handlers map[string]Handler
	outbox   *outbox
	// acks are the ids to acknowledge. If acknowledgements are lost with a connection, the server
	// redelivers the messages.
	acks *background.Pending[uuid.UUID]
	// seen are the newest message ids, so that a message that is redelivered counts once.
	seen  *lru.Cache[uuid.UUID, struct{}]
	slots chan struct{}

	mu       sync.Mutex
	hello    Hello
	greeted  bool
	draining bool
	jobs     map[Key]*job
	running  int
	// interrupted are requests that an earlier process did not finish. They are reported to the
	// server after the first hello, so that it does not wait for a timeout.
	interrupted     []Key
	presenceChanged background.Signal // the presence may have changed
	resend          background.Signal // the server could not accept a message
	handling        sync.WaitGroup    // running handlers; none is added while draining
	posting         sync.WaitGroup    // errors that wait for space in the outbox
}

// New returns an agent for the server at an address such as http://127.0.0.1:8080. The token must
// be bound to an agent of the registry.
func New(server, token string, opts *Options) (*Agent, error) {
	address, err := parseAddress(server)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fmt.Errorf("agent: the token of an agent is required")
	}
	o := opts.orDefaults()
	remembered, _ := lru.New[uuid.UUID, struct{}](seenMessages) // fails only for a size below 1
	return &Agent{
		url: address, token: token, opts: o, log: o.Logger,
		handlers: map[string]Handler{}, jobs: map[Key]*job{},
		outbox: &outbox{maxMessages: o.MaxPending, maxBytes: o.MaxPendingBytes, space: make(chan struct{}), ready: background.NewSignal()}, acks: background.NewPending[uuid.UUID](), seen: remembered,
		slots: make(chan struct{}, o.Concurrency), presenceChanged: background.NewSignal(), resend: background.NewSignal(),
	}, nil
}

// Handle registers the handler of a work type, which is a capability of the agent in the
// registry. The prefix "custom:" makes no difference. Call it before Run.
func (a *Agent) Handle(workType string, h Handler) { a.handlers[withoutPrefix(workType)] = h }

func withoutPrefix(workType string) string { return strings.TrimPrefix(workType, customPrefix) }

// Run takes work until ctx ends, and then waits up to Options.Drain for running work while it
// rejects new work. It returns nil after that. It returns an error at once if the server rejects
// the first connection; later connections are retried for ever.
func (a *Agent) Run(ctx context.Context) error {
	if len(a.handlers) == 0 {
		return errors.New("agent: no handler is registered")
	}
	if c, ok := a.opts.Cache.(interface{ Interrupted() ([]Key, error) }); ok {
		var err error
		if a.interrupted, err = c.Interrupted(); err != nil {
			return err
		}
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- a.keepConnected(life) }()
	select {
	case err := <-ended:
		a.Interrupt()
		a.handling.Wait()
		end(ErrStopping)
		a.posting.Wait()
		return err
	case <-ctx.Done():
	}
	err := a.drain()
	end(ErrStopping)
	if lost := <-ended; !errors.Is(lost, ErrStopping) {
		err = errors.Join(err, lost)
	}
	a.posting.Wait()
	return err
}

// Interrupt ends the contexts of all running work with ErrStopping, as Run does itself after
// Options.Drain.
func (a *Agent) Interrupt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		j.cancel(ErrStopping)
	}
}

// drain rejects new work and waits for running work.
func (a *Agent) drain() error {
	a.mu.Lock()
	a.draining = true
	greeted := a.greeted
	a.mu.Unlock()
	a.presenceChanged.Set()
	_ = a.awaitHandlers(a.opts.Drain)
	a.Interrupt()
	if a.awaitHandlers(a.opts.Grace) != nil {
		return errors.New("agent: a handler did not return after its context had ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	if greeted && !a.outbox.emptied(ctx) {
		a.log.Warn("the server has not acknowledged every message")
	}
	return nil
}

// awaitHandlers waits for the running handlers. It fails if they do not return in time.
func (a *Agent) awaitHandlers(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return background.WaitFor(ctx, a.handling.Wait)
}

// presence is what heartbeats report about the agent.
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

// Options configures New; nil is the zero value.
type Options struct {
	// Concurrency is how many pieces of work may run at once, default 1. As many more may wait in
	// the agent for a slot.
	Concurrency int
	// Cache remembers the results of requests, so that none runs twice; default NewMemoryCache.
	// OpenCache returns one that survives the process.
	Cache Cache
	// NoRerun fails a request whose work was interrupted by the end of an earlier process. By
	// default it runs again.
	NoRerun bool
	// Drain is how long Run waits for running work after its context has ended, default 30 s; a
	// negative value does not wait. Then the contexts of the work end with ErrStopping.
	Drain time.Duration
	// Grace is how long handlers may take to return after that, default 5 s.
	Grace time.Duration
	// KeepAlive is the interval in which the status of silent work is sent again, so that the
	// server does not take it for hung after 30 s; default 10 s. A negative value leaves that to
	// the handlers.
	KeepAlive time.Duration
	// Flush is how long output is buffered, default 250 ms.
	Flush time.Duration
	// MaxPending and MaxPendingBytes limit the unacknowledged messages; Progress and Write block
	// above them. The defaults are 1,024 messages and 16 MiB.
	MaxPending      int
	MaxPendingBytes int
	// Client makes the connection; the default has no time limit.
	Client *http.Client
	// OnConnect is called with the server's hello of each connection.
	OnConnect func(Hello)
	// Logger logs lost connections and rejected messages; default discards.
	Logger *slog.Logger

	// backoff and maxBackoff are the first and the longest pause between connections.
	backoff, maxBackoff time.Duration
}

// seenMessages is how many message ids an agent remembers.
const seenMessages = 8192

// linger is how long Run waits after the end of all work for the server to acknowledge the last
// messages.
const linger = 5 * time.Second

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
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
	out.Client = cmp.Or(out.Client, newHTTPClient())
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}
