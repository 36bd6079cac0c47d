// Package testkit sets up what the tests of several packages need: a running orchestrator, agents
// and an HTTP client. The databases and their clock come from package storetest.
package testkit

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// poll is the interval of the loops, short because the tests wait for them.
const poll = 20 * time.Millisecond

// Work is a running orchestrator on a database with the first agents.
type Work struct {
	*orchestrator.Orchestrator
	DB     *storetest.DB
	Ledger *usage.Ledger

	t    testing.TB
	jobs *jobs.Runner
}

// StartWork starts an orchestrator and its jobs, with the jobs that register adds, and waits until it is ready. They
// stop with the test, unless Stop was called before.
func StartWork(t testing.TB, db *storetest.DB, opts orchestrator.Options, register ...func(*jobs.Runner)) *Work {
	t.Helper()
	w := NewWork(t, db, opts)
	w.jobs = jobs.New(db.Store, &jobs.Options{Poll: poll})
	w.RegisterJobs(w.jobs)
	for _, add := range register {
		add(w.jobs)
	}
	w.Start(t)
	require.NoError(t, w.jobs.Start(t.Context()))
	w.WaitUntilReady(t)
	return w
}

// NewWork returns an orchestrator that does not run; its jobs never do.
func NewWork(t testing.TB, db *storetest.DB, opts orchestrator.Options) *Work {
	t.Helper()
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	opts.Registry, opts.Poll = cmp.Or(opts.Registry, reg), cmp.Or(opts.Poll, poll)
	ledger := usage.New(db.Store, nil)
	return &Work{Orchestrator: orchestrator.New(db.Store, ledger, &opts), DB: db, Ledger: ledger, t: t}
}

// Start starts the orchestrator without its jobs. It stops with the test.
func (w *Work) Start(t testing.TB) {
	t.Helper()
	require.NoError(t, w.Orchestrator.Start(t.Context()))
	t.Cleanup(w.Stop)
}

// WaitUntilReady waits until the orchestrator has read the agents.
func (w *Work) WaitUntilReady(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return w.Check(t.Context()) == nil }, Timeout, 5*time.Millisecond)
}

// Stop stops the jobs and the orchestrator. It may be called again.
func (w *Work) Stop() {
	w.t.Helper()
	if w.jobs != nil {
		require.NoError(w.t, w.jobs.Stop(context.Background()))
	}
	require.NoError(w.t, w.Orchestrator.Stop(context.Background()))
}

// NewAgent returns an active agent of level 2 below orch-my-team that is not stored.
func NewAgent(db *storetest.DB, id string, capabilities ...string) models.Agent {
	now, parent, sphere, budget := db.Now(), "orch-my-team", 8, int64(50_000)
	return models.Agent{
		ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, Capabilities: capabilities, ParentID: &parent, TokenBudget: &budget,
		IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
	}
}

// AddAgent stores an agent of a type, which may be "", with capabilities.
func (w *Work) AddAgent(t testing.TB, id, kind string, capabilities ...string) {
	t.Helper()
	agent := NewAgent(w.DB, id, capabilities...)
	agent.Type = kind
	require.NoError(t, w.DB.Write(t.Context(), func(tx *store.Tx) error { return tx.Agents().Insert(agent) }))
	require.NoError(t, w.ReindexAgent(t.Context(), id))
}

// WaitForTask waits until a task satisfies a condition, and returns it.
func (w *Work) WaitForTask(t testing.TB, id string, is func(models.Task) bool) (out models.Task) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = w.Task(context.Background(), id)
		return err == nil && is(out)
	}, Timeout, 5*time.Millisecond)
	return out
}

// WaitForWorker waits until the cached worker of an agent satisfies a condition, and returns it.
func (w *Work) WaitForWorker(t testing.TB, agentID string, is func(models.Worker) bool) (out models.Worker) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = w.CachedWorker(agentID)
		return is(out)
	}, Timeout, 5*time.Millisecond, "worker %s", agentID)
	return out
}

// Receive returns a value that must arrive.
func Receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Timeout):
		require.Fail(t, "nothing was received")
	}
	return v
}

// Ended reports whether a task has ended.
func Ended(t models.Task) bool { return t.State.Ended() }

// Admin is a principal with the scope admin that is no agent.
func Admin() models.Principal {
	return models.Principal{TokenID: "ops", Name: "ops", Scopes: []models.Scope{models.ScopeAdmin}}
}
