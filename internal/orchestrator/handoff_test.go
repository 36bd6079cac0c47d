package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// TestHandOff covers PROTOCOL_V5 §5.3 and §5.4.
func TestHandOff(t *testing.T) {
	t.Parallel()

	withHarness(t, "makes a deeper subtask with part of the budget", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 4, "code_write")
		h.worker(t, "w-2", 4, "generate_tests")
		budget, made := int64(1000), int64(500)
		task := h.submit(t, "code_write", func(s *orchestrator.Submission) { s.Budget = &budget })
		_, err := h.HandOff(t.Context(), operator(), "w-2", task.ID, orchestrator.Submission{Capabilities: []string{"generate_tests"}})
		require.True(t, errs.Is(err, errs.NotFound), "w-2 does not have the task: %v", err)
		out, err := h.HandOff(t.Context(), operator(), "w-1", task.ID, orchestrator.Submission{Capabilities: []string{"generate_tests"}, Budget: &made})
		require.NoError(t, err)
		require.Equal(t, 1, out.Task.Depth)
		require.Equal(t, task.ID, *out.Task.ParentID)
		require.Equal(t, "w-2", out.Task.AgentID)
		source, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, int64(500), *source.Budget)
		require.Equal(t, models.TaskRunning, source.State)
		_, err = h.HandOff(t.Context(), operator(), "w-1", task.ID, orchestrator.Submission{Capabilities: []string{"generate_tests"}, Budget: &made})
		require.True(t, errs.Is(err, errs.BudgetExceeded), "%v", err)

		_, err = h.Complete(t.Context(), "w-2", out.Task.ID, orchestrator.Result{Tokens: 200, Output: []byte("ok")})
		require.NoError(t, err)
		messages := h.inbox(t, "w-1")
		require.Len(t, messages, 1)
		require.Equal(t, models.MessageTaskEnded, messages[0].Kind)
		require.Equal(t, out.Task.ID, messages[0].TaskID)
		_, err = h.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{Tokens: 300})
		require.NoError(t, err)
	})

	withHarness(t, "rejects a depth above the limit", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 100, "code_write")
		id := h.submit(t, "code_write", nil).ID
		for depth := 1; ; depth++ {
			out, err := h.HandOff(t.Context(), operator(), "w-1", id, orchestrator.Submission{Capabilities: []string{"code_write"}})
			if depth == 4 {
				require.True(t, errs.Is(err, errs.LimitReached), "%v", err)
				break
			}
			require.NoError(t, err)
			require.Equal(t, depth, out.Task.Depth)
			id = out.Task.ID
		}
	})

	withHarness(t, "cancels subtasks with their parent", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 100, "code_write")
		task := h.submit(t, "code_write", nil)
		made, err := h.HandOff(t.Context(), operator(), "w-1", task.ID, orchestrator.Submission{Capabilities: []string{"code_write"}})
		require.NoError(t, err)
		_, err = h.Cancel(t.Context(), task.ID, "enough", nil)
		require.NoError(t, err)
		got, err := h.Task(t.Context(), made.Task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskCancelled, got.State)
	})
}

// TestReferences covers PROTOCOL_V5 §6.3.
func TestReferences(t *testing.T) {
	t.Parallel()
	withHarness(t, "resolve to values of the session", func(t *testing.T, h *harness) {
		h.worker(t, "w-1", 100, "code_write")
		session, err := h.OpenSession(t.Context(), operator(), "", []byte(`{"lang":{"name":"go"}}`))
		require.NoError(t, err)
		in := func(s *orchestrator.Submission) { s.SessionID = session.ID }
		first := h.submit(t, "code_write", in)
		refer := func(text string) (models.TaskInput, error) {
			out, err := h.Submit(t.Context(), operator(), orchestrator.Submission{
				Capabilities: []string{"code_write"}, SessionID: session.ID, Parameters: []byte(text),
			}, nil)
			if err != nil {
				return models.TaskInput{}, err
			}
			d, err := h.Detail(t.Context(), out.Task.ID)
			require.NoError(t, err)
			return d.Input, nil
		}
		_, err = refer(`{"src":"#REF:` + first.ID + `"}`)
		require.True(t, errs.Is(err, errs.TaskState), "it has not ended: %v", err)
		_, err = h.Complete(t.Context(), "w-1", first.ID, orchestrator.Result{Output: []byte(`{"files":["a.go"],"n":12345678901234567890}`), Tokens: 7})
		require.NoError(t, err)

		got, err := refer(`{"#REF:x":1,"all":["#REF:` + first.ID + `:S"],"files":"#REF:` + first.ID + `:files","n":"#REF:` + first.ID +
			`:n","state":"#REF:` + first.ID + `:state","lang":"#CTX:lang.name","text":"see #REF:x"}`)
		require.NoError(t, err)
		require.Equal(t, `{"#REF:x":1,"all":["{\"files\":[\"a.go\"],\"n\":12345678901234567890}"],"files":["a.go"],"n":12345678901234567890,"state":"done","lang":"go","text":"see #REF:x"}`,
			string(got.Parameters))

		for _, text := range []string{`{"a":"#CTX:nothing"}`, `{"a":"#REF:nothing"}`, `{"a":"#REF:` + first.ID + `:nothing"}`} {
			_, err = refer(text)
			require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
			require.Equal(t, "/parameters/a", errs.From(err).Fields[0].Pointer)
		}
	})
}
