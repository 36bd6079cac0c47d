package genesis_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/genesis"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// acknowledgement is the payload of a message.ack.
type acknowledgement struct {
	OriginalMessageID, Stage, TaskID, AgentID string
	Attempt                                   int
	Routing                                   struct{ SelectedAgents []string }
}

func ackOf(t *testing.T, m wire.Message) (out acknowledgement) {
	t.Helper()
	event, ok := m.Body.(wire.Event)
	require.True(t, ok, "%#v", m.Body)
	require.Equal(t, "message.ack", event.EventType)
	require.NoError(t, json.Unmarshal(event.Payload, &out))
	return out
}

// stream sends a REQUEST whose response is a stream, and returns a function that returns the next message, nil after the last one.
func (f *fixture) stream(t *testing.T, by models.Principal, m map[string]any) (next func() *wire.Message) {
	t.Helper()
	out, raw := make(chan []byte, 100), f.signed(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		reply, err := f.Info().Stream(ctx, protocol.Peer{Principal: by}, raw, func(text []byte) error {
			out <- text
			return nil
		}, func() error { return nil })
		if reply.IsError {
			err = errors.Join(err, errors.New(string(reply.Body)))
		}
		close(out)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			require.NoError(t, err)
		}
	})
	return func() *wire.Message {
		text, open := <-out
		if !open {
			return nil
		}
		message := f.read(t, text)
		return &message
	}
}

// TestDelivered: the requester learns that an agent has received its request.
func TestDelivered(t *testing.T) {
	t.Parallel()
	wanted := map[string]any{"options": map[string]any{"requiresAck": true}}
	runCase(t, "an acknowledgement of the worker", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		req := f.request("boss", "broadcast", "analyze_data", 1, wanted)
		ack, _ := f.accepted(t, as("boss"), req)
		require.Equal(t, "accepted", ackOf(t, ack).Stage)
		require.Empty(t, f.inbox(t, "boss"))
		m := f.one(t, "analyst") // and acknowledges it
		got := ackOf(t, f.one(t, "boss"))
		require.Equal(t, []any{req["id"], "delivered", m.CorrelationID, "analyst", 1}, []any{got.OriginalMessageID, got.Stage, got.TaskID, got.AgentID, got.Attempt})
		ack, _ = f.accepted(t, as("boss"), req)
		require.Equal(t, "delivered", ackOf(t, ack).Stage, "a repeated message gets the stage")
		f.accepted(t, as("analyst"), f.answer(m, "PARTIAL", 1, nil))
		require.Empty(t, f.inbox(t, "boss"), "once")
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", 2, nil))
		require.Equal(t, wire.Succeeded, f.one(t, "boss").Body.(wire.Response).Status)
	})
	runCase(t, "acknowledgements over a WebSocket, in memory first", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, wanted))
		all, err := f.work.Messages(t.Context(), "analyst", 10)
		require.NoError(t, err)
		require.NoError(t, f.work.AcknowledgeLater(t.Context(), "analyst", []string{all[0].ID}))
		require.NoError(t, f.work.FlushAcknowledgements(t.Context(), "analyst"))
		require.Equal(t, "delivered", ackOf(t, f.one(t, "boss")).Stage)
	})
	runCase(t, "the first message of the worker", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		over := map[string]any{"options": map[string]any{"requiresAck": true, "stream": true}}
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, over))
		all, err := f.work.Messages(t.Context(), "analyst", 10)
		require.NoError(t, err)
		_, err = f.work.Progress(t.Context(), "analyst", all[0].TaskID, orchestrator.Progress{Partial: json.RawMessage("1")})
		require.NoError(t, err)
		got := f.inbox(t, "boss")
		require.Len(t, got, 2)
		require.Equal(t, "delivered", ackOf(t, got[0]).Stage)
		require.Equal(t, wire.Partial, got[1].Body.(wire.Response).Status)
	})
	runCase(t, "not without requiresAck, nor after the end", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agent(t, "analyst", "analyze_data")
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, nil))
		f.one(t, "analyst")
		require.Empty(t, f.inbox(t, "boss"))
		f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, wanted))
		m := f.one(t, "analyst")
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", 2, nil))
		require.Equal(t, wire.TypeResponse, f.one(t, "boss").Type, "the message about the receipt is obsolete")
	})
}

