package orchestrator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
)

// timedOut lets the first attempt of a task, by "a", time out; "b" gets the next one.
func timedOut(t *testing.T, h *harness, change func(*orchestrator.Submission)) string {
	t.Helper()
	h.worker(t, "a", 1, "work")
	id := h.submit(t, "work", change).ID
	_, err := h.Accept(t.Context(), "a", id)
	require.NoError(t, err)
	h.worker(t, "b", 1, "work") // it was never used, so it comes first
	h.advanceUntil(t, id, 30*time.Second, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
	h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID == "b" })
	require.Equal(t, []string{models.MessageCancel}, h.inboxKinds(t, "a"))
	return id
}

// advanceUntil moves the clock and waits for the effect on a task. Workers send heartbeats.
func (h *harness) advanceUntil(t *testing.T, id string, d time.Duration, right func(models.Task) bool) models.Task {
	t.Helper()
	h.DB.Clock.Advance(d)
	out := h.WaitForTask(t, id, right)
	all, err := h.DB.Workers(t.Context()).ChangedSince(time.Time{})
	require.NoError(t, err)
	for _, w := range all {
		_, err := h.KeepAlive(t.Context(), []string{w.AgentID})
		require.NoError(t, err)
	}
	return out
}

// inboxKinds returns the kinds of the messages in an agent's inbox.
func (h *harness) inboxKinds(t *testing.T, agentID string) (kinds []string) {
	t.Helper()
	for _, m := range h.inbox(t, agentID) {
		kinds = append(kinds, m.Kind)
	}
	return kinds
}

func (h *harness) usage(t *testing.T, agentID string) (used, reserved int64) {
	t.Helper()
	u, err := h.Ledger.Usage(t.Context(), agentID)
	require.NoError(t, err)
	return u.UsedToday, u.Reserved
}

// requireUsed checks what an agent has used, and that nothing is reserved.
func requireUsed(t *testing.T, h *harness, agentID string, want int64) {
	t.Helper()
	used, reserved := h.usage(t, agentID)
	require.Equal(t, want, used, agentID)
	require.Zero(t, reserved, agentID)
}

