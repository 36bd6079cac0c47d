package genesis_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/pubsub"
	"comet/internal/testkit"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// TestRequestResponse covers Genesis §Request-Response Pattern.
func TestRequestResponse(t *testing.T) {
	t.Parallel()
	runCase(t, "an agent asks another one", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", map[string]any{"rows": 3}, map[string]any{
			"correlationId": "order-7", "priority": "CRITICAL", "confidence": 0.75, "context": map[string]any{"user": "u1"},
			"entities": []any{map[string]any{"type": "agent_name", "value": "analyst", "confidence": 0.99}},
		})
		ack, reply := f.accepted(t, as("boss"), req)
		require.Equal(t, http.StatusAccepted, reply.Status)
		event := ack.Body.(wire.Event)
		require.Equal(t, "message.ack", event.EventType)
		var accepted struct {
			OriginalMessageID, Stage, TaskID, State string
			Routing                                 struct {
				SelectedAgents, Alternatives []string
				Reason                       string
				Confidence                   float64
			}
		}
		require.NoError(t, json.Unmarshal(event.Payload, &accepted))
		require.Equal(t, []string{req["id"].(string), "accepted", "new"}, []string{accepted.OriginalMessageID, accepted.Stage, accepted.State})
		require.Equal(t, []string{"analyst"}, accepted.Routing.SelectedAgents)
		require.Equal(t, []any{"Best match for intent", 1.0}, []any{accepted.Routing.Reason, accepted.Routing.Confidence})

		m := f.one(t, "analyst")
		got := m.Body.(wire.Request)
		require.Equal(t, []any{"analyst", accepted.TaskID}, []any{m.To, m.CorrelationID})
		require.Equal(t, []any{"analyze_data", 0.75, wire.Critical}, []any{got.Intent, got.Confidence, got.Priority})
		require.JSONEq(t, `{"rows":3}`, string(got.Payload))
		require.Equal(t, "analyst", got.Entities[0].Value)
		var context map[string]any
		require.NoError(t, json.Unmarshal(got.Context, &context))
		require.Equal(t, []any{"u1", "boss", accepted.TaskID, "order-7"}, []any{context["user"], context["originalFrom"], context["taskId"], context["correlationId"]})

		f.db.Clock.Advance(250 * time.Millisecond)
		_, done := f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", map[string]any{"mean": 4.5}, map[string]any{
			"confidence": 0.8, "sources": []string{"table a"}, "usage": map[string]any{"tokens": 12},
		}))
		require.Equal(t, "/api/v1/tasks/"+accepted.TaskID, done.Location)

		m = f.one(t, "boss")
		end := m.Body.(wire.Response)
		require.Equal(t, []any{"boss", "order-7", req["id"]}, []any{m.To, m.CorrelationID, end.RequestID})
		require.Equal(t, []any{wire.Succeeded, 0.8, []string{"table a"}, 250.0, int64(12)}, []any{end.Status, *end.Confidence, end.Sources, *end.ProcessingTimeMS, end.Usage.Tokens})
		require.JSONEq(t, `{"mean":4.5}`, string(end.Data))
	})
	runCase(t, "every kind of payload and data", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "echo")
		for _, payload := range []any{nil, true, 5.25, "text", "5", "", []any{1.0, nil}, map[string]any{"payload": 1.0}, map[string]any{}} {
			req := f.request("boss", "broadcast", "echo", payload, nil)
			if payload == nil {
				req["payload"] = json.RawMessage("null")
			}
			f.accepted(t, as("boss"), req)
			m := f.one(t, "analyst")
			require.JSONEq(t, string(encode(t, payload)), string(m.Body.(wire.Request).Payload))
			f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", req["payload"], nil))
			require.JSONEq(t, string(encode(t, payload)), string(f.one(t, "boss").Body.(wire.Response).Data))
		}
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "echo", 1, nil))
		f.accepted(t, as("analyst"), f.answer(f.one(t, "analyst"), "SUCCESS", nil, nil))
		require.Nil(t, f.one(t, "boss").Body.(wire.Response).Data, "data that is missing stays missing")
	})
	runCase(t, "without a response", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "note")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "note", nil, map[string]any{"payload": json.RawMessage("null"), "options": map[string]any{"requiresResponse": false}}))
		f.accepted(t, as("analyst"), f.answer(f.one(t, "analyst"), "SUCCESS", 1, nil))
		require.Empty(t, f.inbox(t, "boss"))
	})
	runCase(t, "a request that is repeated", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"timeout": 60_000})
		_, first := f.accepted(t, as("boss"), req)
		f.db.Clock.Advance(time.Second)
		_, second := f.accepted(t, as("boss"), req)
		require.Equal(t, first.Location, second.Location)
		m := f.one(t, "analyst")
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", "done", nil))
		end, third := f.accepted(t, as("boss"), req)
		require.Equal(t, []any{http.StatusOK, first.Location}, []any{third.Status, third.Location})
		require.Equal(t, `"done"`, string(end.Body.(wire.Response).Data))

		req["payload"] = 2
		failure, reply := f.refused(t, as("boss"), req)
		require.Equal(t, []any{"MESSAGE_REPLAYED", http.StatusConflict}, []any{failure.ErrorCode, reply.Status})
		require.Equal(t, req["id"], failure.OriginalMessageID)
	})
	runCase(t, "a client without an agent waits", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		req := f.request("dashboard", "broadcast", "analyze_data", 1, nil)
		f.accepted(t, client("c"), req)
		f.accepted(t, as("analyst"), f.answer(f.one(t, "analyst"), "SUCCESS", 2, nil))
		end, _ := f.accepted(t, client("c"), req)
		require.Equal(t, []any{"dashboard", req["id"]}, []any{end.To, end.CorrelationID})
	})
}

