package envelope_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/testkit"
	wire "comet/internal/wire/envelope"
	"comet/models"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is the envelope protocol over an orchestrator with a database of its own.
type fixture struct {
	*envelope.Protocol
	work *testkit.Work
	db   *storetest.DB
}

// runCase runs one case on a new database of each kind.
func runCase(t *testing.T, name string, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, openFixture(t, db)) })
	})
}

func openFixture(t *testing.T, db *storetest.DB) *fixture {
	t.Helper()
	work := testkit.StartWork(t, db, orchestrator.Options{Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy()}})
	return &fixture{envelope.New(work.Orchestrator, nil), work, db}
}

// worker registers an agent and brings it online.
func (f *fixture) worker(t *testing.T, id, kind string, capabilities ...string) {
	t.Helper()
	f.work.AddAgent(t, id, kind, capabilities...)
	_, err := f.work.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: envelope.Name, Transport: "websocket", Concurrency: 4})
	require.NoError(t, err)
}

// client is the principal of a token that is not bound to an agent.
func client(name string) models.Principal {
	return models.Principal{TokenID: name, Name: name, Scopes: []models.Scope{models.ScopeMessagesSend}}
}

func agentPrincipal(agent string, scopes ...models.Scope) models.Principal {
	return models.Principal{TokenID: "token-of-" + agent, Name: agent, Scopes: scopes, AgentID: &agent}
}

// message returns an envelope with new ids; over replaces members.
func message(t *testing.T, from, to string, kind wire.Type, payload map[string]any, over map[string]any) []byte {
	t.Helper()
	all := map[string]any{
		"protocol_version": "1.0", "message_id": uuid.NewString(), "from_agent": from, "to_agent": to, "timestamp": "2026-01-19T04:21:04Z",
		"trace_id": uuid.NewString(), "request_id": uuid.NewString(), "type": kind, "payload": payload,
	}
	maps.Copy(all, over)
	text, err := json.Marshal(all)
	require.NoError(t, err)
	return text
}

// request returns a work_request for a new task, and the id of the task.
func request(t *testing.T, to, work string, hints, over map[string]any) (raw []byte, task string) {
	t.Helper()
	task = uuid.NewString()
	payload := map[string]any{"task_id": task, "work_type": work, "parameters": map[string]any{"n": 1}}
	if hints != nil {
		payload["hints"] = hints
	}
	return message(t, "orchestrator", to, wire.TypeWorkRequest, payload, over), task
}

// receive passes a message to the protocol.
func (f *fixture) receive(t *testing.T, from models.Principal, raw []byte) protocol.Reply {
	t.Helper()
	return f.Receive(t.Context(), protocol.Peer{Principal: from}, raw, 0)
}

// accepted is receive for a message that must be accepted.
func (f *fixture) accepted(t *testing.T, from models.Principal, raw []byte) protocol.Reply {
	t.Helper()
	a := f.receive(t, from, raw)
	require.False(t, a.IsError, "%s", a.Body)
	require.Contains(t, []int{200, 202}, a.Status)
	return a
}

// refused is receive for a message that must be refused; it returns the error.
func (f *fixture) refused(t *testing.T, from models.Principal, raw []byte) (wire.Failure, protocol.Reply) {
	t.Helper()
	a := f.receive(t, from, raw)
	require.True(t, a.IsError, "%d %s", a.Status, a.Body)
	e := read(t, a.Body)
	failure, ok := e.Payload.(wire.Failure)
	require.True(t, ok, "%s", a.Body)
	return failure, a
}

func read(t *testing.T, raw []byte) wire.Envelope {
	t.Helper()
	e, err := wire.Parse(raw)
	require.NoError(t, err, "%s", raw)
	return e
}

// drainInbox returns the messages for an agent and acknowledges them.
func (f *fixture) drainInbox(t *testing.T, id string) (out []wire.Envelope) {
	t.Helper()
	all, err := f.work.Messages(t.Context(), id, 100)
	require.NoError(t, err)
	agent, err := f.db.Agents(t.Context()).Get(id)
	require.NoError(t, err)
	for _, m := range all {
		parts, err := f.Render(t.Context(), protocol.Peer{Agent: agent}, m, 0)
		require.NoError(t, err)
		for _, part := range parts {
			out = append(out, read(t, part))
		}
		_, err = f.work.Acknowledge(t.Context(), id, []string{m.ID})
		require.NoError(t, err)
	}
	return out
}
