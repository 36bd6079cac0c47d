package api

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"comet/internal/a2a/remote"
	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/events/live"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/internal/schedule"
	"comet/internal/stats"
	"comet/internal/tools"
	"comet/internal/usage"
	"comet/internal/workflow"
	"comet/models"
	"comet/webhooks"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Logger receives a record of every request, default discards.
	Logger *slog.Logger
	// AccessSample logs every n-th successful request, default 1: all.
	AccessSample int
	// Version and Database describe the server on its start page, default "".
	Version, Database string
	// Checks are the readiness checks of /readyz by name; each returns nil when its part is ready.
	Checks map[string]func(context.Context) error
	// Metrics serves /metrics; nil leaves the route out.
	Metrics http.Handler
	// Measure wraps the chain to count requests; nil leaves it out.
	Measure func(http.Handler) http.Handler
	// OnFailure is called with the code of each error response; nil ignores it.
	OnFailure func(errs.Code)
	// RequestTimeout is the time limit of a request, default 30 s.
	RequestTimeout time.Duration
	// MaxBody is the largest JSON body in bytes, default 1 MiB.
	MaxBody int64
	// MaxRoster is the largest roster document in bytes, default 8 MiB.
	MaxRoster int64
	// Limits are the rate limits that all APIs share; nil creates limits for this API alone.
	Limits *httpkit.Limits
	// MaxStreams is the maximum number of concurrent streams of events and output, default 1,000;
	// one token may have a tenth of them.
	MaxStreams int
	// Heartbeat is the interval of the comments on an idle stream, default 15 s.
	Heartbeat time.Duration
	// StreamWriteTimeout is how long a write to a stream may block before the client is
	// disconnected, default 30 s.
	StreamWriteTimeout time.Duration
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
	// Mount adds routes of other packages behind the middleware chain and the authentication; nil
	// adds none.
	Mount func(chi.Router)
	// MountPublic adds routes of other packages that authenticate their requests themselves; nil
	// adds none.
	MountPublic func(chi.Router)
	// Untimed selects the requests to mounted routes that have time limits of their own; nil
	// selects none.
	Untimed func(*http.Request) bool
}

// Services are the parts of the core that the API calls; all without another statement are required.
type Services struct {
	Registry     *registry.Registry
	Auth         *auth.Auth
	Keys         *auth.Keys
	ServiceKeys  *auth.ServiceKeys
	Usage        *usage.Ledger
	Webhooks     *webhooks.Webhooks
	Orchestrator *orchestrator.Orchestrator
	Feed         *events.Feed
	Messages     MessageProtocol
	Tools        *tools.Service
	Workflows    *workflow.Engine
	PubSub       *pubsub.PubSub
	Schedules    *schedule.Service
	Remotes      *remote.Remotes
	Stats        *stats.Stats
	Live         *live.Events // nil without events that are not stored
}

// Server is the REST API.
type Server struct {
	*responder
	core          Services
	streams       *httpkit.StreamLimits
	encoded       *encodedEvents
	authenticator *httpkit.Authenticator
	opts          Options
	handler       http.Handler
}

// New returns the REST API of the core.
func New(core Services, opts *Options) *Server {
	s := &Server{core: core, opts: *cmp.Or(opts, &Options{}), encoded: &encodedEvents{}}
	o := &s.opts
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.RequestTimeout = cmp.Or(o.RequestTimeout, defaultTimeout)
	o.MaxBody = cmp.Or(o.MaxBody, 1<<20)
	o.MaxRoster = cmp.Or(o.MaxRoster, 8<<20)
	o.MaxStreams = cmp.Or(o.MaxStreams, 1000)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.StreamWriteTimeout = cmp.Or(o.StreamWriteTimeout, 30*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Limits = cmp.Or(o.Limits, httpkit.NewLimits(nil))
	s.streams = httpkit.NewStreamLimits(s.opts.MaxStreams)
	s.authenticator = httpkit.NewAuthenticator(core.Auth, &httpkit.AuthenticatorOptions{Limits: s.opts.Limits, Logins: true})
	s.responder = newResponder(s.opts.Logger)
	s.now = s.opts.Clock
	if s.opts.OnFailure != nil {
		s.onFailure = s.opts.OnFailure
	}
	s.handler = s.router()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Drain ends the streams and makes waiting requests return their current state. It is called when
// the server shuts down, and may be called twice.
func (s *Server) Drain() { s.streams.Drain() }

// caller returns the principal that authenticate put into the context.
func caller(r *http.Request) models.Principal {
	p, _ := auth.From(r.Context())
	return p
}

// handlerFunc is an HTTP handler that returns its error; handle adapts it.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// responder writes all responses of the API: bodies, problem documents and their log records.
// Handlers and middlewares share one.
type responder struct {
	log     *slog.Logger
	buffers *sync.Pool
	json    json.Options
	now     func() time.Time
	// onFailure is called with the code of each error response.
	onFailure func(errs.Code)
}

func newResponder(log *slog.Logger) *responder {
	return &responder{
		log:       log,
		buffers:   &sync.Pool{New: func() any { return new(bytes.Buffer) }},
		now:       time.Now,
		onFailure: func(errs.Code) {},
		// Struct tags have the meaning of encoding/json, and maps are sorted, so that equal
		// responses have equal ETags.
		json: json.JoinOptions(json.Deterministic(true), jsonv1.OmitEmptyWithLegacySemantics(true)),
	}
}

// handle adapts a handlerFunc: it writes the returned error as a problem document.
func (p *responder) handle(h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			p.writeError(w, r, err)
		}
	}
}