func TestLateResult(t *testing.T) {
	t.Parallel()

	for name, meanwhile := range map[string]func(t *testing.T, h *harness, id string){
		"while another agent has the task": func(*testing.T, *harness, string) {},
		"while another agent works": func(t *testing.T, h *harness, id string) {
			_, err := h.Progress(t.Context(), "b", id, orchestrator.Progress{Log: []byte("b's log"), Chunk: &orchestrator.Chunk{Data: []byte("b's result")}})
			require.NoError(t, err)
		},
		"while another agent asks": func(t *testing.T, h *harness, id string) {
			_, err := h.Clarify(t.Context(), "b", id, orchestrator.Question{Text: "?"})
			require.NoError(t, err)
		},
	} {
		withHarness(t, name+"EndsItOnce", func(t *testing.T, h *harness) {
			id := timedOut(t, h, func(s *orchestrator.Submission) { s.Budget = new(int64(1000)) })
			meanwhile(t, h, id)
			result := orchestrator.Result{Output: []byte("a's result"), Tokens: 70}
			task, err := h.Complete(t.Context(), "a", id, result)
			require.NoError(t, err)
			require.Equal(t, models.TaskDone, task.State)
			require.Equal(t, "a", task.AgentID)
			require.EqualValues(t, 70, task.Tokens)
			require.Equal(t, "a's result", h.output(t, id, models.StreamResult))
			require.Empty(t, h.output(t, id, models.StreamLog), "not the log of the other attempt")
			require.Equal(t, []string{models.MessageCancel}, h.inboxKinds(t, "b"), "the other attempt is cancelled")
			requireSound(t, h)

			for range 2 { // repeated, and by the other agent
				again, err := h.Complete(t.Context(), "a", id, result)
				require.NoError(t, err)
				require.Equal(t, task, again)
				task.Tokens = 81
				_, err = h.Complete(t.Context(), "b", id, orchestrator.Result{Tokens: 11})
				require.Equal(t, errs.TaskState, errs.CodeOf(err))
			}
			requireUsed(t, h, "a", 70)
			requireUsed(t, h, "b", 11)
			detail, err := h.Detail(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, models.AttemptSucceeded, detail.Attempts[0].State)
			require.Equal(t, models.AttemptCancelled, detail.Attempts[1].State)
			require.Equal(t, "a's result", h.output(t, id, models.StreamResult))
			requireSound(t, h)
			requireLegalEvents(t, h)
		})
	}

	withHarness(t, "that is a failure does not end a newer attempt of the same agent", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		h.advanceUntil(t, id, 30*time.Second, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
		h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.Attempt == 2 && t.AgentID == "a" })
		for range 2 { // the second time it is repeated
			task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureUnavailable, Attempt: 1, Tokens: 5})
			require.NoError(t, err)
			require.Equal(t, 2, task.Attempt)
			require.Equal(t, models.NotWaiting, task.WaitingFor)
			requireUsed(t, h, "a", 5)
		}
		_, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Attempt: 3})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Attempt: 2})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		requireSound(t, h)
	})

	withHarness(t, "ends a queued task", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		h.advanceUntil(t, id, 30*time.Second, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
		other := h.submit(t, "work", nil)
		h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.WaitingFor == models.WaitForWorker })
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 3})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		requireUsed(t, h, "a", 3)
		_, err = h.Complete(t.Context(), "a", other.ID, orchestrator.Result{})
		require.NoError(t, err)
		requireSound(t, h)
		requireLegalEvents(t, h)
	})

	withHarness(t, "in chunks of its own attempt", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		_, err := h.Progress(t.Context(), "a", id, orchestrator.Progress{Log: []byte("a's log"), Chunk: &orchestrator.Chunk{Total: 10, Data: []byte("a's result")}})
		require.NoError(t, err)
		h.worker(t, "b", 1, "work")
		h.advanceUntil(t, id, 30*time.Second, func(t models.Task) bool { return t.WaitingFor == models.WaitForRetry })
		h.advanceUntil(t, id, time.Second, func(t models.Task) bool { return t.AgentID == "b" })
		_, err = h.Progress(t.Context(), "b", id, orchestrator.Progress{Log: []byte("b's"), Chunk: &orchestrator.Chunk{Data: []byte("other")}})
		require.NoError(t, err)
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{})
		require.NoError(t, err)
		require.EqualValues(t, 10, task.OutputBytes)
		require.EqualValues(t, 7, task.LogBytes)
		require.Equal(t, "a's result", h.output(t, id, models.StreamResult))
		require.Equal(t, "a's log", h.output(t, id, models.StreamLog))
	})

	withHarness(t, "failure is only charged", func(t *testing.T, h *harness) {
		id := timedOut(t, h, func(s *orchestrator.Submission) { s.Budget = new(int64(1000)) })
		for range 2 {
			task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Failure: orchestrator.FailureWork, Tokens: 40})
			require.NoError(t, err)
			require.Equal(t, "b", task.AgentID)
			require.EqualValues(t, 40, task.Tokens, "it counts against the task's budget")
		}
		task, err := h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 50})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State, "a success replaces the failure")
		require.EqualValues(t, 40, task.Tokens, "an attempt is charged once")
		requireUsed(t, h, "a", 40)
		requireSound(t, h)
	})

	withHarness(t, "is charged after a cancellation", func(t *testing.T, h *harness) {
		id := timedOut(t, h, nil)
		_, err := h.Cancel(t.Context(), id, "not needed", nil)
		require.NoError(t, err)
		for range 2 {
			_, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 5})
			require.Equal(t, errs.TaskState, errs.CodeOf(err))
		}
		requireUsed(t, h, "a", 5)
		requireSound(t, h)
	})

	withHarness(t, "of an agent that has left is accepted", func(t *testing.T, h *harness) {
		h.worker(t, "a", 1, "work")
		id := h.submit(t, "work", nil).ID
		require.NoError(t, h.Leave(t.Context(), "a", true))
		task, err := h.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, models.WaitForRetry, task.WaitingFor)
		task, err = h.Complete(t.Context(), "a", id, orchestrator.Result{Tokens: 5})
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)
		requireUsed(t, h, "a", 5)
		requireSound(t, h)
	})
}

