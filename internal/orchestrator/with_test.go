package orchestrator_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
)

// TestRowsOfTheCaller proves that Submission.With and Submission.Session commit with the task or
// not at all.
func TestRowsOfTheCaller(t *testing.T) {
	t.Parallel()
	write := func(tx *store.Tx, t *models.Task) error {
		_, err := tx.Exec("INSERT INTO v5_context_tasks (context, number, task_id) VALUES (1, 1, ?)", t.ID)
		return err
	}
	newSession := func(facts string) *orchestrator.NewSession {
		return &orchestrator.NewSession{Facts: json.RawMessage(facts), ID: func(tx *store.Tx) (string, error) {
			_, err := tx.Exec("INSERT INTO v5_contexts (number, session_id, tasks, created_at) VALUES (1, 'talk', 1, 1)")
			return "talk", err
		}}
	}
	count := func(t *testing.T, h *harness, table string) int {
		t.Helper()
		n, err := store.Row[int](h.DB.Reads(t.Context()), "SELECT count(*) FROM "+table)
		require.NoError(t, err)
		return n
	}

	withHarness(t, "they commit with the task and its session", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "read")
		out, err := h.Submit(t.Context(), operator(), orchestrator.Submission{
			Capabilities: []string{"read"}, Parameters: json.RawMessage(`{"lang":"#CTX:lang"}`), Session: newSession(`{"lang":"fr"}`), With: write,
		}, nil)
		require.NoError(t, err)
		require.Equal(t, "talk", out.Task.SessionID)
		session, err := h.Session(t.Context(), "talk")
		require.NoError(t, err)
		require.Equal(t, [2]int{1, 1}, [2]int{session.OpenTasks, session.Tasks})
		order, err := h.TaskWithInput(t.Context(), out.Task.ID)
		require.NoError(t, err)
		require.JSONEq(t, `{"lang":"fr"}`, string(order.Input.Parameters))
		id, err := store.Row[string](h.DB.Reads(t.Context()), "SELECT task_id FROM v5_context_tasks")
		require.NoError(t, err)
		require.Equal(t, out.Task.ID, id)
	})

	withHarness(t, "an error rolls the task and its session back", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "read")
		rejected := errors.New("rejected")
		_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{
			Capabilities: []string{"read"}, Session: newSession(""), With: func(tx *store.Tx, task *models.Task) error { return errors.Join(write(tx, task), rejected) },
		}, nil)
		require.ErrorIs(t, err, rejected)
		for _, table := range []string{"tasks", "sessions", "v5_contexts", "v5_context_tasks", "attempts", "inbox"} {
			require.Zero(t, count(t, h, table), table)
		}
	})

	withHarness(t, "an error leaves nothing, whatever it is", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "read")
		tables := []string{"tasks", "task_inputs", "attempts", "inbox", "events", "jobs", "sessions", "v5_contexts", "idempotency", "usage_reservations", "v5_context_tasks"}
		before := map[string]int{}
		for _, table := range tables {
			before[table] = count(t, h, table)
		}
		rejected := error(errs.New(errs.BudgetExceeded, "rejected")) // as from a budget that the submission does not have
		sub := orchestrator.Submission{Capabilities: []string{"read"}, RequestID: "r-1", Session: newSession("{}"), OnEnd: &orchestrator.EndJob{Kind: "step.ended"}}
		for name, change := range map[string]func(*orchestrator.Submission){
			"one worker":      func(*orchestrator.Submission) {},
			"a budget":        func(sub *orchestrator.Submission) { sub.Budget = new(int64(100)) },
			"several workers": func(sub *orchestrator.Submission) { sub.Override.Workers = 2 },
		} {
			failing := sub
			failing.With = func(tx *store.Tx, task *models.Task) error { return cmp.Or(write(tx, task), rejected) }
			change(&failing)
			out, err := h.Submit(t.Context(), operator(), failing, &models.Idempotency{Principal: "ops", Key: "once"})
			require.ErrorIs(t, err, rejected, name)
			require.False(t, out.Replayed, name)
			for _, table := range tables {
				require.Equal(t, before[table], count(t, h, table), "%s: %s", name, table)
			}
			w, err := h.Worker(t.Context(), "w-1")
			require.NoError(t, err)
			require.Zero(t, w.InFlight, name)
			require.Zero(t, h.CachedWorker("w-1").InFlight, name)
		}
		again, err := h.Submit(t.Context(), operator(), sub, nil) // the request id is free
		require.NoError(t, err)
		require.False(t, again.Replayed)
	})

	withHarness(t, "a job that tasks share follows the last end", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 2, "read")
		shared := &orchestrator.EndJob{Kind: "step.ended", Key: "flow"}
		claim := func() (out []store.Job) {
			require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) (err error) {
				out, err = tx.Jobs().Claim([]string{shared.Kind}, 10, time.Hour)
				return err
			}))
			return out
		}
		finish := func(j store.Job) error {
			return h.DB.Write(t.Context(), func(tx *store.Tx) error { return tx.Jobs().Finish(j) })
		}
		share := func(sub *orchestrator.Submission) { sub.OnEnd = shared }
		first, second, third := h.submit(t, "read", share), h.submit(t, "read", share), h.submit(t, "read", share)
		end := func(task models.Task) {
			_, err := h.Cancel(t.Context(), task.ID, "no longer needed", nil)
			require.NoError(t, err)
		}
		end(first)
		running := claim()
		require.Len(t, running, 1)
		require.Equal(t, "flow", running[0].Key)
		end(second) // while the job of the first end runs, which may not see it
		end(third)
		require.ErrorIs(t, finish(running[0]), store.ErrLeaseLost)
		running = claim()
		require.Len(t, running, 1, "it runs once more, for both")
		require.NoError(t, finish(running[0]))
		require.Empty(t, claim())
	})

	withHarness(t, "the kind of the job is a name of the caller's own", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "read")
		for _, kind := range []string{"", "step/ended", "task.subtask"} {
			_, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"read"}, OnEnd: &orchestrator.EndJob{Kind: kind, Key: "flow"}}, nil)
			require.True(t, errs.Is(err, errs.InvalidRequest), "%q: %v", kind, err)
			require.ErrorContains(t, err, "the kind of the job", kind)
		}
		require.Zero(t, count(t, h, "tasks"))
	})

	withHarness(t, "a job follows the end", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 2, "read")
		for name, c := range map[string]struct {
			job *orchestrator.EndJob
			key string // "" for the id of the task
		}{"a key of its own": {&orchestrator.EndJob{Kind: "step.ended", Key: "flow/step"}, "flow/step"}, "the id of the task": {&orchestrator.EndJob{Kind: "other.ended"}, ""}} {
			out, err := h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"read"}, OnEnd: c.job}, nil)
			require.NoError(t, err, name)
			count := func() int {
				n, err := store.Row[int](h.DB.Reads(t.Context()), "SELECT count(*) FROM jobs WHERE kind = ? AND key = ?", c.job.Kind, cmp.Or(c.key, out.Task.ID))
				require.NoError(t, err)
				return n
			}
			require.Zero(t, count(), name)
			_, err = h.Cancel(t.Context(), out.Task.ID, "no longer needed", nil)
			require.NoError(t, err, name)
			require.Equal(t, 1, count(), name)
		}
	})

	withHarness(t, "a repeated request writes none", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 1, "read")
		calls := 0
		sub := orchestrator.Submission{Capabilities: []string{"read"}, RequestID: "r-1", With: func(*store.Tx, *models.Task) error { calls++; return nil }}
		first, err := h.Submit(t.Context(), operator(), sub, nil)
		require.NoError(t, err)
		again, err := h.Submit(t.Context(), operator(), sub, nil)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, first.Task.ID, again.Task.ID)
		require.Equal(t, 1, calls)
	})

	withHarness(t, "a new session has facts and no earlier tasks to refer to", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 2, "read")
		earlier := h.submit(t, "read", nil)
		_, err := h.Complete(t.Context(), "w-1", earlier.ID, orchestrator.Result{Output: []byte("x")})
		require.NoError(t, err)
		for facts, parameters := range map[string]string{`{}`: `{"x":"#REF:` + earlier.ID + `"}`, `{"a":1}`: `{"x":"#CTX:b"}`} {
			_, err = h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"read"}, Parameters: json.RawMessage(parameters), Session: newSession(facts)}, nil)
			require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
		}
		_, err = h.Submit(t.Context(), operator(), orchestrator.Submission{Capabilities: []string{"read"}, Session: newSession(`[]`)}, nil)
		require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
		require.Zero(t, count(t, h, "sessions"))
	})
}