// TestPartialResponses covers Genesis §Request-Stream Pattern over a connection.
func TestPartialResponses(t *testing.T) {
	t.Parallel()
	runCase(t, "in order, once, before the end", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"options": map[string]any{"stream": true}})
		f.accepted(t, as("boss"), req)
		m := f.one(t, "analyst")
		require.True(t, m.Body.(wire.Request).Options.Stream)
		for i := range 3 {
			part := f.answer(m, "PARTIAL", map[string]any{"part": i}, nil)
			f.accepted(t, as("analyst"), part)
			f.accepted(t, as("analyst"), part) // repeated
		}
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", "all", nil))
		all := f.inbox(t, "boss")
		require.Len(t, all, 4)
		for i, m := range all[:3] {
			part := m.Body.(wire.Response)
			require.Equal(t, []any{wire.Partial, int64(i + 1), req["id"]}, []any{part.Status, part.Sequence, part.RequestID})
			require.JSONEq(t, string(encode(t, map[string]int{"part": i})), string(part.Data))
		}
		require.Equal(t, wire.Succeeded, all[3].Body.(wire.Response).Status)
	})
	runCase(t, "not without the option", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		f.accepted(t, as("analyst"), f.answer(m, "PARTIAL", 1, nil))
		require.Empty(t, f.inbox(t, "boss"))
		kept, err := f.work.Partials(t.Context(), reply.Location[len("/api/v1/tasks/"):], 0, 10)
		require.NoError(t, err)
		require.Len(t, kept, 1, "it is kept in any case")
	})
}

// TestLimitsOfTime covers timeout, ttl and maxResponseTime.
func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	runCase(t, "the total time counts, not silence", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		for _, over := range []map[string]any{
			{"timeout": 10_000, "ttl": 60_000}, {"ttl": 10_000}, {"timeout": 60_000, "options": map[string]any{"maxResponseTime": 10_000}},
		} {
			_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, over))
			m := f.one(t, "analyst")
			for range 9 {
				f.db.Clock.Advance(time.Second)
				f.accepted(t, as("analyst"), f.answer(m, "PARTIAL", 1, nil))
			}
			f.db.Clock.Advance(1001 * time.Millisecond)
			task := f.work.WaitForTask(t, reply.Location[len("/api/v1/tasks/"):], func(t models.Task) bool { return t.State.Ended() })
			require.Equal(t, models.TaskFailed, task.State)
			failure := f.one(t, "boss").Body.(wire.Failure)
			require.Equal(t, []any{wire.ErrorTimeout, "TIMEOUT"}, []any{failure.ErrorType, failure.ErrorCode})
			f.inbox(t, "analyst")
		}
	})
	runCase(t, "without an agent", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		end := func(over map[string]any, during func()) wire.Failure {
			_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, over))
			id := reply.Location[len("/api/v1/tasks/"):]
			during()
			f.db.Clock.Advance(501 * time.Millisecond)
			f.work.WaitForTask(t, id, func(t models.Task) bool { return t.State.Ended() })
			return f.one(t, "boss").Body.(wire.Failure)
		}
		slow := end(map[string]any{"timeout": 500}, func() { f.one(t, "analyst") })
		require.Equal(t, []any{wire.ErrorTimeout, "TIMEOUT", "the request did not end within its timeout, ttl or maxResponseTime"}, []any{slow.ErrorType, slow.ErrorCode, slow.Message})
		f.inbox(t, "analyst")
		require.NoError(t, f.work.Leave(t.Context(), "analyst", false))
		none := end(map[string]any{"timeout": 500}, func() {})
		require.Equal(t, []any{wire.ErrorRouting, "UNAVAILABLE", int64(1000)}, []any{none.ErrorType, none.ErrorCode, *none.RetryAfterMS})
		require.Contains(t, none.Message, "no agent that offers the intent was available")
	})
	runCase(t, "expired on arrival", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		failure, reply := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, map[string]any{
			"ttl": 1000, "timestamp": f.db.Now().Add(-time.Second).UnixNano(),
		}))
		require.Equal(t, []any{wire.ErrorTimeout, "MESSAGE_EXPIRED", http.StatusGatewayTimeout}, []any{failure.ErrorType, failure.ErrorCode, reply.Status})
		require.Empty(t, f.inbox(t, "analyst"))
	})
}

