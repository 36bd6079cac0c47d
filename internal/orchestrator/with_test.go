package orchestrator_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"testing"

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
