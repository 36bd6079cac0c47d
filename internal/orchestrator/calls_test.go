package orchestrator_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
)

// call is a call about the task of an agent.
type call func(h *harness, t *testing.T, agent, id string) (models.Task, error)

// calls are the calls about a task, by its agent or another client.
func calls() map[string]call {
	complete := func(r orchestrator.Result) call {
		return func(h *harness, t *testing.T, agent, id string) (models.Task, error) {
			return h.Complete(t.Context(), agent, id, r)
		}
	}
	return map[string]call{
		"Accept": func(h *harness, t *testing.T, agent, id string) (models.Task, error) {
			return h.Accept(t.Context(), agent, id)
		},
		"Progress": func(h *harness, t *testing.T, agent, id string) (models.Task, error) {
			return h.Progress(t.Context(), agent, id, orchestrator.Progress{Percent: new(50), Log: []byte("line"), Chunk: &orchestrator.Chunk{Data: []byte("piece")}})
		},
		"Succeed":         complete(orchestrator.Result{Output: []byte("result")}),
		"Fail":            complete(orchestrator.Result{Failure: orchestrator.FailureWork}),
		"FailTemporarily": complete(orchestrator.Result{Failure: orchestrator.FailureResource}),
		"Clarify": func(h *harness, t *testing.T, agent, id string) (models.Task, error) {
			return h.Clarify(t.Context(), agent, id, orchestrator.Question{Text: "?", Options: []string{"y", "n"}})
		},
		"Reply": func(h *harness, t *testing.T, _, id string) (models.Task, error) {
			return h.Reply(t.Context(), id, "y")
		},
		"Cancel": func(h *harness, t *testing.T, _, id string) (models.Task, error) {
			return h.Cancel(t.Context(), id, "why", nil)
		},
	}
}

// states bring a task into each of its states. The agent has two slots, and its capability is its
// id.
func states() map[string]func(h *harness, t *testing.T, agent string) string {
	type arrange = func(h *harness, t *testing.T, agent string) string
	assigned := func(h *harness, t *testing.T, agent string) string { return h.submit(t, agent, nil).ID }
	after := func(name string) arrange {
		return func(h *harness, t *testing.T, agent string) string {
			id := assigned(h, t, agent)
			_, err := calls()[name](h, t, agent, id)
			require.NoError(t, err)
			return id
		}
	}
	return map[string]arrange{
		"assigned": assigned, "running": after("Accept"), "asking": after("Clarify"), "done": after("Succeed"), "failed": after("Fail"), "cancelled": after("Cancel"),
		"queued": func(h *harness, t *testing.T, agent string) string {
			assigned(h, t, agent)
			assigned(h, t, agent)
			return assigned(h, t, agent)
		},
		"retry": func(h *harness, t *testing.T, agent string) string {
			id := assigned(h, t, agent)
			h.DB.Clock.Advance(30 * time.Second)
			h.WaitForTask(t, id, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
			return id
		},
		"failedTemporarily": after("FailTemporarily"),
		"unknown":           func(*harness, *testing.T, string) string { return "unknown" },
	}
}

// TestEveryCallInEveryState checks the result of each call: the state and what the task then
// waits for, or the error. "=" is a call that succeeds and changes nothing.
func TestEveryCallInEveryState(t *testing.T) {
	t.Parallel()
	order := []string{"Accept", "Progress", "Succeed", "Fail", "FailTemporarily", "Clarify", "Reply", "Cancel"}
	over, gone := string(errs.TaskState), string(errs.NotFound)
	for situation, want := range map[string][]string{
		//               Accept      Progress   Succeed  Fail      FailTemporarily Clarify       Reply      Cancel
		"assigned":          {"running", "running", "done", "failed", "new/retry", "running/reply", over, "cancelled"},
		"running":           {"running", "running", "done", "failed", "new/retry", "running/reply", over, "cancelled"},
		"asking":            {"running/reply", "running/reply", "done", "failed", "new/retry", "running/reply", "running", "cancelled"},
		"queued":            {gone, gone, gone, gone, gone, gone, over, "cancelled"},
		"retry":             {over, over, "done", "=", "=", over, over, "cancelled"},
		"failedTemporarily": {over, over, "=", "=", "=", over, over, "cancelled"},
		"done":              {over, over, "=", "=", "=", over, over, over},
		"failed":            {over, over, "=", "=", "=", over, over, over},
		"cancelled":         {over, over, over, over, over, over, over, "="},
		"unknown":           {gone, gone, gone, gone, gone, gone, gone, gone},
	} {
		withHarness(t, situation, func(t *testing.T, h *harness) {
			for i, verb := range order {
				h.worker(t, verb, 2, verb)
				id := states()[situation](h, t, verb)
				before := allRows(t, h)
				got, err := calls()[verb](h, t, verb, id)
				requireOutcome(t, h, verb, want[i], before, got, err)
				requireSound(t, h)
				h.cancelAll(t)
				require.NoError(t, h.Leave(t.Context(), verb, false)) // before it counts as silent
			}
			requireLegalEvents(t, h)
		})
	}
}

// requireOutcome compares the result of a call and what it has changed.
func requireOutcome(t *testing.T, h *harness, verb, want string, before []string, got models.Task, err error) {
	t.Helper()
	switch errs.Code(want) {
	case "=":
		require.NoError(t, err, verb)
		requireUnchanged(t, h, before, verb)
	case errs.TaskState, errs.NotFound:
		require.Equal(t, want, string(errs.CodeOf(err)), verb)
		requireUnchanged(t, h, before, verb)
	default:
		require.NoError(t, err, verb)
		is := string(got.State)
		if got.WaitingFor != models.NotWaiting {
			is += "/" + string(got.WaitingFor)
		}
		require.Equal(t, want, is, verb)
		stored, err := h.Task(t.Context(), got.ID)
		require.NoError(t, err)
		require.Equal(t, stored, got, "%s: what is answered is what is stored", verb)
	}
}

// cancelAll cancels all open tasks.
func (h *harness) cancelAll(t *testing.T) {
	t.Helper()
	all, err := h.Tasks(t.Context(), store.TaskQuery{Limit: 1000})
	require.NoError(t, err)
	for _, task := range all {
		if !task.State.Ended() {
			_, err := h.Cancel(t.Context(), task.ID, "the test goes on", nil)
			require.NoError(t, err)
		}
	}
}

// TestCallsOfAnotherAgent checks that calls about another agent's task have no effect, as if the
// task did not exist.
func TestCallsOfAnotherAgent(t *testing.T) {
	t.Parallel()
	for _, situation := range slices.Sorted(maps.Keys(states())) {
		withHarness(t, situation, func(t *testing.T, h *harness) {
			h.worker(t, "a", 2, "a")
			h.worker(t, "b", 1, "b")
			id := states()[situation](h, t, "a")
			before := allRows(t, h)
			for name, say := range map[string]func() (models.Task, error){
				"Accept": func() (models.Task, error) { return h.Accept(t.Context(), "b", id) },
				"Progress": func() (models.Task, error) {
					return h.Progress(t.Context(), "b", id, orchestrator.Progress{MessageID: "m1", Log: []byte("x")})
				},
				"Succeed": func() (models.Task, error) {
					return h.Complete(t.Context(), "b", id, orchestrator.Result{MessageID: "m2", Tokens: 9})
				},
				"Fail": func() (models.Task, error) {
					return h.Complete(t.Context(), "b", id, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 9})
				},
				"Clarify": func() (models.Task, error) { return h.Clarify(t.Context(), "b", id, orchestrator.Question{Text: "?"}) },
			} {
				_, err := say()
				require.Equal(t, errs.NotFound, errs.CodeOf(err), name)
				require.True(t, errs.Is(err, errs.NotFound))
				requireUnchanged(t, h, before, name)
			}
		})
	}
}