// TestFailures: ERROR says that no agent has answered, FAILURE that one has.
func TestFailures(t *testing.T) {
	t.Parallel()
	runCase(t, "of the worker", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		f.accepted(t, as("analyst"), f.answer(f.one(t, "analyst"), "FAILURE", nil, map[string]any{
			"error": map[string]any{"code": "NO_ROWS", "message": "the table is empty", "retryable": false, "stack": "at x", "details": map[string]any{"table": "a"}},
		}))
		end := f.one(t, "boss").Body.(wire.Response)
		require.Equal(t, wire.Failed, end.Status)
		require.Equal(t, []any{"NO_ROWS", "the table is empty", false, `{"table":"a"}`}, []any{end.Error.Code, end.Error.Message, end.Error.Retryable, string(end.Error.Details)})
	})
	runCase(t, "that may be retried goes to another worker", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "a1", "analyze_data")
		f.agent(t, "a2", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := append(f.inbox(t, "a1"), f.inbox(t, "a2")...)[0]
		f.accepted(t, as(m.To), f.answer(m, "FAILURE", nil, map[string]any{"error": map[string]any{"code": "BUSY", "message": "later", "retryable": true}}))
		f.db.Clock.Advance(time.Second)
		other := map[string]string{"a1": "a2", "a2": "a1"}[m.To]
		var again wire.Message
		require.Eventually(t, func() bool {
			all := f.inbox(t, other)
			if len(all) == 1 {
				again = all[0]
			}
			return len(all) == 1
		}, testkit.Timeout, 5*time.Millisecond)
		require.NotEqual(t, m.ID, again.ID, "each attempt has its own id")
		f.accepted(t, as(other), f.answer(again, "SUCCESS", "ok", nil))
		require.Equal(t, `"ok"`, string(f.one(t, "boss").Body.(wire.Response).Data))
	})
	for kind, want := range map[string][]any{
		"TIMEOUT": {wire.ErrorTimeout, "TIMEOUT"}, "VALIDATION_ERROR": {wire.ErrorAgent, "INVALID_RESPONSE"}, "ROUTING_ERROR": {wire.ErrorRouting, "UNAVAILABLE"},
	} {
		runCase(t, "ERROR of the worker: "+kind, func(t *testing.T, f *fixture) {
			f.agent(t, "boss")
			f.agent(t, "analyst", "analyze_data")
			_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
			for range 5 {
				var m []wire.Message
				require.Eventually(t, func() bool {
					m = f.inbox(t, "analyst")
					return len(m) > 0
				}, testkit.Timeout, 5*time.Millisecond)
				f.accepted(t, as("analyst"), f.message("analyst", "ERROR", map[string]any{"correlationId": m[0].CorrelationID, "originalMessageId": m[0].ID, "errorType": kind, "errorCode": "X", "message": "no"}, nil))
				f.db.Clock.Advance(4 * time.Second) // the longest wait between attempts; no attempt times out meanwhile
			}
			f.work.WaitForTask(t, reply.Location[len("/api/v1/tasks/"):], func(t models.Task) bool { return t.State.Ended() })
			failure := f.one(t, "boss").Body.(wire.Failure)
			require.Equal(t, want, []any{failure.ErrorType, failure.ErrorCode})
		})
	}
	runCase(t, "ERROR of the worker: AGENT_ERROR", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		f.accepted(t, as("analyst"), f.message("analyst", "ERROR", map[string]any{
			"correlationId": m.CorrelationID, "originalMessageId": m.ID, "errorType": "AGENT_ERROR", "errorCode": "BROKEN", "message": "it broke", "details": map[string]any{"part": 7},
		}, nil))
		end := f.one(t, "boss").Body.(wire.Response)
		require.Equal(t, []any{wire.Failed, "BROKEN", "it broke", `{"part":7}`}, []any{end.Status, end.Error.Code, end.Error.Message, string(end.Error.Details)})
	})
	runCase(t, "a RESPONSE to another REQUEST changes nothing", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		first := f.one(t, "analyst")
		for _, id := range []string{"00000000-0000-4000-8000-000000000000", "00000000-0000-4000-8000-000000000002"} {
			for _, status := range []string{"SUCCESS", "PARTIAL"} {
				_, refused := f.refused(t, as("analyst"), f.answer(first, status, "x", map[string]any{"requestId": id}))
				require.Contains(t, []int{http.StatusNotFound, http.StatusConflict}, refused.Status)
			}
		}
		f.accepted(t, as("analyst"), f.answer(first, "FAILURE", nil, map[string]any{"error": map[string]any{"code": "BUSY", "message": "later", "retryable": true}}))
		f.db.Clock.Advance(4 * time.Second)
		var again wire.Message
		require.Eventually(t, func() bool {
			all := f.inbox(t, "analyst")
			if len(all) == 1 {
				again = all[0]
			}
			return len(all) == 1
		}, testkit.Timeout, 5*time.Millisecond)
		f.accepted(t, as("analyst"), f.answer(first, "SUCCESS", "of the first attempt", nil)) // a repeated result
		_, refused := f.refused(t, as("analyst"), f.answer(first, "PARTIAL", "x", nil))
		require.Equal(t, http.StatusConflict, refused.Status)
		require.Contains(t, string(refused.Body), "only the agent that works on it may send this")
		f.accepted(t, as("analyst"), f.answer(again, "SUCCESS", "of the second attempt", nil))
		require.Equal(t, `"of the second attempt"`, string(f.one(t, "boss").Body.(wire.Response).Data))
	})
	runCase(t, "a type of comet in a publication", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		for _, kind := range []string{"message.ack", "message.other", "task.progress"} {
			failure, refused := f.refused(t, client("c"), f.message("script", "EVENT", map[string]any{
				"to": "broadcast", "eventType": kind, "eventName": "x", "payload": 1, "metadata": map[string]any{"schemaVersion": "1", "contentType": "application/json"}, "deliveryGuarantee": "at-least-once",
			}, nil))
			require.Equal(t, http.StatusBadRequest, refused.Status)
			require.Contains(t, failure.Message, "is reserved for comet")
		}
		require.Empty(t, f.inbox(t, "analyst"))
	})
	runCase(t, "an invalid RESPONSE fails the attempt", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		failure, refused := f.refused(t, as("analyst"), f.answer(m, "FAILURE", nil, nil))
		require.Equal(t, []any{"INVALID_MESSAGE", http.StatusBadRequest}, []any{failure.ErrorCode, refused.Status})
		require.Contains(t, failure.Message, "/error")
		task, err := f.work.Task(t.Context(), reply.Location[len("/api/v1/tasks/"):])
		require.NoError(t, err)
		require.Equal(t, []any{models.TaskNew, models.WaitForRetry}, []any{task.State, task.WaitingFor})
	})
	runCase(t, "an invalid RESPONSE without a token fails the attempt if its signature is valid", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.own["analyst"] = newKey(t)
		_, err := f.keys.Pin(t.Context(), models.Principal{Name: "test"}, "analyst", auth.PublicKeyDraft{PublicKey: f.own["analyst"].Public().(ed25519.PublicKey), SignatureOnly: true, Required: true}, nil)
		require.NoError(t, err)
		_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		waiting := func() models.WaitReason {
			task, err := f.work.Task(t.Context(), reply.Location[len("/api/v1/tasks/"):])
			require.NoError(t, err)
			return task.WaitingFor
		}
		doubly := func(over map[string]any) map[string]any { // signed in both profiles
			out := f.answer(m, "FAILURE", nil, over)
			f.signed(t, out)
			parsed, _ := wire.Parse(encode(t, out))
			text, err := parsed.Signed(wire.JCS)
			require.NoError(t, err)
			out["signatureJcs"] = base64.StdEncoding.EncodeToString(ed25519.Sign(f.own["analyst"], text))
			return out
		}
		for name, value := range map[string]any{"signature": nil, "signatureJcs": "AAAA", "publicKey": nil, "timestamp": f.db.Now().Add(-time.Hour).UnixNano()} {
			changed := doubly(nil)
			if changed[name] = value; value == nil {
				delete(changed, name)
			}
			raw := encode(t, changed)
			_, err := f.Info().Sender(t.Context(), raw)
			require.Error(t, err, "%s: anyone can remove or replace it", name)
			require.True(t, f.Receive(t.Context(), peer("analyst"), raw, 0).IsError)
			require.Equal(t, models.NotWaiting, waiting(), name)
		}
		old := encode(t, doubly(map[string]any{"timestamp": f.db.Now().Add(-time.Hour).UnixNano()}))
		_, err = f.Info().Sender(t.Context(), old)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), "it may be a repetition")
		raw := encode(t, doubly(nil))
		by, err := f.Info().Sender(t.Context(), raw)
		require.NoError(t, err)
		failure := f.read(t, f.Receive(t.Context(), protocol.Peer{Principal: by}, raw, 0).Body).Body.(wire.Failure)
		require.Equal(t, "INVALID_MESSAGE", failure.ErrorCode)
		require.Equal(t, models.WaitForRetry, waiting())
		f.db.Clock.Advance(4 * time.Second)
		var again []wire.Message
		require.Eventually(t, func() bool {
			again = f.inbox(t, "analyst")
			return len(again) == 1
		}, testkit.Timeout, 5*time.Millisecond)
		require.True(t, f.Receive(t.Context(), protocol.Peer{Principal: by}, raw, 0).IsError)
		require.Equal(t, models.NotWaiting, waiting(), "a repeated one does not fail the next attempt")
	})
	runCase(t, "an agent that does not exist", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		failure, reply := f.refused(t, client("c"), f.request("script", "analist", "analyze_data", 1, nil))
		require.Equal(t, []any{wire.ErrorValidation, "NOT_FOUND", http.StatusNotFound}, []any{failure.ErrorType, failure.ErrorCode, reply.Status})
		require.Contains(t, string(failure.Details), `"/to"`)
		for _, to := range []string{"boss", "nova", "broadcast"} {
			failure, _ = f.refused(t, client("c"), f.request("script", to, "dig", 1, nil))
			require.Equal(t, "UNSUPPORTED_INTENT", failure.ErrorCode, to)
		}
		_, reply = f.accepted(t, client("c"), f.request("script", "nova", "analyze_data", 1, nil))
		require.Equal(t, http.StatusAccepted, reply.Status)
		f.one(t, "analyst") // nova routes a request as broadcast does
	})
	runCase(t, "no agent offers the intent", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		failure, reply := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyse_data", 1, nil))
		require.Equal(t, []any{wire.ErrorRouting, "UNSUPPORTED_INTENT", http.StatusUnprocessableEntity}, []any{failure.ErrorType, failure.ErrorCode, reply.Status})
		require.JSONEq(t, `{"supported":["analyze_data"]}`, string(failure.Details))
		require.Contains(t, failure.Message, "analyze_data", "it suggests the nearest one")
	})
	runCase(t, "the agent has left", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agentBelow(t, "boss", "a1", "analyze_data")
		f.agent(t, "a2", "analyze_data")
		require.NoError(t, f.work.Leave(t.Context(), "a1", false))
		_, reply := f.accepted(t, as("boss"), f.request("boss", "a1", "analyze_data", 1, nil))
		require.Eventually(t, func() bool {
			task, err := f.work.Task(t.Context(), reply.Location[len("/api/v1/tasks/"):])
			if err == nil && task.Deadline.After(f.db.Now()) { // no further, so that a2 stays online
				f.db.Clock.Advance(time.Second)
			}
			return err == nil && task.State.Ended()
		}, testkit.Timeout, 5*time.Millisecond)
		failure := f.one(t, "boss").Body.(wire.Failure)
		require.Equal(t, []any{wire.ErrorRouting, "UNAVAILABLE", "a2", int64(1000)}, []any{failure.ErrorType, failure.ErrorCode, failure.FallbackSuggestion, *failure.RetryAfterMS})
	})
	runCase(t, "a budget that no agent has", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		failure, reply := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"context": map[string]any{"maxTokens": 10_000_000}}))
		require.Equal(t, []any{wire.ErrorRouting, "BUDGET_EXCEEDED", http.StatusTooManyRequests}, []any{failure.ErrorType, failure.ErrorCode, reply.Status})
	})
}

