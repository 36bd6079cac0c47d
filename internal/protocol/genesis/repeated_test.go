package genesis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/genesis"
	"comet/internal/pubsub"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// TestRepeatedAnswer sends the answer to a question again while the next question waits.
func TestRepeatedAnswer(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		m := f.one(t, "analyst")
		ask := func(question string) wire.Message {
			f.accepted(t, as("analyst"), f.request("analyst", "nova", "clarify", map[string]any{"taskId": m.CorrelationID, "question": question}, nil))
			return f.one(t, "boss")
		}
		answer := f.answer(ask("which table?"), "SUCCESS", "b", nil)
		f.accepted(t, as("boss"), answer)
		f.one(t, "analyst")
		second := ask("which column?")
		f.accepted(t, as("boss"), answer)
		require.Empty(t, f.inbox(t, "analyst"), "the repeated answer is not that to the next question")
		answer["data"] = "c"
		failure, refused := f.refused(t, as("boss"), answer)
		require.Equal(t, []any{"MESSAGE_REPLAYED", http.StatusConflict}, []any{failure.ErrorCode, refused.Status})
		f.accepted(t, as("boss"), f.answer(second, "SUCCESS", "x", nil))
		require.Contains(t, string(f.one(t, "analyst").Body.(wire.Request).Payload), `"answer":"x"`)
	})
}

// TestQuestionOfSubtask answers a question of an agent to which the worker has handed off.
func TestQuestionOfSubtask(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "other")
		f.agent(t, "analyst", "analyze_data")
		f.agentBelow(t, "analyst", "digger", "dig")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		sub, err := f.work.HandOff(t.Context(), as("analyst"), "analyst", f.one(t, "analyst").CorrelationID, orchestrator.Submission{Class: genesis.Class, Capabilities: []string{"dig"}, AgentID: "digger"})
		require.NoError(t, err)
		f.inbox(t, "digger")
		_, err = f.work.Clarify(t.Context(), "digger", sub.Task.ID, orchestrator.Question{Text: "where?"})
		require.NoError(t, err)
		question := f.one(t, "boss")
		answer := f.answer(question, "SUCCESS", "here", nil)
		answer["from"] = "other"
		failure, _ := f.refused(t, as("other"), answer)
		require.Equal(t, "NOT_FOUND", failure.ErrorCode)
		f.accepted(t, as("boss"), f.answer(question, "SUCCESS", "here", nil))
		require.Contains(t, string(f.one(t, "digger").Body.(wire.Request).Payload), `"answer":"here"`)
	})
}

// TestRepeatedEvent sends a signed event at most once, without a token, again.
func TestRepeatedEvent(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		b, err := bus.New(&bus.Options{Listen: "127.0.0.1:0"})
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
		f.Events = pubsub.New(f.db.Store, &pubsub.Options{Bus: b})
		seen := make(chan string, 10)
		_, err = b.Subscribe(string(bus.Publications), func(m bus.Message) {
			var p models.Publication
			_ = json.Unmarshal(m.Data, &p)
			seen <- p.Name
		})
		require.NoError(t, err)
		require.NoError(t, b.Flush(t.Context()))
		f.agent(t, "boss")
		speaker := as("boss")
		speaker.TokenID = "key:boss"
		event := func(name string) map[string]any {
			return f.message("boss", "EVENT", map[string]any{
				"to": nil, "eventType": "order.paid", "eventName": name, "payload": 1,
				"metadata": map[string]any{"schemaVersion": "1", "contentType": "x"}, "deliveryGuarantee": "at-most-once",
			}, nil)
		}
		first := event("first")
		f.accepted(t, speaker, first)
		_, reply := f.accepted(t, speaker, first)
		require.Contains(t, string(reply.Body), `"replayed":true`)
		f.accepted(t, speaker, event("second"))
		require.Equal(t, []string{"first", "second"}, []string{<-seen, <-seen})
	})
}

