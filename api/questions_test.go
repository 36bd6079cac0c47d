package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
)

// TestSessionQuestions goes through them and holds every answer against the
// description (PROTOCOL_V5 §7.2).
func TestSessionQuestions(t *testing.T) {
	t.Parallel()
	const questions, replies = "/api/v1/sessions/{session_id}/questions", "/api/v1/sessions/{session_id}/reply"
	d := newTaskServer(t)
	d.ask(t, "POST", "/api/v1/sessions", "/api/v1/sessions", `{"id":"s"}`, 201)
	open := func() []any {
		t.Helper()
		return d.ask(t, "GET", questions, "/api/v1/sessions/s/questions", "", 200)["questions"].([]any)
	}
	say := func(body string, status int) map[string]any {
		t.Helper()
		return d.ask(t, "POST", replies, "/api/v1/sessions/s/reply", body, status)
	}
	asks := func(text string, options ...string) string {
		t.Helper()
		id := d.ask(t, "POST", "/api/v1/tasks", "/api/v1/tasks", `{"capabilities":["read"],"session_id":"s"}`, 202)["id"].(string)
		_, err := d.core.Orchestrator.Clarify(t.Context(), "reader", id, orchestrator.Question{Text: text, Options: options})
		require.NoError(t, err)
		return id
	}
	require.Empty(t, open())
	say(`{"reply":"x"}`, http.StatusConflict)

	first := asks("which year?", "2025", "2026")
	all := open()
	require.Len(t, all, 1)
	q := all[0].(map[string]any)
	require.Equal(t, first, q["task_id"])
	require.Equal(t, "reader", q["agent_id"])
	require.Equal(t, "which year?", q["text"])
	require.Equal(t, []any{"2025", "2026"}, q["options"])
	require.NotEmpty(t, q["asked_at"])
	require.NotEmpty(t, q["deadline"])

	second := asks("and why?")
	require.Len(t, open(), 2)
	say(`{"reply":"x"}`, http.StatusBadRequest)                       // whose?
	say(`{"task_id":"none","reply":"x"}`, http.StatusConflict)        // no such task
	say(`{"task_id":"`+first+`","choice":3}`, http.StatusBadRequest)  // there are two
	say(`{"task_id":"`+second+`","choice":1}`, http.StatusBadRequest) // there are none
	say(`{"task_id":"`+first+`"}`, http.StatusBadRequest)
	say(`{"task_id":"`+first+`","choice":1,"reply":"x"}`, http.StatusBadRequest)
	require.Len(t, open(), 2, "nothing was answered by mistake")

	task := say(`{"task_id":"`+first+`","choice":2}`, http.StatusOK)
	require.Equal(t, first, task["id"])
	told, err := d.core.Orchestrator.Messages(t.Context(), "reader", 10)
	require.NoError(t, err)
	require.JSONEq(t, `{"answer":"2026"}`, string(told[len(told)-1].Data))
	say(`{"reply":"because"}`, http.StatusOK) // the only one that is left
	require.Empty(t, open())

	d.ask(t, "GET", questions, "/api/v1/sessions/none/questions", "", 404)
	d.ask(t, "POST", replies, "/api/v1/sessions/none/reply", `{"reply":"x"}`, 404)
}