// TestCancelAndClarify covers cancel_task and questions, for which comet has an intent of its own.
func TestCancelAndClarify(t *testing.T) {
	t.Parallel()
	runCase(t, "cancel", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "other")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, nil)
		_, reply := f.accepted(t, as("boss"), req)
		m := f.one(t, "analyst")
		failure, refused := f.refused(t, as("other"), f.request("other", "nova", "cancel_task", map[string]any{"requestId": req["id"]}, nil))
		require.Equal(t, []any{"NOT_FOUND", http.StatusNotFound}, []any{failure.ErrorCode, refused.Status})
		end, _ := f.accepted(t, as("boss"), f.request("boss", "nova", "cancel_task", map[string]any{"requestId": req["id"], "reason": "no longer needed"}, nil))
		require.JSONEq(t, `{"taskId":"`+reply.Location[len("/api/v1/tasks/"):]+`","state":"cancelled"}`, string(end.Body.(wire.Response).Data))
		order := f.one(t, "analyst").Body.(wire.Request)
		require.Equal(t, []any{"cancel_task", false}, []any{order.Intent, *order.Options.RequiresResponse})
		require.Contains(t, string(order.Payload), m.CorrelationID)
		require.Equal(t, "CANCELLED", f.one(t, "boss").Body.(wire.Failure).ErrorCode)
	})
	runCase(t, "cancel by the correlationId of the requester", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		cancel := func(correlation string) map[string]any {
			return f.request("boss", "nova", "cancel_task", map[string]any{"correlationId": correlation}, nil)
		}
		long := strings.Repeat("x", 100<<10) // has a row of its own
		for _, payload := range []any{1, long} {
			for _, correlation := range []string{"order-7", `é"<%_>`} {
				_, reply := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", payload, map[string]any{"correlationId": correlation}))
				f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", payload, map[string]any{"correlationId": correlation + "0"}))
				end, _ := f.accepted(t, as("boss"), cancel(correlation))
				require.JSONEq(t, `{"taskId":"`+reply.Location[len("/api/v1/tasks/"):]+`","state":"cancelled"}`, string(end.Body.(wire.Response).Data))
				failure, refused := f.refused(t, as("boss"), cancel(correlation))
				require.Equal(t, []any{"NOT_FOUND", http.StatusNotFound}, []any{failure.ErrorCode, refused.Status}, "it has ended")
			}
		}
		failure, refused := f.refused(t, as("boss"), cancel("order-70"))
		require.Equal(t, []any{"CONFLICT", http.StatusConflict}, []any{failure.ErrorCode, refused.Status})
		require.Contains(t, failure.Message, "several of your open requests have the correlationId")
		failure, _ = f.refused(t, as("analyst"), f.request("analyst", "nova", "cancel_task", map[string]any{"correlationId": "order-70"}, nil))
		require.Equal(t, "NOT_FOUND", failure.ErrorCode, "of another agent")
	})
	runCase(t, "a question", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, nil)
		_, reply := f.accepted(t, as("boss"), req)
		m := f.one(t, "analyst")
		ask := f.request("analyst", "nova", "clarify", map[string]any{"taskId": m.CorrelationID, "question": "which table?", "options": []string{"a", "b"}}, nil)
		f.accepted(t, as("analyst"), ask)
		f.accepted(t, as("analyst"), ask) // repeated
		question := f.one(t, "boss")
		require.JSONEq(t, `{"taskId":"`+reply.Location[len("/api/v1/tasks/"):]+`","requestId":"`+req["id"].(string)+`","question":"which table?","options":["a","b"]}`, string(question.Body.(wire.Request).Payload))
		f.accepted(t, as("boss"), f.answer(question, "SUCCESS", "b", nil))
		order := f.one(t, "analyst").Body.(wire.Request)
		require.Equal(t, "clarify", order.Intent)
		require.Contains(t, string(order.Payload), `"answer":"b"`)
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", 5, nil))
		require.Equal(t, "5", string(f.one(t, "boss").Body.(wire.Response).Data))
	})
	runCase(t, "a client answers", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		req := f.request("script", "broadcast", "analyze_data", 1, nil)
		f.accepted(t, client("c"), req)
		m := f.one(t, "analyst")
		f.accepted(t, as("analyst"), f.request("analyst", "nova", "clarify", map[string]any{"taskId": m.CorrelationID, "question": "which?"}, nil))
		f.accepted(t, client("c"), f.request("script", "nova", "clarify", map[string]any{"requestId": req["id"], "answer": "this"}, nil))
		require.Contains(t, string(f.one(t, "analyst").Body.(wire.Request).Payload), `"answer":"this"`)
	})
}

