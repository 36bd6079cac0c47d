package genesis_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/genesis"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	wire "comet/internal/wire/genesis"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is the protocol over an orchestrator with a database of its own.
type fixture struct {
	*genesis.Protocol

	work *testkit.Work
	db   *storetest.DB
	keys *auth.Keys
	// service is the key of comet, own those of agents and clients by name.
	service ed25519.PublicKey
	own     map[string]ed25519.PrivateKey
	events  *pubsub.PubSub
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
	f := &fixture{db: db, keys: auth.NewKeys(db.Store, &auth.KeysOptions{Clock: db.Clock.Now}), own: map[string]ed25519.PrivateKey{}}
	f.work = testkit.StartWork(t, db, orchestrator.Options{Classes: map[string]orchestrator.Policy{genesis.Class: genesis.Policy()}})
	serviceKeys := auth.NewServiceKeys(db.Store, nil, &auth.KeysOptions{Clock: db.Clock.Now})
	service, err := serviceKeys.Current(t.Context())
	require.NoError(t, err)
	f.service = service.Public
	f.events = pubsub.New(db.Store, &pubsub.Options{Protocols: []string{genesis.Name}})
	f.Protocol = genesis.New(genesis.Dependencies{
		Work: f.work.Orchestrator, Keys: f.keys, ServiceKeys: serviceKeys, Intents: echo{}, Events: f.events,
	}, &genesis.Options{Clock: db.Clock.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	return f
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return private
}

// echo answers health_check with its payload and refuses unregister_agent.
type echo struct{}

func (echo) Has(intent string) bool { return intent == "health_check" || intent == "unregister_agent" }

func (echo) Answer(_ context.Context, _ models.Principal, q genesis.Query) (any, error) {
	if q.Intent == "health_check" {
		return q.Payload, nil
	}
	return nil, errs.New(errs.ActiveChildren, "the agent has active children")
}

// agent registers an agent with a key and, with capabilities, brings it online.
func (f *fixture) agent(t *testing.T, id string, capabilities ...string) {
	t.Helper()
	f.agentBelow(t, "orch-my-team", id, capabilities...)
}

func (f *fixture) agentBelow(t *testing.T, parent, id string, capabilities ...string) {
	t.Helper()
	agent := testkit.NewAgent(f.db, id, capabilities...)
	agent.ParentID = &parent
	require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error { return tx.Agents().Insert(agent) }))
	require.NoError(t, f.work.ReindexAgent(t.Context(), id))
	f.pin(t, id, false)
	if len(capabilities) > 0 {
		_, err := f.work.Join(t.Context(), id, orchestrator.JoinRequest{Protocol: genesis.Name, Transport: "websocket", Concurrency: 4})
		require.NoError(t, err)
	}
}

// pin registers a new key for an agent.
func (f *fixture) pin(t *testing.T, id string, required bool) {
	t.Helper()
	f.own[id] = newKey(t)
	_, err := f.keys.Pin(t.Context(), models.Principal{Name: "test"}, id, auth.PublicKeyDraft{PublicKey: f.own[id].Public().(ed25519.PublicKey), Required: required}, nil)
	require.NoError(t, err)
}

// client is the principal of a token that is not bound to an agent.
func client(name string) models.Principal {
	return models.Principal{TokenID: name, Name: name, Scopes: []models.Scope{models.ScopeMessagesSend}}
}

func as(agent string, scopes ...models.Scope) models.Principal {
	return models.Principal{TokenID: "token-of-" + agent, Name: agent, Scopes: append(scopes, models.ScopeMessagesSend), AgentID: &agent}
}

