package a2a

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
	"comet/webhooks"
)

// Class is the class of the tasks that are requested over A2A, a key of orchestrator.Options.Classes.
const Class = "a2a"

// Policy returns the time-outs, retries and limits of the class. The time-out of replies is long, because people reply.
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: 24 * time.Hour,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 20,
	}
}

// Dependencies are the parts of the core that the server uses.
type Dependencies struct {
	Store        *store.Store
	Auth         *auth.Auth
	Keys         *auth.ServiceKeys
	Orchestrator *orchestrator.Orchestrator
	Workflows    *workflow.Engine
	Feed         *events.Feed
	// Webhooks deliver push notifications, whose bodies Handler.Render makes.
	Webhooks *webhooks.Webhooks
}

// Options configures New; nil is the zero value.
type Options struct {
	// PublicURL is the address of the server for clients; "" takes it from each request.
	PublicURL string
	// Version is that of the server, which the cards contain.
	Version string
	// MaxBody is the size limit of a request in bytes, default 8 MiB.
	MaxBody int64
	// MaxStreams limits the open streams, a tenth of them for one token, default 1000.
	MaxStreams int
	// Heartbeat is the interval of comments in streams, default 15 s. A stream ends after it if its token was revoked.
	Heartbeat time.Duration
	// WriteTimeout limits how long a client may read nothing of a stream, default 30 s.
	WriteTimeout time.Duration
	// Retention is how long tasks that the core does not have are kept, default 30 days.
	Retention time.Duration
	// Limits are the limits of tokens and addresses that all APIs share, nil for limits of its own.
	Limits *httpkit.Limits
	// OnFailure is called with the reason of each failed request, such as TASK_NOT_FOUND; nil ignores them.
	OnFailure func(reason string)
	Logger    *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Version = cmp.Or(out.Version, "unknown")
	out.MaxBody = cmp.Or(out.MaxBody, 8<<20)
	out.MaxStreams = cmp.Or(out.MaxStreams, 1000)
	out.Heartbeat = cmp.Or(out.Heartbeat, 15*time.Second)
	out.WriteTimeout = cmp.Or(out.WriteTimeout, 30*time.Second)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.Logger = cmp.Or(out.Logger, slog.Default())
	return out
}

// sender is the principal that sends a message, with the trace context of the request.
type sender struct {
	models.Principal
	traceparent string
	// legacy is set for version 0.3.
	legacy bool
}

// service executes the operations of A2A for every binding and version.
type service struct {
	Dependencies
	opts Options
	// streams limits the streams and the requests that wait for workflows.
	streams *httpkit.StreamLimits
}

// Purge deletes tasks that the core has deleted or never had, after Options.Retention.
func (s *service) Purge(ctx context.Context) error {
	before := s.Store.Now().Add(-s.opts.Retention)
	return s.Store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return rows.Purge(tx, before, limit) })
}

// found is a task that its principal may see.
type found struct {
	// row is zero for a task that was requested over another API, and core is nil for one that the core does not have.
	row  rows.Task
	core *models.Task
	// flow is the workflow that the task is, nil for another task.
	flow *workflow.View
	// first is the only message of a task that was requested a moment ago, nil if its messages must be read.
	first *a2a.Message
}

func (f found) id() string {
	if f.core != nil {
		return f.core.ID
	}
	return f.row.ID
}

func (f found) owner() string {
	if f.core != nil {
		return f.core.Owner
	}
	return f.row.Owner
}

// contextID returns the session, or the id of a task without one: A2A has no task without a context.
func (f found) contextID() string {
	if f.core != nil {
		return cmp.Or(f.row.ContextID, f.core.SessionID, f.core.ID)
	}
	return f.row.ContextID
}

func (f found) info() a2a.TaskInfo {
	return a2a.TaskInfo{TaskID: a2a.TaskID(f.id()), ContextID: f.contextID()}
}

// ended reports whether the state of the task is terminal.
func (f found) ended() bool {
	if f.flow != nil {
		return workflowState(f.flow.Status).Terminal()
	}
	return f.core != nil && f.core.State.Ended() || f.core == nil && f.row.State != rows.Asking
}

// load returns a task, or a2a.ErrTaskNotFound if it does not exist or was purged, or is a workflow that by may not see.
func (s *service) load(ctx context.Context, by models.Principal, id string) (out found, err error) {
	missing := fail(a2a.ErrTaskNotFound, "there is no task %q", id)
	out.row, err = rows.Get(s.Store.Reads(ctx), id)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return out, err
	}
	if out.row.ID != "" && strings.HasPrefix(id, workflow.IDPrefix) {
		v, err := s.Workflows.Get(ctx, by, id)
		if out.flow = &v; errs.Is(err, errs.NotFound) {
			err = missing
		}
		return out, err
	}
	t, err := s.Orchestrator.Task(ctx, id)
	switch {
	case err == nil:
		out.core = &t
	case !errs.Is(err, errs.NotFound):
		return out, err
	case out.row.ID == "" || out.row.State == rows.InCore:
		return out, missing
	}
	return out, nil
}

// find returns a task that the principal may see, or a2a.ErrTaskNotFound.
func (s *service) find(ctx context.Context, p models.Principal, id string) (out found, err error) {
	missing := fail(a2a.ErrTaskNotFound, "there is no task %q", id)
	switch {
	case id == "":
		return out, fail(a2a.ErrInvalidParams, "the id of the task is required")
	case !isPrintable(id):
		return out, missing
	}
	if out, err = s.load(ctx, p, id); err != nil || out.flow != nil {
		return out, err
	}
	var agents []string
	if out.core != nil {
		agents = []string{out.core.AgentID, out.core.OwnerAgent}
	}
	visible, err := s.Auth.CanRead(ctx, p, out.owner(), agents...)
	if err == nil && !visible {
		err = missing
	}
	return out, err
}

// findOwn is find for a principal that changes the task: its owner, or an admin.
func (s *service) findOwn(ctx context.Context, p models.Principal, id string) (found, error) {
	f, err := s.find(ctx, p, id)
	if err == nil {
		err = f.requireOwner(p)
	}
	return f, err
}

// requireOwner returns an error unless the principal is the owner of the task, or an admin.
func (f found) requireOwner(p models.Principal) error {
	if f.owner() == p.TokenID {
		return nil
	}
	return auth.Require(p, models.ScopeAdmin)
}

// awaitingReply returns the task that waits for a reply: that of f, or one of its subtasks or of the agents of its workflow.
func (s *service) awaitingReply(ctx context.Context, f found) (asking models.Task, open bool, err error) {
	if f.flow != nil {
		return s.Workflows.TaskAwaitingReply(ctx, f.id())
	}
	return s.Orchestrator.TaskAwaitingReply(ctx, *f.core)
}
