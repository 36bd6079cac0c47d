package intents_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/protocol/genesis"
	"comet/internal/protocol/genesis/intents"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/models"
	"comet/store/storetest"
)

const key, otherKey = "GVsJ0Kdr5b7Q2bzNHoRcV3nq1Y0gq1iWmC7i0mM2u0Q=", "3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8="

// TestRegisterAgentAgain repeats register_agent, and tries invalid ones.
func TestRegisterAgentAgain(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := &intents.Service{Registry: registry.New(db.Store, nil), Keys: auth.NewKeys(db.Store, nil), Events: pubsub.New(db.Store, nil)}
		require.NoError(t, s.Registry.Bootstrap(t.Context()))
		admin := models.Principal{TokenID: "admin", Name: "admin", Scopes: []models.Scope{models.ScopeAdmin}}
		register := func(by models.Principal, id, payload string) (out map[string]any, err error) {
			data, err := s.Answer(t.Context(), by, genesis.Query{ID: id, Intent: "register_agent", Payload: json.RawMessage(payload)})
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(data)
			require.NoError(t, err)
			return out, json.Unmarshal(text, &out)
		}

		first := `{"id":"analyst","publicKey":"` + key + `","subscriptions":["order.*"]}`
		once, err := register(admin, "m1", first)
		require.NoError(t, err)
		require.NotEmpty(t, once["agentId"])
		require.NotEmpty(t, once["keyId"])
		id := once["agentId"].(string)
		require.NoError(t, s.Events.Subscribe(t.Context(), admin, id, []pubsub.Pattern{{Pattern: "*"}}))
		again, err := register(admin, "m1", first)
		require.NoError(t, err)
		require.Equal(t, once, again)
		list, _, err := s.Events.Subscriptions(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []pubsub.Pattern{{Pattern: "*"}}, list, "what the agent has chosen since stays")

		stolen := `{"id":"second","publicKey":"` + key + `","subscriptions":["order.*"]}`
		for range 2 {
			_, err = register(admin, "m2", stolen)
			require.Equal(t, errs.Conflict, errs.CodeOf(err))
			require.ErrorContains(t, err, "another agent has or had this public key")
		}
		_, err = register(admin, "m4", `{"id":"second","subscriptions":["bad..x"]}`)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Equal(t, "/payload/subscriptions/0", errs.From(err).Fields[0].Pointer)
		_, err = s.Registry.Get(t.Context(), "second")
		require.Equal(t, errs.NotFound, errs.CodeOf(err), "nothing is half written")

		bound := models.Principal{TokenID: "t", Name: "t", Scopes: []models.Scope{models.ScopeAgentsWrite}, AgentID: &id}
		_, err = register(bound, "m3", `{"id":"third","publicKey":"`+otherKey+`","signatureOnly":true}`)
		require.Equal(t, errs.MissingScope, errs.CodeOf(err), "the key would outlive the token")
	})
}

// TestInvalidPayloads: an error says what is wrong in the payload, in its own names.
func TestInvalidPayloads(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := &intents.Service{Registry: registry.New(db.Store, nil), Keys: auth.NewKeys(db.Store, nil), Events: pubsub.New(db.Store, nil)}
		require.NoError(t, s.Registry.Bootstrap(t.Context()))
		admin := models.Principal{TokenID: "admin", Name: "admin", Scopes: []models.Scope{models.ScopeAdmin}}
		for _, c := range []struct{ intent, payload, pointer, want string }{
			{"register_agent", `{"id":"a","signatureOnly":true}`, "/payload/publicKey", "payload.publicKey is required with signatureOnly, because signatures replace tokens"},
			{"register_agent", `{"id":"broadcast"}`, "/payload/id", "payload.id must not be broadcast, which addresses all agents"},
			{"register_agent", `{"id":"a","level":1}`, "/payload/level", "payload.level must be 2 or 3; agents of other levels are created over the REST API"},
			{"unregister_agent", `[]`, "/payload", "payload must be an object, not an array"},
			{"unregister_agent", `{"taskId":"t"}`, "/payload/taskId", "payload.taskId is not a known member; known are agentId, agent"},
			{"unregister_agent", `{}`, "/payload/agentId", "payload must have agentId, the id of an agent"},
			{"unregister_agent", `{"agentId":"nova"}`, "/payload/agentId", `"nova" is an L0 agent and cannot be deleted or deactivated`},
			{"health_check", `{"taskId":"t"}`, "/payload/taskId", "payload.taskId is not a known member; known are agentId, agent"},
			{"monitor_status", `{"taskId":"t","agentId":"a"}`, "/payload/taskId", "payload must have one of taskId, requestId, workflowId and agentId"},
		} {
			_, err := s.Answer(t.Context(), admin, genesis.Query{ID: "m", Intent: c.intent, Payload: json.RawMessage(c.payload)})
			require.Error(t, err, c.payload)
			require.Equal(t, c.want, errs.From(err).Detail)
			require.Equal(t, c.pointer, errs.From(err).Fields[0].Pointer)
		}
		self := models.Principal{TokenID: "t", Name: "t", Scopes: []models.Scope{models.ScopeAgentsWrite}, AgentID: new("orch-my-team")}
		_, err := s.Answer(t.Context(), self, genesis.Query{ID: "m", Agent: "orch-my-team", Intent: "unregister_agent", Payload: json.RawMessage("null")})
		require.Equal(t, errs.ForeignAgent, errs.CodeOf(err))
		require.ErrorContains(t, err, "an agent cannot unregister itself")
	})
}