// TestTextsOfTasks covers texts in payloads that are too long or that no database stores.
func TestTextsOfTasks(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, nil)
		f.accepted(t, as("boss"), req)
		id := f.one(t, "analyst").CorrelationID
		for _, c := range []struct {
			from, intent, words string
			payload             map[string]any
		}{
			{"boss", "cancel_task", "NUL", map[string]any{"taskId": "\x00"}},
			{"boss", "cancel_task", "NUL", map[string]any{"taskId": id, "reason": "a\x00b"}},
			{"analyst", "clarify", "options", map[string]any{"taskId": id, "question": "?", "options": make([]string, 101)}},
			{"analyst", "clarify", "options", map[string]any{"taskId": id, "question": "?", "options": []string{strings.Repeat("x", 17<<10)}}},
			{"boss", "clarify", "65537 bytes", map[string]any{"taskId": id, "answer": strings.Repeat("x", 64<<10+1)}},
		} {
			failure, refused := f.refused(t, as(c.from), f.request(c.from, "nova", c.intent, c.payload, nil))
			require.Equal(t, []any{"INVALID_MESSAGE", http.StatusBadRequest}, []any{failure.ErrorCode, refused.Status})
			require.Contains(t, failure.Message, c.words)
		}
		failure, _ := f.refused(t, as("boss"), f.message("boss", "EVENT", map[string]any{
			"eventType": "message.ack", "eventName": "x", "payload": map[string]any{"originalMessageId": "\x00"},
			"metadata": map[string]any{"schemaVersion": "1", "contentType": "x"}, "deliveryGuarantee": "at-most-once",
		}, nil))
		require.Equal(t, "INVALID_MESSAGE", failure.ErrorCode)
	})
}

// TestInexpressible covers what other protocols accept and a message cannot contain.
func TestInexpressible(t *testing.T) {
	t.Parallel()
	runCase(t, "a result that escapes make too long", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		_, err := f.work.Complete(t.Context(), "analyst", f.one(t, "analyst").CorrelationID, orchestrator.Result{Output: bytes.Repeat([]byte{1}, 2<<20)})
		require.NoError(t, err)
		end := f.one(t, "boss").Body.(wire.Response)
		require.Equal(t, wire.Succeeded, end.Status)
		require.Contains(t, string(end.Data), `"truncated":true`)
	})
	runCase(t, "a request with numbers that JavaScript prints at length", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		done, err := f.work.Submit(t.Context(), client("c"), orchestrator.Submission{
			Capabilities: []string{"analyze_data"}, Parameters: []byte(`{"a":"` + strings.Repeat(`\"`, 3<<19) + `","b":[` + strings.Repeat("1e20,", 3<<18) + "0]}"),
		}, nil)
		require.NoError(t, err)
		require.Empty(t, f.inbox(t, "analyst"))
		out, err := f.work.Task(t.Context(), done.Task.ID)
		require.NoError(t, err)
		require.Equal(t, 1, out.Attempt)
		require.Equal(t, models.WaitForRetry, out.WaitingFor)
	})
	runCase(t, "a publication with a type of one word", func(t *testing.T, f *fixture) {
		f.agent(t, "a1", "dig")
		out, err := f.events.Publish(t.Context(), client("c"), pubsub.Draft{Type: "ping", Payload: []byte("1")})
		require.NoError(t, err)
		require.Equal(t, 1, out.Subscribers)
		all, err := f.work.Messages(t.Context(), "a1", 10)
		require.NoError(t, err)
		m, ok, err := f.events.Open(t.Context(), all[0])
		require.True(t, ok)
		require.NoError(t, err)
		agent, err := f.db.Agents(t.Context()).Get("a1")
		require.NoError(t, err)
		parts, err := f.Render(t.Context(), protocol.Peer{Agent: agent}, m, 0)
		require.NoError(t, err)
		require.Empty(t, parts, "so that it becomes a dead letter")
	})
}