// message returns an unsigned message of a type as a map; over replaces members, and removes those that are nil.
func (f *fixture) message(from, kind string, body, over map[string]any) map[string]any {
	all := map[string]any{"id": uuid.NewString(), "type": kind, "version": "1.0", "from": from, "to": "nova", "timestamp": f.db.Now().UnixNano()}
	maps.Copy(all, body)
	maps.Copy(all, over)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

// request returns a REQUEST with a payload.
func (f *fixture) request(from, to, intent string, payload any, over map[string]any) map[string]any {
	return f.message(from, "REQUEST", map[string]any{
		"to": to, "intent": intent, "confidence": 0.9, "entities": []any{}, "payload": payload, "context": map[string]any{}, "priority": "NORMAL", "options": map[string]any{},
	}, over)
}

// answer returns a RESPONSE of a worker to a REQUEST of comet.
func (f *fixture) answer(to wire.Message, status string, data any, over map[string]any) map[string]any {
	return f.message(to.To, "RESPONSE", map[string]any{"correlationId": to.CorrelationID, "requestId": to.ID, "status": status, "data": data}, over)
}

// signed signs a message with the key of its sender and returns it as JSON.
func (f *fixture) signed(t *testing.T, m map[string]any) []byte {
	t.Helper()
	key := f.own[m["from"].(string)]
	if key == nil {
		key = newKey(t)
		f.own[m["from"].(string)] = key
	}
	m["publicKey"] = base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
	parsed, _ := wire.Parse(encode(t, m)) // the signature is missing
	text, err := parsed.Signed(wire.AsSent)
	require.NoError(t, err)
	m["signature"] = base64.StdEncoding.EncodeToString(ed25519.Sign(key, text))
	return encode(t, m)
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// send signs a message and passes it to the protocol.
func (f *fixture) send(t *testing.T, by models.Principal, m map[string]any) protocol.Reply {
	t.Helper()
	return f.Receive(t.Context(), protocol.Peer{Principal: by}, f.signed(t, m), 0)
}

// accepted is send for a message that must be accepted.
func (f *fixture) accepted(t *testing.T, by models.Principal, m map[string]any) (wire.Message, protocol.Reply) {
	t.Helper()
	reply := f.send(t, by, m)
	require.False(t, reply.IsError, "%s", reply.Body)
	require.Contains(t, []int{200, 202}, reply.Status)
	if reply.Body == nil {
		return wire.Message{}, reply
	}
	return f.read(t, reply.Body), reply
}

// refused is send for a message that must be refused. It returns the ERROR.
func (f *fixture) refused(t *testing.T, by models.Principal, m map[string]any) (wire.Failure, protocol.Reply) {
	t.Helper()
	reply := f.send(t, by, m)
	require.True(t, reply.IsError, "%d %s", reply.Status, reply.Body)
	failure, ok := f.read(t, reply.Body).Body.(wire.Failure)
	require.True(t, ok, "%s", reply.Body)
	return failure, reply
}

// read parses a message of comet and verifies both signatures.
func (f *fixture) read(t *testing.T, raw []byte) wire.Message {
	t.Helper()
	m, err := wire.Parse(raw)
	require.NoError(t, err, "%s", raw)
	for _, form := range []wire.Form{wire.AsSent, wire.AsJavaScript, wire.JCS} {
		_, err := m.Verify(f.service, form)
		require.NoError(t, err, "%s", raw)
	}
	require.Equal(t, "nova", m.From)
	return m
}

// inbox returns the messages for an agent and acknowledges them.
func (f *fixture) inbox(t *testing.T, id string) (out []wire.Message) {
	t.Helper()
	all, err := f.work.Messages(t.Context(), id, 100)
	require.NoError(t, err)
	agent, err := f.db.Agents(t.Context()).Get(id)
	require.NoError(t, err)
	for _, m := range all {
		if m.Kind == pubsub.Kind {
			m, _, err = f.events.Open(t.Context(), m)
			require.NoError(t, err)
		}
		parts, err := f.Render(t.Context(), protocol.Peer{Agent: agent}, m, 0)
		require.NoError(t, err)
		for _, part := range parts {
			out = append(out, f.read(t, part))
		}
		_, err = f.work.Acknowledge(t.Context(), id, []string{m.ID})
		require.NoError(t, err)
	}
	return out
}

// one returns the only message for an agent.
func (f *fixture) one(t *testing.T, id string) wire.Message {
	t.Helper()
	all := f.inbox(t, id)
	require.Len(t, all, 1)
	return all[0]
}

func peer(agent string) protocol.Peer { return protocol.Peer{Principal: as(agent)} }