// TestSenders covers who may send what, and signatures.
func TestSenders(t *testing.T) {
	t.Parallel()
	runCase(t, "keys", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		own := f.own["boss"]
		f.own["boss"] = newKey(t)
		failure, reply := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		require.Equal(t, []any{"KEY_UNKNOWN", http.StatusUnauthorized, true}, []any{failure.ErrorCode, reply.Status, reply.BadSignature})
		f.own["boss"] = own
		req := f.request("boss", "broadcast", "analyze_data", 1, nil)
		f.signed(t, req)
		req["payload"] = 2
		reply = f.Receive(t.Context(), peer("boss"), encode(t, req), 0)
		require.Equal(t, "SIGNATURE_INVALID", f.read(t, reply.Body).Body.(wire.Failure).ErrorCode)
		delete(req, "signature")
		delete(req, "publicKey")
		reply = f.Receive(t.Context(), peer("boss"), encode(t, req), 0)
		require.Equal(t, http.StatusAccepted, reply.Status, "the token is sufficient: %s", reply.Body)
		f.pin(t, "boss", true)
		req["id"] = uuid.NewString()
		reply = f.Receive(t.Context(), peer("boss"), encode(t, req), 0)
		require.Equal(t, "SIGNATURE_REQUIRED", f.read(t, reply.Body).Body.(wire.Failure).ErrorCode)
		require.Len(t, f.inbox(t, "analyst"), 1)
	})
	runCase(t, "a mistake in a message without a token", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		for _, c := range []struct {
			over   map[string]any
			code   string
			status int
		}{
			{map[string]any{"priority": "SOON"}, "INVALID_MESSAGE", http.StatusBadRequest},
			{map[string]any{"version": "2.0"}, "UNSUPPORTED_VERSION", http.StatusBadRequest},
			{nil, "AUTH_FAILED", http.StatusUnauthorized}, // its key does not replace a token
		} {
			raw := f.signed(t, f.request("boss", "broadcast", "analyze_data", 1, c.over))
			_, err := f.Info().Sender(t.Context(), raw)
			require.Error(t, err)
			reply := f.Refuse(err, raw)
			require.Equal(t, []any{c.code, c.status}, []any{f.read(t, reply.Body).Body.(wire.Failure).ErrorCode, reply.Status})
		}
	})
	runCase(t, "time", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		for _, skew := range []time.Duration{-5*time.Minute - time.Second, 5*time.Minute + time.Second} {
			failure, _ := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"timestamp": f.db.Now().Add(skew).UnixNano()}))
			require.Equal(t, "CLOCK_SKEW", failure.ErrorCode)
		}
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"timestamp": f.db.Now().Add(5 * time.Minute).UnixNano()}))
	})
	runCase(t, "references to tasks", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		for _, c := range []struct{ payload, pointer, want string }{
			{`[]`, "/payload", "payload must be an object, not an array"},
			{`{"taskId":5}`, "/payload/taskId", "payload.taskId must be a string, not a number"},
			{`{"bogus":1}`, "/payload/bogus", "payload.bogus is not a known member"},
			{`{}`, "/payload/taskId", "payload must name the task with taskId, requestId or correlationId"},
		} {
			for _, intent := range []string{"cancel_task", "clarify"} {
				failure, _ := f.refused(t, as("boss"), f.request("boss", "nova", intent, 1, map[string]any{"payload": json.RawMessage(c.payload)}))
				require.Contains(t, failure.Message, c.want)
				require.Contains(t, string(failure.Details), `"pointer":"`+c.pointer+`"`)
			}
		}
	})
	runCase(t, "names", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		for _, c := range []struct {
			from string
			by   models.Principal
			want string
		}{
			{"analyst", as("boss"), `from must be "boss", the agent of the token`},
			{"boss", client("c"), "from is an agent, but the token is bound to no agent; use a token of that agent or another name"},
			{"nova", client("c"), "from is an agent, but the token is bound to no agent; use a token of that agent or another name"},
			{"script", models.Principal{TokenID: "c", Name: "c"}, "the token is bound to no agent and lacks the scope messages:send"},
		} {
			failure, reply := f.refused(t, c.by, f.request(c.from, "broadcast", "analyze_data", 1, nil))
			require.Equal(t, []any{"UNAUTHORIZED", http.StatusForbidden, c.want}, []any{failure.ErrorCode, reply.Status, failure.Message})
		}
	})
	runCase(t, "reports of others", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.agent(t, "other", "dig")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		stolen := f.answer(m, "SUCCESS", 1, map[string]any{"from": "other"})
		failure, reply := f.refused(t, as("other"), stolen)
		require.Equal(t, []any{"NOT_FOUND", http.StatusNotFound}, []any{failure.ErrorCode, reply.Status})
		failure, _ = f.refused(t, client("c"), f.answer(m, "SUCCESS", 1, map[string]any{"from": "script"}))
		require.Equal(t, "UNAUTHORIZED", failure.ErrorCode)
		require.Empty(t, f.inbox(t, "boss"))
	})
}

