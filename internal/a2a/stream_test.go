package a2a_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
)

// held is a worker that waits for a signal before each step of its tasks.
func (h *harness) held(step chan func(ctx context.Context, o orchestrator.TaskWithInput)) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		for {
			select {
			case do, open := <-step:
				if !open {
					return
				}
				do(ctx, o)
			case <-ctx.Done():
				return
			}
		}
	}
}

// progress reports a step.
func (h *harness) progress(percent int, name string) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		_, _ = h.Progress(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Progress{Percent: &percent, Step: 1, StepName: name})
	}
}

// chunk sends a piece of the result.
func (h *harness) chunk(at int, data string) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		_, _ = h.Progress(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Progress{Chunk: &orchestrator.Chunk{Step: 1, Start: int64(at), Data: []byte(data)}})
	}
}

// complete ends the task.
func (h *harness) complete(output string) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		_, _ = h.Complete(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Result{Output: []byte(output)})
	}
}

// states returns the states of events, without repetitions.
func states(all []received) (out []string) {
	for _, e := range all {
		if s := e.state(); s != "" && (len(out) == 0 || out[len(out)-1] != s) {
			out = append(out, strings.TrimPrefix(s, "TASK_STATE_"))
		}
	}
	return out
}

// result joins the pieces of the result.
func result(t *testing.T, all []received) (text string) {
	t.Helper()
	for _, e := range all {
		if a := e.ArtifactUpdate; a != nil {
			if !a.Append {
				text = ""
			}
			text += a.Artifact.Parts[0].Text
		}
	}
	return text
}

// TestSendStreamingMessage: a stream begins with the task and ends with it.
func TestSendStreamingMessage(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"JSON-RPC": "", "HTTP+JSON": "/message:stream"} {
		onDatabases(t, name, func(t *testing.T, h *harness) {
			steps := make(chan func(context.Context, orchestrator.TaskWithInput))
			h.worker(t, "work-1", h.held(steps), "work")
			body := `{"message":` + text("m-1", "hello", "work", "", "") + `}`
			if path == "" {
				body = `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":` + body + `}`
			}
			s := open(t, h.Client, path, body)
			first := s.must()
			require.NotNil(t, first.Task)
			steps <- h.progress(50, "half")
			all := []received{first}
			for e := s.must(); ; e = s.must() {
				all = append(all, e)
				if u := e.StatusUpdate; u != nil && u.Status.Message != nil {
					require.Equal(t, "half", u.Status.Message.Parts[0].Text)
					break
				}
			}
			steps <- h.complete(`{"answer":42}`)
			all = append(all, s.rest()...)
			last := len(all) - 1
			require.Equal(t, "COMPLETED", states(all)[len(states(all))-1])
			require.Equal(t, "TASK_STATE_COMPLETED", all[last].state())
			require.True(t, all[last-1].ArtifactUpdate.LastChunk)
			require.JSONEq(t, `{"answer":42}`, string(all[last-1].ArtifactUpdate.Artifact.Parts[0].Data))
			for i := range all[1:] {
				require.GreaterOrEqual(t, all[i+1].position(t), all[i].position(t))
			}
			newest, err := h.DB.Events(t.Context()).Newest(first.Task.ID, events.TaskCompleted)
			require.NoError(t, err)
			require.Equal(t, newest.Position, all[last].position(t), "the id is the position of the event")
		})
	}
	onDatabases(t, "a text is sent in pieces, at the ends of characters", func(t *testing.T, h *harness) {
		steps := make(chan func(context.Context, orchestrator.TaskWithInput))
		h.worker(t, "work-1", h.held(steps), "work")
		s := open(t, h.Client, "/message:stream", `{"message":`+text("m-1", "hello", "work", "", "")+`}`)
		all := []received{s.must()}
		piece := func() received {
			for {
				e := s.must()
				all = append(all, e)
				if e.ArtifactUpdate != nil {
					return e
				}
			}
		}
		euro := "€"
		steps <- h.chunk(0, "one "+euro[:2])
		first := piece()
		require.Equal(t, "one ", first.ArtifactUpdate.Artifact.Parts[0].Text)
		require.False(t, first.ArtifactUpdate.Append)
		steps <- h.chunk(6, euro[2:]+" two")
		second := piece()
		require.Equal(t, "€ two", second.ArtifactUpdate.Artifact.Parts[0].Text)
		require.True(t, second.ArtifactUpdate.Append)
		steps <- h.complete("")
		all = append(all, s.rest()...)
		require.Equal(t, "one € two", result(t, all))
		require.True(t, all[len(all)-2].ArtifactUpdate.LastChunk)
		require.Equal(t, "one € two", getTask(t, h.Client, all[0].Task.ID).Artifacts[0].Parts[0].Text, "poll and stream agree")

		// A client that has received the first piece continues after it.
		resumed := open(t, h.Client, "/tasks/"+all[0].Task.ID+":subscribe", "", "Last-Event-ID", first.id).rest()
		require.Equal(t, "€ two", result(t, resumed))
		require.Equal(t, "TASK_STATE_COMPLETED", resumed[len(resumed)-1].state())
	})
	onDatabases(t, "JSON is sent when it is complete", func(t *testing.T, h *harness) {
		steps := make(chan func(context.Context, orchestrator.TaskWithInput))
		h.worker(t, "work-1", h.held(steps), "work")
		s := open(t, h.Client, "/message:stream", `{"message":`+text("m-1", "hello", "work", "", "")+`}`)
		s.must()
		steps <- h.chunk(0, `{"a":`)
		steps <- h.chunk(5, `1}`)
		steps <- h.complete("")
		var artifacts []received
		for _, e := range s.rest() {
			if e.ArtifactUpdate != nil {
				artifacts = append(artifacts, e)
			}
		}
		require.Len(t, artifacts, 1)
		require.JSONEq(t, `{"a":1}`, string(artifacts[0].ArtifactUpdate.Artifact.Parts[0].Data))
	})
	onDatabases(t, "an error before the stream is no stream", func(t *testing.T, h *harness) {
		resp := h.Do(t, http.MethodPost, "/a2a/rest/message:stream", `{}`, "A2A-Version", "1.0")
		require.Equal(t, http.StatusBadRequest, resp.Status)
		require.Equal(t, -32602, rpc(t, h.Client, "SendStreamingMessage", `{}`, nil).Code)
	})
	onDatabases(t, "a rejected task", func(t *testing.T, h *harness) {
		all := open(t, h.Client, "/message:stream", `{"message":`+text("m-1", "hello", "nothing", "", "")+`}`).rest()
		require.Len(t, all, 1)
		require.Equal(t, "TASK_STATE_REJECTED", all[0].state())
	})
}

