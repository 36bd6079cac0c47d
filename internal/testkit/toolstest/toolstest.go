// Package toolstest runs the tools of comet and what they need, without an API and without the
// program: a database, the orchestrator, upstreams, the search index, the sandbox and comet's own
// tools.
package toolstest

import (
	"cmp"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/sandbox"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
	"comet/internal/workflow"
	"comet/models"
	"comet/store/storetest"
)

// poll is the interval of the loops, short because the tests wait for them.
const poll = 2 * time.Millisecond

// Options configures New; nil is the zero value.
type Options struct {
	// Tools configures the tools. The harness sets UpstreamsFile, and Clock where it is nil.
	Tools tools.Options
	// Workflows configures the engine of the workflows.
	Workflows workflow.Options
	// Work configures the orchestrator. The harness sets Feed.
	Work orchestrator.Options
	// Deliveries receives the numbered events, nil for none.
	Deliveries events.Deliveries
	// MaxRuns is the number of concurrent runs of code, default that of the sandbox.
	MaxRuns int
}

// Tools contains a running service of tools and its dependencies. Its clock is that of the database and
// advances by a microsecond with each reading, so that a call has a duration.
type Tools struct {
	*tools.Service
	DB       *storetest.DB
	Work     *testkit.Work
	Registry *registry.Registry
	Tokens   *auth.Auth
	Feed     *events.Feed
	// Workflows is the engine of the workflows.
	Workflows *workflow.Engine
	// File is the path of the mcpServers file.
	File string

	opts     Options
	services background.Group
}

// Start starts tools on a database with the first agents, and waits until the tools of the upstreams
// can be called. They stop with the test, unless Stop was called before.
func Start(t testing.TB, db *storetest.DB, opts *Options, upstreams ...*mcptest.Server) *Tools {
	t.Helper()
	s := New(t, db, opts, upstreams...)
	s.start(t, upstreams...)
	return s
}

// New returns tools that do not run, with upstreams in their file.
func New(t testing.TB, db *storetest.DB, opts *Options, upstreams ...*mcptest.Server) *Tools {
	t.Helper()
	s := &Tools{DB: db, Registry: registry.New(db.Store, nil), Tokens: auth.New(db.Store, nil), File: filepath.Join(db.Options.Dir, "servers.json"), opts: *cmp.Or(opts, &Options{})}
	mcptest.WriteServers(t, s.File, upstreams...)
	s.compose(t)
	return s
}

// compose creates the parts and adds them to the services in the order in which they start.
func (s *Tools) compose(t testing.TB) {
	t.Helper()
	s.Feed = events.NewFeed(s.DB.Store, &events.Options{Poll: poll})
	s.Workflows = workflow.New(workflow.Dependencies{Store: s.DB.Store, Auth: s.Tokens, Feed: s.Feed}, &s.opts.Workflows)
	work := s.opts.Work
	work.Feed, work.Registry = s.Feed, s.Registry
	s.Work = testkit.StartWork(t, s.DB, work, s.Workflows.RegisterJobs)
	manager := upstream.New(&upstream.Options{
		OnChange: func(c upstream.Change) { s.OnUpstreamChange(c) },
		Tokens: func(ctx context.Context, id, address string) (upstream.TokenSource, error) {
			return s.UpstreamTokens(ctx, id, address)
		},
		ChangeDelay: poll, Backoff: time.Hour, MaxBackoff: time.Hour, // one that fails stays failed
	})
	index := toolsearch.New(s.DB.Store, &toolsearch.Options{OnChange: func(c toolsearch.Change) { s.OnGraphChange(c) }})
	box, err := sandbox.New(&sandbox.Options{Warm: -1, MaxRuns: s.opts.MaxRuns})
	require.NoError(t, err)
	opts := s.opts.Tools
	opts.UpstreamsFile = cmp.Or(opts.UpstreamsFile, s.File)
	if opts.Clock == nil {
		opts.Clock = func() time.Time {
			s.DB.Clock.Advance(time.Microsecond)
			return s.DB.Now()
		}
	}
	s.Service = tools.New(tools.Dependencies{
		Store: s.DB.Store, Registry: s.Registry, Usage: s.Work.Ledger, Orchestrator: s.Work.Orchestrator, Feed: s.Feed, Upstreams: manager, Index: index,
	}, &opts)
	s.Workflows.Tools, s.Workflows.Orchestrator, s.Workflows.Ledger, s.Workflows.Index = s.Service, s.Work.Orchestrator, s.Work.Ledger, index
	builtin.Register(builtin.Dependencies{Tools: s.Service, Orchestrator: s.Work.Orchestrator, Auth: s.Tokens, Index: index, Sandbox: box, Workflows: s.Workflows, Clock: opts.Clock})
	s.services.Add("the event relay", events.NewRelay(s.DB.Store, s.Feed, &events.Options{Poll: poll, Deliveries: s.opts.Deliveries}))
	s.services.Add("the index of tools", index)
	s.services.Add("the code sandbox", box)
	s.services.Add("the upstreams", manager)
	s.services.Add("the tools", s.Service)
	s.services.Add("the workflows", s.Workflows)
}

func (s *Tools) start(t testing.TB, upstreams ...*mcptest.Server) {
	t.Helper()
	require.NoError(t, s.StartServices(t))
	for _, u := range upstreams {
		s.WaitForTools(t, u.ID)
		s.WaitForWorker(t, u.ID)
	}
}

// StartServices starts the tools and returns the error of their start.
func (s *Tools) StartServices(t testing.TB) error {
	t.Helper()
	t.Cleanup(func() { s.Stop(t) })
	return s.services.Start(t.Context())
}

// Stop stops the tools and the orchestrator. It may be called again.
func (s *Tools) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, s.services.Stop(context.WithoutCancel(t.Context())))
	s.Work.Stop()
}

// Restart returns new tools on the same database and file, after a Stop.
func (s *Tools) Restart(t testing.TB, upstreams ...*mcptest.Server) *Tools {
	t.Helper()
	s.Stop(t)
	next := &Tools{DB: s.DB, Registry: s.Registry, Tokens: s.Tokens, File: s.File, opts: s.opts}
	next.compose(t)
	next.start(t, upstreams...)
	return next
}

// Eventually waits until a condition is met.
func Eventually(t testing.TB, holds func() bool, what string) {
	t.Helper()
	require.Eventually(t, holds, testkit.Timeout, poll, what)
}

// WaitForTools waits until tools of an upstream can be called.
func (s *Tools) WaitForTools(t testing.TB, upstreamID string) {
	t.Helper()
	Eventually(t, func() bool { return len(s.Admin().Tools(t, upstreamID)) > 0 }, "the tools of "+upstreamID+" come")
}

// WaitForWorker waits until the worker of an upstream is online. A task that is submitted earlier is retried after a delay,
// which never passes while the clock stands still.
func (s *Tools) WaitForWorker(t testing.TB, upstreamID string) {
	t.Helper()
	s.Work.WaitForWorker(t, s.AgentOf(upstreamID), func(w models.Worker) bool { return w.State == models.WorkerOnline })
}

// AddAgent registers an active agent of level 2 with a budget.
func (s *Tools) AddAgent(t testing.TB, id string, budget int64) {
	t.Helper()
	level, sphere, frequency, parent := models.LevelSpecialist, 8, 555, "orch-my-team"
	_, err := s.Registry.Create(t.Context(), models.System(), models.AgentDraft{
		ID: &id, Name: &id, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent, Capabilities: []string{}, TokenBudget: models.Some(budget),
	}, nil)
	require.NoError(t, err)
}