// TestService covers intents that need no agent.
func TestService(t *testing.T) {
	t.Parallel()
	runCase(t, "answers", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		end, reply := f.accepted(t, as("boss"), f.request("boss", "nova", "health_check", map[string]any{"agent": "x"}, nil))
		require.Equal(t, []any{http.StatusOK, true, `{"agent":"x"}`}, []any{reply.Status, reply.SendBack, string(end.Body.(wire.Response).Data)})
		end, _ = f.accepted(t, as("boss"), f.request("boss", "nova", "unregister_agent", 1, nil))
		failure := end.Body.(wire.Response)
		require.Equal(t, []any{wire.Failed, "ACTIVE_CHILDREN", "the agent has active children"}, []any{failure.Status, failure.Error.Code, failure.Error.Message})
	})
	runCase(t, "a named agent may offer the same intent", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "doctor", "health_check")
		_, reply := f.accepted(t, client("c"), f.request("script", "doctor", "health_check", 1, nil))
		require.Equal(t, http.StatusAccepted, reply.Status)
	})
}

// TestPublishSubscribe covers Genesis §Publish-Subscribe Pattern.
func TestPublishSubscribe(t *testing.T) {
	t.Parallel()
	paid := func(f *fixture, over map[string]any) map[string]any {
		return f.message("boss", "EVENT", map[string]any{
			"to": nil, "eventType": "order.paid", "eventName": "an order was paid", "payload": map[string]any{"n": 1},
			"metadata": map[string]any{"schemaVersion": "2", "contentType": "application/json"}, "deliveryGuarantee": "at-least-once",
		}, over)
	}
	runCase(t, "to subscribers", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "a1", "dig") // an agent of this protocol receives all events unless it has chosen some
		f.agent(t, "a2", "dig")
		require.NoError(t, f.events.Subscribe(t.Context(), as("a2"), "a2", []pubsub.Pattern{{Pattern: "order.shipped"}}))
		event := paid(f, nil)
		_, reply := f.accepted(t, as("boss"), event)
		require.Equal(t, http.StatusAccepted, reply.Status)
		_, reply = f.accepted(t, as("boss"), event) // repeated
		require.Contains(t, string(reply.Body), `"replayed":true`)
		m := f.one(t, "a1")
		got := m.Body.(wire.Event)
		require.Equal(t, []any{"order.paid", "an order was paid", `{"n":1}`, wire.AtLeastOnce}, []any{got.EventType, got.EventName, string(got.Payload), got.DeliveryGuarantee})
		require.Equal(t, wire.Metadata{SchemaVersion: "2", ContentType: "application/json", OriginalFrom: "boss", OriginalID: event["id"].(string)}, got.Metadata)
		require.Empty(t, f.inbox(t, "a2"))
		require.Empty(t, f.inbox(t, "boss"), "not to its sender")
		event["payload"] = 2
		failure, refused := f.refused(t, as("boss"), event)
		require.Equal(t, []any{"MESSAGE_REPLAYED", http.StatusConflict}, []any{failure.ErrorCode, refused.Status})
	})
	runCase(t, "exactly once", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "a1", "dig")
		over := map[string]any{"deliveryGuarantee": "exactly-once", "deduplicationId": "order-7"}
		f.accepted(t, as("boss"), paid(f, over))
		f.accepted(t, as("boss"), paid(f, over)) // another message about the same
		require.Equal(t, "order-7", f.one(t, "a1").Body.(wire.Event).DeduplicationID)
		over["payload"] = 2
		failure, refused := f.refused(t, as("boss"), paid(f, over))
		require.Equal(t, []any{"DEDUPLICATION_ID_REUSED", http.StatusConflict}, []any{failure.ErrorCode, refused.Status})
	})
	runCase(t, "to one agent", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agentBelow(t, "boss", "a1", "dig")
		f.agent(t, "a2", "dig")
		f.accepted(t, as("boss"), paid(f, map[string]any{"to": "a1"}))
		f.one(t, "a1")
		require.Empty(t, f.inbox(t, "a2"))
	})
}

