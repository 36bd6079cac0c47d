package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
)

// statsBody is an answer of GET /api/v1/stats.
type statsBody struct {
	Window   string
	From, To time.Time
	Step     int `json:"step_seconds"`
	Now      map[string]int64
	Totals   map[string]float64
	Series   []map[string]any
}

// stats reads the statistics with a token.
func (h *fixture) stats(t testing.TB, secret, query string) (s statsBody) {
	t.Helper()
	h.do(t, "GET", "/api/v1/stats"+query, "", "Authorization", "Bearer "+secret).decode(t, http.StatusOK, &s)
	return s
}

// addCall stores a tool call that ended now.
func (h *fixture) addCall(t testing.TB, number int, token, outcome string, took time.Duration) {
	t.Helper()
	began := h.db.Now().Add(-took) // it ends now
	id := fmt.Sprintf("%012x", began.UnixMilli())
	id = id[:8] + "-" + id[8:] + fmt.Sprintf("-7000-8000-%012x", number)
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.Tools().AddCalls([]models.ToolCall{{ID: id, At: began, Source: "rest", TokenID: token, Actor: "test", Server: "fs", Tool: "read", Outcome: outcome, Duration: took}})
	}))
}

// bound issues a token of an agent and returns its secret.
func (h *fixture) bound(t testing.TB, agent string, scopes ...models.Scope) string {
	t.Helper()
	issued, err := h.auth.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("bound"), Scopes: scopes, AgentID: &agent}, nil)
	require.NoError(t, err)
	return issued.Secret
}

// TestStats executes three tasks in two seconds, charges tokens and stores tool calls.
func TestStats(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "Figures", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		var ids []string
		for range 3 {
			var task struct{ ID string }
			h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"],"retries":0,"timeout_ms":600000}`).decode(t, http.StatusAccepted, &task)
			ids = append(ids, task.ID)
		}
		require.Eventually(t, func() bool {
			inbox, err := h.orchestrator.Messages(t.Context(), "reader", 10)
			return err == nil && len(inbox) == 3
		}, time.Minute, 5*time.Millisecond)
		running := h.stats(t, h.admin, "")
		require.Equal(t, []int64{3, 0, 1}, []int64{running.Now["tasks_running"], running.Now["tasks_queued"], running.Now["workers_online"]})
		require.InDelta(t, 3, running.Totals["tasks_created"], 0)

		h.db.Clock.Advance(2 * time.Second)
		_, err := h.orchestrator.Complete(t.Context(), "reader", ids[0], orchestrator.Result{Output: []byte("x"), ExitCode: new(0)})
		require.NoError(t, err)
		_, err = h.orchestrator.Complete(t.Context(), "reader", ids[1], orchestrator.Result{Failure: orchestrator.FailureInvalid, Text: "x", ExitCode: new(1)})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/tasks/"+ids[2]+"/cancel", "").status)
		for _, id := range ids {
			h.waitForEnd(t, id)
		}
		for agent, tokens := range map[string]int{"reader": 40, "orch-scholar": 2} {
			require.Equal(t, http.StatusCreated, h.do(t, "POST", "/api/v1/agents/"+agent+"/usage", fmt.Sprintf(`{"tokens":%d}`, tokens)).status)
		}
		for i := range 10 {
			h.addCall(t, i, "a-token", []string{"success", "error"}[i/9], time.Duration(i+1)*time.Millisecond)
		}
		got := h.stats(t, h.admin, "?window=1h")
		require.Equal(t, map[string]float64{
			"tasks_created": 3, "tasks_completed": 1, "tasks_failed": 1, "tasks_cancelled": 1, "tasks_p50_ms": 2000, "tasks_p95_ms": 2000,
			"tool_calls": 10, "tool_failures": 1, "calls_p50_ms": 5, "calls_p95_ms": 10, "tokens": 42,
		}, got.Totals)
		require.Equal(t, []any{0, 60, 60, "1h"}, []any{int(got.Now["tasks_running"]), got.Step, len(got.Series), got.Window})
		for i, step := range got.Series {
			require.Equal(t, got.From.Add(time.Duration(i)*time.Minute).Format(time.RFC3339), step["at"])
			require.InDelta(t, map[bool]int{true: 42}[i == 59], step["tokens"], 0, "steps without work are present")
		}

		h.checkStatsOfTokens(t)
		for window, steps := range map[string]int{"24h": 24, "7d": 168} {
			long := h.stats(t, h.admin, "?window="+window)
			require.Len(t, long.Series, steps)
			require.Equal(t, got.Totals, long.Totals, window)
		}
		h.db.Clock.Advance(30 * time.Minute)
		later := h.stats(t, h.admin, "")
		require.Equal(t, got.Totals, later.Totals, "kept steps and new ones")
		h.db.Clock.Advance(31 * time.Minute)
		require.InDelta(t, 0, h.stats(t, h.admin, "").Totals["tool_calls"], 0)
		before := h.stats(t, h.token(t, models.ScopeTasksRead), "")
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", "/api/v1/tasks", `{"capabilities":["read"]}`).status)
		require.Equal(t, before, h.stats(t, h.token(t, models.ScopeTasksRead), ""), "tokens with the same rights share a result")
		h.do(t, "GET", "/api/v1/stats?window=2h", "").problem(t, http.StatusBadRequest, errs.InvalidParameter)
	})
}

// checkStatsOfTokens checks that a token sees only what its scopes and its agent allow.
func (h *fixture) checkStatsOfTokens(t *testing.T) {
	t.Helper()
	names := func(s statsBody) string {
		var all []string
		for name := range s.Totals {
			all = append(all, name)
		}
		for name := range s.Now {
			all = append(all, name)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	require.Equal(t, "agents tokens", names(h.stats(t, h.token(t, models.ScopeAgentsRead), "")))
	require.Equal(t, "tasks_cancelled tasks_completed tasks_created tasks_failed tasks_p50_ms tasks_p95_ms tasks_queued tasks_running tasks_waiting_for_reply workers_busy workers_offline workers_online",
		names(h.stats(t, h.token(t, models.ScopeTasksRead), "")))
	calls := h.stats(t, h.token(t, models.ScopeToolsCall), "")
	require.Equal(t, "tool_calls tool_failures workflows_paused workflows_running", names(calls))
	require.InDelta(t, 0, calls.Totals["tool_calls"], 0, "the calls of another token")
	h.do(t, "GET", "/api/v1/stats", "", "Authorization", "Bearer "+h.token(t, models.ScopeMessagesSend)).problem(t, http.StatusForbidden, errs.MissingScope)

	own := h.stats(t, h.bound(t, "orch-personnel", models.ScopeAgentsRead, models.ScopeTasksRead), "")
	require.Equal(t, []float64{40, 3}, []float64{own.Totals["tokens"], own.Totals["tasks_created"]}, "reader is below orch-personnel")
	require.EqualValues(t, 2, own.Now["agents"])
	other := h.stats(t, h.bound(t, "orch-scholar", models.ScopeAgentsRead, models.ScopeTasksRead), "")
	require.Equal(t, []float64{2, 0}, []float64{other.Totals["tokens"], other.Totals["tasks_created"]})
	require.EqualValues(t, 0, other.Now["workers_online"])
}