func TestRepeatedSubmission(t *testing.T) {
	t.Parallel()

	withHarness(t, "finds its task while the first one runs", func(t *testing.T, h *harness) {
		const callers = 8
		h.worker(t, "a", 1, "work")
		type answer struct {
			orchestrator.SubmitResult
			err error
		}
		answers := make(chan answer, callers)
		for range callers {
			go func() {
				out, err := h.Submit(t.Context(), operator(), orchestrator.Submission{RequestID: "r", Capabilities: []string{"work"}}, nil)
				answers <- answer{out, err}
			}()
		}
		made := map[string]bool{}
		replayed := 0
		for range callers {
			a := <-answers
			require.NoError(t, a.err)
			if made[a.Task.ID] = true; a.Replayed {
				replayed++
			}
		}
		require.Len(t, made, 1)
		require.Equal(t, callers-1, replayed)
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{RequestID: "r", Capabilities: []string{"work"}, Priority: 2}, nil)
		require.Equal(t, errs.RequestIDReused, errs.CodeOf(err))
		other := models.Principal{TokenID: "another", Scopes: []models.Scope{models.ScopeAdmin}}
		out, err := h.Submit(t.Context(), other, orchestrator.Submission{RequestID: "r", Capabilities: []string{"work"}}, nil)
		require.NoError(t, err)
		require.False(t, out.Replayed, "another owner has other request ids")
		requireSound(t, h)
	})

	withHarness(t, "may follow a rejected one", func(t *testing.T, h *harness) {
		sub := orchestrator.Submission{RequestID: "r", ID: "mine", Capabilities: []string{"work"}}
		before := allRows(t, h)
		_, err := h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.UnsupportedWork, errs.CodeOf(err))
		requireUnchanged(t, h, before, "Submit")
		h.worker(t, "a", 2, "work")
		out, err := h.Submit(t.Context(), operator(), sub, nil)
		require.NoError(t, err)
		require.False(t, out.Replayed)
		sub.RequestID = "another"
		before = allRows(t, h)
		_, err = h.Submit(t.Context(), operator(), sub, nil)
		require.Equal(t, errs.TaskExists, errs.CodeOf(err))
		requireUnchanged(t, h, before, "Submit")
	})

	withHarness(t, "returns the stored response of its key", func(t *testing.T, h *harness) {
		h.worker(t, "a", 5, "work")
		submit := func(hash byte) (orchestrator.SubmitResult, *models.Idempotency, error) {
			once := &models.Idempotency{Principal: "ops", Key: "k", RequestHash: [32]byte{hash}, Render: func(result any) (models.StoredResponse, error) {
				return models.StoredResponse{Status: 201, Body: []byte(result.(orchestrator.SubmitResult).Task.ID)}, nil
			}}
			out, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"work"}}, once)
			return out, once, err
		}
		first, once, err := submit(1)
		require.NoError(t, err)
		require.Nil(t, once.Replay)
		_, once, err = submit(1)
		require.NoError(t, err)
		require.Equal(t, first.Task.ID, string(once.Replay.Body))
		_, _, err = submit(2)
		require.Equal(t, errs.IdempotencyKeyReused, errs.CodeOf(err))
		all, err := h.Tasks(t.Context(), store.TaskQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, all, 1)
	})
}
