package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/registry"
	"comet/internal/tools"
	"comet/internal/usage"
	"comet/models"
	"comet/webhooks"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Logger hears of every request, default discards.
	Logger *slog.Logger
	// AccessSample logs every n-th successful request, default 1: all.
	AccessSample int
	// Checks are what /readyz asks, by name; each returns nil when its part is ready.
	Checks map[string]func(context.Context) error
	// Metrics serves /metrics; nil leaves the route out.
	Metrics http.Handler
	// Measure wraps the whole chain to count requests; nil does not.
	Measure func(http.Handler) http.Handler
	// RequestTimeout ends a request, default 30 s.
	RequestTimeout time.Duration
	// MaxBody is the largest JSON body in bytes, default 1 MiB.
	MaxBody int64
	// MaxRoster is the largest roster document in bytes, default 8 MiB.
	MaxRoster int64
	// RateLimit is how many requests a token may make a RateWindow, default
	// unlimited.
	RateLimit int
	// RateWindow is the window of RateLimit, default one minute.
	RateWindow time.Duration
	// MaxStreams is how many streams there may be at a time, of events and of output,
	// default 1,000; a tenth of them may be one token's.
	MaxStreams int
	// Heartbeat is how often a stream without news shows that it lives, default 15 s.
	Heartbeat time.Duration
	// StreamWriteTimeout is for how long a client may take nothing of a stream before it is
	// dropped, default 30 s.
	StreamWriteTimeout time.Duration
	// FormatV5Event is an event as a line of PROTOCOL_V5's log; nil for a server that speaks it to
	// nobody.
	FormatV5Event func(context.Context, models.Event) (string, error)
	// Clock tells the time, default time.Now.
	Clock func() time.Time
	// Mount adds routes of other rooms behind the chain and the authentication;
	// nil adds none.
	Mount func(chi.Router)
	// MountPublic adds routes of other rooms that authenticate themselves and ask Admit;
	// nil adds none.
	MountPublic func(chi.Router)
	// Untimed selects those of their requests that set their own limits of time; nil
	// selects none.
	Untimed func(*http.Request) bool
}

// Services is what the door opens to; every part is required.
type Services struct {
	Registry     *registry.Registry
	Auth         *auth.Auth
	Keys         *auth.Keys
	Usage        *usage.Ledger
	Webhooks     *webhooks.Webhooks
	Orchestrator *orchestrator.Orchestrator
	Feed         *events.Feed
	MessageLog   *messagelog.Log
	Tools        *tools.Service
}

// Server answers the REST door's requests.
type Server struct {
	*responder
	registry     *registry.Registry
	auth         *auth.Auth
	keys         *auth.Keys
	usage        *usage.Ledger
	webhooks     *webhooks.Webhooks
	orchestrator *orchestrator.Orchestrator
	feed         *events.Feed
	messageLog   *messagelog.Log
	tools        *tools.Service
	streams      *streamLimiter
	eventCache   *eventCache
	rateLimit    *rateLimit
	opts         Options
	handler      http.Handler
}

// New returns the REST door to the core.
func New(core Services, opts *Options) *Server {
	s := &Server{
		registry: core.Registry, auth: core.Auth, keys: core.Keys, usage: core.Usage, webhooks: core.Webhooks, orchestrator: core.Orchestrator, feed: core.Feed,
		messageLog: core.MessageLog, tools: core.Tools,
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if s.opts.RequestTimeout <= 0 {
		s.opts.RequestTimeout = defaultTimeout
	}
	if s.opts.MaxBody <= 0 {
		s.opts.MaxBody = maxBody
	}
	if s.opts.MaxRoster <= 0 {
		s.opts.MaxRoster = 8 << 20
	}
	if s.opts.RateWindow <= 0 {
		s.opts.RateWindow = time.Minute
	}
	if s.opts.MaxStreams <= 0 {
		s.opts.MaxStreams = 1000
	}
	if s.opts.Heartbeat <= 0 {
		s.opts.Heartbeat = 15 * time.Second
	}
	if s.opts.StreamWriteTimeout <= 0 {
		s.opts.StreamWriteTimeout = 30 * time.Second
	}
	if s.opts.Clock == nil {
		s.opts.Clock = time.Now
	}
	s.streams, s.eventCache = newStreamLimiter(s.opts.MaxStreams), &eventCache{feed: core.Feed}
	s.rateLimit = newRateLimit(s.opts.RateLimit, s.opts.RateWindow)
	s.responder = newResponder(s.opts.Logger)
	s.now = s.opts.Clock
	s.handler = s.router()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Drain ends the streams and has the requests that wait for something answer with what
// there is. It is for when the server stops, which waits for them; it may be called
// twice.
func (s *Server) Drain() { s.streams.drain() }

// decode reads a JSON body into v and returns the body as it came. What the
// fields must hold is the core's business.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	accepted := []string{contentTypeJSON}
	if r.Method == http.MethodPatch {
		accepted = append(accepted, contentTypeMergePatch)
	}
	body, _, err := readBody(w, r, s.opts.MaxBody, accepted...)
	if err != nil {
		return nil, err
	}
	return body, input.DecodeJSON(body, v)
}

// caller returns who makes the request; authenticate has put it there.
func caller(r *http.Request) models.Principal {
	p, _ := auth.From(r.Context())
	return p
}

// rejectBody answers a request that must not have one.
func rejectBody(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	return errs.New(errs.InvalidRequest, "this request takes no body")
}

// handlerFunc is an HTTP handler that returns what went wrong instead of writing
// it; handle adapts it.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// responder writes every answer of this door: bodies, problems, the log lines
// that go with them. Handlers and middlewares that answer by themselves share one.
type responder struct {
	log     *slog.Logger
	buffers *sync.Pool
	json    json.Options
	now     func() time.Time
}

func newResponder(log *slog.Logger) *responder {
	return &responder{
		log:     log,
		buffers: newBufferPool(),
		now:     time.Now,
		// Struct tags mean what they mean in the rest of the Go world, and maps
		// come out in one order, so that equal answers have equal ETags.
		json: json.JoinOptions(json.Deterministic(true), jsonv1.OmitEmptyWithLegacySemantics(true)),
	}
}

// handle adapts a handlerFunc: the error it returns becomes the answer.
func (p *responder) handle(h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			p.writeError(w, r, err)
		}
	}
}
