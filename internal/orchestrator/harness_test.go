package orchestrator_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/references"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is an orchestrator on its own database, with a clock that the test moves.
type harness struct {
	*testkit.Work
	raw *sql.DB
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
	return &harness{testkit.StartWork(t, db, withResolver(opts)), openRaw(t, db)}
}

// withResolver returns options with the resolver of references, which most tests need.
func withResolver(opts *orchestrator.Options) (out orchestrator.Options) {
	if opts != nil {
		out = *opts
	}
	out.Resolver = references.Resolver{}
	return out
}

// operator is a principal without an agent.
func operator() models.Principal { return testkit.Admin() }

// worker registers an agent with the capabilities and joins it.
func (h *harness) worker(t *testing.T, id string, concurrency int, capabilities ...string) {
	t.Helper()
	h.AddAgent(t, id, "", capabilities...)
	_, err := h.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: "plain", Transport: "websocket", Concurrency: concurrency})
	require.NoError(t, err)
}

// submit submits a task that requires a capability.
func (h *harness) submit(t *testing.T, capability string, change func(*orchestrator.Submission)) models.Task {
	t.Helper()
	sub := orchestrator.Submission{Capabilities: []string{capability}, Priority: orchestrator.DefaultPriority}
	if change != nil {
		change(&sub)
	}
	out, err := h.Submit(t.Context(), operator(), sub, nil)
	require.NoError(t, err)
	return out.Task
}

// inbox returns the unacknowledged messages of an agent.
func (h *harness) inbox(t *testing.T, agentID string) []models.InboxMessage {
	t.Helper()
	all, err := h.Messages(t.Context(), agentID, 1000)
	require.NoError(t, err)
	return all
}

// task returns a task as it is now.
func (h *harness) task(t *testing.T, id string) models.Task {
	t.Helper()
	out, err := h.Task(t.Context(), id)
	require.NoError(t, err)
	return out
}
