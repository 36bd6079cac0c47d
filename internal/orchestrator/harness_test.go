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

// house is an orchestrator on a database of its own, with a clock that the test moves.
type house struct {
	*orchestrator.Orchestrator
	db     *storetest.DB
	ledger *usage.Ledger
	past   *sql.DB
}

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, h *house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, open(t, db, nil)) })
	})
}

// open starts an orchestrator with its timers.
func open(t *testing.T, db *storetest.DB, opts *orchestrator.Options) *house {
	t.Helper()
	h, _ := boot(t, db, opts)
	return h
}

// boot is open for one that may be stopped before the test ends.
func boot(t *testing.T, db *storetest.DB, opts *orchestrator.Options) (h *house, stop func()) {
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
	h = &house{orchestrator.New(db.Store, ledger, opts), db, ledger, past(t, db)}
	runner := jobs.New(db.Store, &jobs.Options{Poll: 2 * time.Millisecond})
	h.Register(runner)
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

// ops is a principal without an agent.
func ops() models.Principal {
	return models.Principal{TokenID: "ops", Name: "ops", Scopes: []models.Scope{models.ScopeAdmin}}
}

// worker registers an agent that offers the capabilities, and has it join.
func (h *house) worker(t *testing.T, id string, places int, capabilities ...string) {
	t.Helper()
	h.register(t, id, capabilities...)
	_, err := h.Join(t.Context(), id, orchestrator.JoinRequest{Dialect: "plain", Link: "websocket", Places: places})
	require.NoError(t, err)
}

func (h *house) register(t *testing.T, id string, capabilities ...string) {
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

// submit asks for work that needs a capability.
func (h *house) submit(t *testing.T, capability string, change func(*orchestrator.Submission)) models.Task {
	t.Helper()
	sub := orchestrator.Submission{Capabilities: []string{capability}, Priority: models.DefaultPriority}
	if change != nil {
		change(&sub)
	}
	out, err := h.Submit(t.Context(), ops(), sub, nil)
	require.NoError(t, err)
	return out.Task
}

// until waits for a task to be as it should.
func (h *house) until(t *testing.T, id string, right func(models.Task) bool) (out models.Task) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		out, err = h.Task(context.Background(), id)
		return err == nil && right(out)
	}, time.Minute, time.Millisecond)
	return out
}

func ended(t models.Task) bool { return t.State.Ended() }

// inbox returns what an agent is still to be told.
func (h *house) inbox(t *testing.T, agentID string) []models.InboxMessage {
	t.Helper()
	all, err := h.Messages(t.Context(), agentID, 1000)
	require.NoError(t, err)
	return all
}