// TestProblems: an ERROR lists each mistake of a message once, and the missing signature only if the sender must sign.
func TestProblems(t *testing.T) {
	t.Parallel()
	pointers := func(t *testing.T, f *fixture, by models.Principal, m map[string]any) (all []string) {
		t.Helper()
		reply := f.Receive(t.Context(), protocol.Peer{Principal: by}, encode(t, m), 0)
		failure := f.read(t, reply.Body).Body.(wire.Failure)
		require.Equal(t, []any{"INVALID_MESSAGE", http.StatusBadRequest}, []any{failure.ErrorCode, reply.Status})
		var details struct{ Problems []wire.Problem }
		require.NoError(t, json.Unmarshal(failure.Details, &details))
		for _, p := range details.Problems {
			require.Equal(t, 1, strings.Count(failure.Message, p.Detail), failure.Message)
			all = append(all, p.Pointer)
		}
		return all
	}
	runCase(t, "of unsigned and signed messages", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "signer")
		f.pin(t, "signer", true)
		wrong := map[string]any{"confidence": 2, "payload": nil}
		require.Equal(t, []string{"/confidence", "/payload"}, pointers(t, f, client("c"), f.request("dashboard", "broadcast", "a", 1, wrong)))
		require.Equal(t, []string{"/confidence", "/payload"}, pointers(t, f, as("boss"), f.request("boss", "broadcast", "a", 1, wrong)))
		require.Equal(t, []string{"/confidence", "/payload", "/signature", "/publicKey"}, pointers(t, f, as("signer"), f.request("signer", "broadcast", "a", 1, wrong)))
		require.Equal(t, []string{"/confidence", "/signature", "/publicKey"}, pointers(t, f, client("c"), f.request("dashboard", "broadcast", "a", 1, map[string]any{"confidence": 2, "signature": 7})), "a part of a signature")
		require.Equal(t, []string{"/from"}, pointers(t, f, as("boss"), f.request("boss", "broadcast", "a", 1, map[string]any{"from": "broadcast"})))
	})
	runCase(t, "names of members", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		many := map[string]any{"context": map[string]any{"maxTokens": int64(1) << 60}}
		require.Equal(t, []string{"/context/maxTokens"}, pointers(t, f, client("c"), f.request("dashboard", "broadcast", "analyze_data", 1, many)))
	})
}