// TestStreamOfQuestions: a stream has the stages, and the questions of the task and of its subtasks.
func TestStreamOfQuestions(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		f.agent(t, "analyst", "analyze_data")
		f.agentBelow(t, "analyst", "digger", "dig")
		req := f.request("script", "broadcast", "analyze_data", 1, nil)
		next := f.stream(t, client("c"), req)
		require.Equal(t, "accepted", ackOf(t, *next()).Stage)
		m := f.one(t, "analyst")
		got := ackOf(t, *next())
		require.Equal(t, []any{"delivered", "analyst"}, []any{got.Stage, got.AgentID})
		sub, err := f.work.HandOff(t.Context(), as("analyst"), "analyst", m.CorrelationID, orchestrator.Submission{Class: genesis.Class, Capabilities: []string{"dig"}, AgentID: "digger"})
		require.NoError(t, err)
		f.one(t, "digger")
		for _, c := range []struct{ agent, task, question string }{{"digger", sub.Task.ID, "where?"}, {"digger", sub.Task.ID, "how deep?"}, {"analyst", m.CorrelationID, "which table?"}} {
			_, err = f.work.Clarify(t.Context(), c.agent, c.task, orchestrator.Question{Text: c.question})
			require.NoError(t, err)
			asked := next()
			require.JSONEq(t, `{"taskId":"`+c.task+`","requestId":"`+req["id"].(string)+`","question":"`+c.question+`","options":[]}`, string(asked.Body.(wire.Request).Payload))
			f.accepted(t, client("c"), f.request("script", "nova", "clarify", map[string]any{"taskId": c.task, "answer": "here"}, nil))
			require.Contains(t, string(f.one(t, c.agent).Body.(wire.Request).Payload), `"answer":"here"`)
		}
		f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", "all", nil))
		require.Equal(t, wire.Succeeded, next().Body.(wire.Response).Status)
		require.Nil(t, next())
	})
}

// TestFanout: context.fanout sends a request to several agents, and the first success is its result.
func TestFanout(t *testing.T) {
	t.Parallel()
	over := func(n any) map[string]any { return map[string]any{"context": map[string]any{"fanout": n}} }
	runCase(t, "the first success", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		agents := []string{"a1", "a2", "a3", "a4"}
		for _, id := range agents {
			f.agent(t, id, "analyze_data")
		}
		ack, _ := f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, over(3)))
		selected := ackOf(t, ack).Routing.SelectedAgents
		require.Len(t, selected, 3)
		var first, second wire.Message
		for _, id := range agents {
			if got := f.inbox(t, id); len(got) > 0 {
				require.Contains(t, selected, id)
				first, second = second, got[0]
			}
		}
		f.accepted(t, as(first.To), f.answer(first, "FAILURE", nil, map[string]any{"error": map[string]any{"code": "NO", "message": "no", "retryable": false}}))
		require.Empty(t, f.inbox(t, "boss"))
		f.accepted(t, as(second.To), f.answer(second, "SUCCESS", "5", map[string]any{"confidence": 0.5}))
		f.work.WaitForTask(t, ackOf(t, ack).TaskID, func(task models.Task) bool { return task.State == models.TaskDone })
		end := f.one(t, "boss").Body.(wire.Response)
		require.Equal(t, []any{wire.Succeeded, `"5"`, 0.5}, []any{end.Status, string(end.Data), *end.Confidence})
	})
	runCase(t, "refusals", func(t *testing.T, f *fixture) {
		f.agent(t, "boss")
		f.agentBelow(t, "boss", "analyst", "analyze_data")
		for _, n := range []any{1, 4, 2.5, "2"} {
			failure, reply := f.refused(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, over(n)))
			require.Equal(t, []any{"INVALID_MESSAGE", http.StatusBadRequest}, []any{failure.ErrorCode, reply.Status})
			require.Equal(t, "context.fanout must be 2 or 3, the number of agents that execute the request at the same time", failure.Message)
		}
		failure, _ := f.refused(t, as("boss"), f.request("boss", "analyst", "analyze_data", 1, over(2)))
		require.JSONEq(t, `{"problems":[{"pointer":"/context/fanout","detail":"one agent cannot be several workers"}]}`, string(failure.Details))
	})
}