func TestRepeatedMessage(t *testing.T) {
	t.Parallel()

	withHarness(t, "takes effect once", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		for range 3 {
			_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{MessageID: "m1", Log: []byte("line")})
			require.NoError(t, err)
		}
		require.Equal(t, "line", h.output(t, id, models.StreamLog))
		for range 3 {
			task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{MessageID: "m2", Tokens: 5, Failure: orchestrator.FailureResource})
			require.NoError(t, err)
			require.Equal(t, models.WaitForRetry, task.WaitingFor)
			require.Equal(t, 1, task.Attempt)
		}
		requireSound(t, h)
	})

	withHarness(t, "takes effect after a rejection", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Chunk: &orchestrator.Chunk{Start: 2, Data: []byte("cd")}})
		require.NoError(t, err)
		_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{MessageID: "m"})
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), "the first chunk is missing")
		_, err = h.Progress(t.Context(), "a", id, orchestrator.Progress{Chunk: &orchestrator.Chunk{Data: []byte("ab")}})
		require.NoError(t, err)
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{MessageID: "m"})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		require.Equal(t, "abcd", h.output(t, id, models.StreamResult))
	})
}

// output returns the output of a task.
func (h *harness) output(t *testing.T, id string, stream models.OutputStream) string {
	t.Helper()
	task, err := h.Task(t.Context(), id)
	require.NoError(t, err)
	var text []byte
	require.NoError(t, h.Output(t.Context(), task, stream, 0, func(o models.OutputChunk) error { text = append(text, o.Data...); return nil }))
	return string(text)
}

func TestClarification(t *testing.T) {
	t.Parallel()

	withHarness(t, "replies to the agent that asked", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		asked, err := h.Clarify(t.Context(), "a", id, orchestrator.Question{Text: "which?"})
		require.NoError(t, err)
		require.Equal(t, h.DB.Now().Add(time.Minute), asked.Deadline)
		answered, err := h.Reply(t.Context(), id, "this one")
		require.NoError(t, err)
		require.Equal(t, h.DB.Now().Add(30*time.Second), answered.Deadline)
		messages := h.inbox(t, "a")
		require.Len(t, messages, 1)
		require.Equal(t, models.MessageReply, messages[0].Kind)
		require.JSONEq(t, `{"answer":"this one"}`, string(messages[0].Data))
		requireLegalEvents(t, h)
	})

	withHarness(t, "above the limit ends the task", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		var task models.Task
		for range 3 {
			var err error
			task, err = h.Clarify(t.Context(), "a", id, orchestrator.Question{Text: "and now?"})
			require.NoError(t, err)
		}
		require.Equal(t, models.TaskFailed, task.State)
		require.Equal(t, string(orchestrator.FailureQuestions), task.ErrorCode)
		require.Equal(t, 3, task.Questions)
		require.Equal(t, models.MessageCancel, h.inbox(t, "a")[0].Kind, "the agent is notified")
		requireSound(t, h)
		requireLegalEvents(t, h)
	})
}