// TestSubscribeToTask: streams of one task agree, and continue where a client left off.
func TestSubscribeToTask(t *testing.T) {
	t.Parallel()
	onDatabases(t, "two streams, one of them resumed", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("what?"), "ask")
		asked := send(t, h.Client, text("m-1", "hello", "ask", "", ""))
		path := "/tasks/" + asked.ID + ":subscribe"
		one, two := open(t, h.Client, path, ""), open(t, h.Client, path, "{}")
		first := one.must()
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", first.state())
		require.Equal(t, asked.Status.Message, first.Task.Status.Message)
		require.Equal(t, first.event, two.must().event)
		two.end()
		send(t, h.Client, text("m-2", "it", "", "", asked.ID))
		all := one.rest()
		require.Equal(t, []string{"WORKING", "COMPLETED"}, states(all))
		require.Equal(t, all, open(t, h.Client, path, "", "Last-Event-ID", first.id).rest(), "it continues where it was cut, though the task has ended")
		require.Equal(t, all[1:], open(t, h.Client, path, "", "Last-Event-ID", all[0].id).rest())
		require.Empty(t, open(t, h.Client, path, "", "Last-Event-ID", all[len(all)-1].id).rest())
		require.Equal(t, -32004, rpc(t, h.Client, "SubscribeToTask", `{"id":"`+asked.ID+`"}`, nil).Code)
		require.Equal(t, http.StatusBadRequest, h.Do(t, http.MethodPost, "/a2a/rest"+path, "", "A2A-Version", "1.0", "Last-Event-ID", "x").Status)
	})
	onDatabases(t, "the end is known although its event was purged", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		got := send(t, h.Client, text("m-1", "hello", "say", "", ""))
		h.purgeEvents(t, got.ID)
		all := open(t, h.Client, "/tasks/"+got.ID+":subscribe", "", "Last-Event-ID", "0").rest()
		require.Equal(t, "TASK_STATE_COMPLETED", all[len(all)-1].state())
		if last := all[len(all)-1]; last.Task != nil {
			require.Equal(t, "done", last.Task.Artifacts[0].Parts[0].Text)
		} else { // the server still has the events in memory
			require.Equal(t, "done", result(t, all))
		}
	})
	onDatabases(t, "a task that asks for a capability", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("translated"), "translate", "summarize")
		asked := send(t, h.Client, text("m-1", "translate or summarize", "", "", ""))
		s := open(t, h.Client, "/tasks/"+asked.ID+":subscribe", "")
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", s.must().state())
		send(t, h.Client, text("m-2", "translate", "", "", asked.ID))
		all := s.rest()
		require.Equal(t, "translated", result(t, all))
		require.Equal(t, "TASK_STATE_COMPLETED", all[len(all)-1].state())

		second := send(t, h.Client, text("m-3", "translate or summarize", "", "", ""))
		s = open(t, h.Client, "/tasks/"+second.ID+":subscribe", "")
		s.must()
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+second.ID+`"}`, nil))
		require.Equal(t, []string{"CANCELED"}, states(s.rest()))
	})
	onDatabases(t, "streams end when the server stops, and are limited", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("what?"), "ask")
		asked := send(t, h.Client, text("m-1", "hello", "ask", "", ""))
		s := open(t, h.Client, "/tasks/"+asked.ID+":subscribe", "")
		s.must()
		h.handler.Drain()
		require.Empty(t, s.rest())
	})
}

// purgeEvents deletes all events, once those of a task that has ended have positions.
func (h *harness) purgeEvents(t *testing.T, taskID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		e, err := h.DB.Events(context.Background()).Newest(taskID, events.TaskCompleted)
		return err == nil && e.Position > 0
	}, testkit.Timeout, 5*time.Millisecond)
	h.DB.Clock.Advance(time.Hour)
	require.NoError(t, events.Purge(h.DB.Store, time.Minute)(t.Context()))
}
