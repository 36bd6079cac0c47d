package orchestrator_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is an orchestrator on its own database, with a clock that the test moves.
type harness struct {
	*orchestrator.Orchestrator
	db     *storetest.DB
	ledger *usage.Ledger
	raw    *sql.DB
}

// withHarness runs one case on a fresh database of each kind.
func withHarness(t *testing.T, name string, fn func(t *testing.T, h *harness)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, start(t, db, nil)) })
	})
}

// start starts an orchestrator and its jobs.
func start(t *testing.T, db *storetest.DB, opts *orchestrator.Options) *harness {
	t.Helper()
	h, _ := startStoppable(t, db, opts)
	return h
}

// startStoppable is start for an orchestrator that may be stopped before the test ends.
func startStoppable(t *testing.T, db *storetest.DB, opts *orchestrator.Options) (h *harness, stop func()) {
	t.Helper()
	if opts == nil {
		opts = &orchestrator.Options{}
	}
	if opts.Poll == 0 {
		opts.Poll = 2 * time.Millisecond
	}
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	ledger := usage.New(db.Store, nil)
	h = &harness{orchestrator.New(db.Store, ledger, opts), db, ledger, openRaw(t, db)}
	runner := jobs.New(db.Store, &jobs.Options{Poll: 2 * time.Millisecond})
	h.RegisterJobs(runner)
	require.NoError(t, h.Start(t.Context()))
	require.NoError(t, runner.Start(t.Context()))
	stop = func() {
		require.NoError(t, runner.Stop(context.Background()))
		require.NoError(t, h.Stop(context.Background()))
	}
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return h.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	return h, stop
}

// operator is a principal without an agent.
func operator() models.Principal {
	return models.Principal{TokenID: "ops", Name: "ops", Scopes: []models.Scope{models.ScopeAdmin}}
}

// worker registers an agent with the capabilities and joins it.
func (h *harness) worker(t *testing.T, id string, concurrency int, capabilities ...string) {
	t.Helper()
	h.register(t, id, capabilities...)
	_, err := h.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", Concurrency: concurrency})
	require.NoError(t, err)
}

func (h *harness) register(t *testing.T, id string, capabilities ...string) {
	t.Helper()
	now, parent, sphere, budget := h.db.Now(), "orch-my-team", 8, int64(50_000)
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.InsertAgent(models.Agent{
			ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, Capabilities: capabilities, ParentID: &parent, TokenBudget: &budget,
			IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
		})
	}))
	require.NoError(t, h.ReindexAgent(t.Context(), id))
}

// submit submits a task that requires a capability.
func (h *harness) submit(t *testing.T, capability string, change func(*orchestrator.Submission)) models.Task {
	t.Helper()
	sub := orchestrator.Submission{Capabilities: []string{capability}, Priority: models.DefaultPriority}
	if change != nil {
		change(&sub)
	}
	out, err := h.Submit(t.Context(), operator(), sub, nil)
	require.NoError(t, err)
	return out.Task
}

// waitUntil waits until a task satisfies a condition.
func (h *harness) waitUntil(t *testing.T, id string, right func(models.Task) bool) (out models.Task) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = h.Task(context.Background(), id)
		return err == nil && right(out)
	}, time.Minute, time.Millisecond)
	return out
}

func ended(t models.Task) bool { return t.State.Ended() }

// inbox returns the unacknowledged messages of an agent.
func (h *harness) inbox(t *testing.T, agentID string) []models.InboxMessage {
	t.Helper()
	all, err := h.Messages(t.Context(), agentID, 1000)
	require.NoError(t, err)
	return all
}
