package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
)

// historyBody is an answer of GET /api/v1/events/history.
type historyBody struct {
	Events []struct {
		Position int64
		Type     models.EventType
		Key      string
	}
	Newest     int64 `json:"newest_position"`
	Oldest     int64 `json:"oldest_position"`
	NextBefore int64 `json:"next_before"`
	NextAfter  int64 `json:"next_after"`
}

func (b historyBody) positions() (out []int64) {
	for _, e := range b.Events {
		out = append(out, e.Position)
	}
	return out
}

// history reads a page of past events with a token.
func (h *fixture) history(t testing.TB, secret, query string, args ...any) (b historyBody) {
	t.Helper()
	h.do(t, "GET", stream+"/history?"+fmt.Sprintf(query, args...), "", "Authorization", "Bearer "+secret).decode(t, http.StatusOK, &b)
	return b
}

// emit emits events and waits for their positions.
func (h *fixture) emit(t testing.TB, n int, kind models.EventType, key string, data any) (last int64) {
	t.Helper()
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		for range n {
			if err := tx.Events().Emit(kind, key, data); err != nil {
				return err
			}
		}
		return nil
	}))
	return h.lastPosition(t)
}

// TestEventHistory reads past events in both directions with the filters and rights of the stream.
func TestEventHistory(t *testing.T) {
	t.Parallel()
	runStreamTest(t, "Pages", fixtureOptions{}, func(t *testing.T, h *fixture) {
		begin := h.lastPosition(t)
		for i := range 5 {
			h.emit(t, 1, events.TaskCreated, fmt.Sprint("task-", i), events.TaskData{TaskID: fmt.Sprint("task-", i), AgentID: "orch-scholar"})
			h.emit(t, 1, events.AgentUpdated, "orch-personnel", map[string]any{"agent_id": "orch-personnel"})
		}
		newest := h.history(t, h.admin, "limit=4")
		require.Equal(t, []int64{begin + 7, begin + 8, begin + 9, begin + 10}, newest.positions())
		require.Equal(t, []int64{begin + 10, 1, begin + 7, 0}, []int64{newest.Newest, newest.Oldest, newest.NextBefore, newest.NextAfter})

		var backward []int64 // all pages of tasks, from the end
		for before := begin + 11; before != 0; {
			page := h.history(t, h.admin, "types=task.created&limit=2&before=%d", before)
			backward = append(page.positions(), backward...)
			before = page.NextBefore
		}
		require.Equal(t, []int64{begin + 1, begin + 3, begin + 5, begin + 7, begin + 9}, backward)
		var forward []int64
		for after, more := begin, true; more; {
			page := h.history(t, h.admin, "types=task.created&limit=2&after=%d", after)
			forward = append(forward, page.positions()...)
			after, more = page.NextAfter, page.NextAfter != 0
		}
		require.Equal(t, backward, forward)

		require.Equal(t, []int64{begin + 5}, h.history(t, h.admin, "task_id=task-2").positions())
		require.Equal(t, backward, h.history(t, h.admin, "agent_id=orch-scholar&after=%d", begin).positions())
		require.Empty(t, h.history(t, h.admin, "workflow_id=wf_1").positions())
		require.Empty(t, h.history(t, h.admin, "after=%d", begin+10).positions())
		require.Empty(t, h.history(t, h.admin, "before=1").positions())

		for _, e := range h.history(t, h.token(t, models.ScopeTasksRead), "after=0").Events {
			require.Equal(t, events.TaskCreated, e.Type)
		}
		bound := h.history(t, h.bound(t, "orch-personnel", models.ScopeTasksRead, models.ScopeAgentsRead), "after=%d", begin)
		require.Len(t, bound.Events, 5, "events of its own agents")
		require.False(t, slices.ContainsFunc(bound.positions(), func(p int64) bool { return slices.Contains(backward, p) }))
		for _, query := range []string{"before=0", "after=-1", "before=2&after=1", "types=task.none", "limit=1001", "format=v5"} {
			h.do(t, "GET", stream+"/history?"+query, "").problem(t, http.StatusBadRequest, errs.InvalidParameter)
		}
		h.do(t, "GET", stream+"/history?types=token.created", "", "Authorization", "Bearer "+h.token(t, models.ScopeTasksRead)).problem(t, http.StatusForbidden, errs.MissingScope)
		for _, types := range []string{"workflow.paused", "workflow.*"} {
			p := h.do(t, "GET", stream+"/history?types="+types, "", "Authorization", "Bearer "+h.token(t, models.ScopeTasksRead)).problem(t, http.StatusForbidden, errs.MissingScope)
			require.Contains(t, p.Detail, `lacks the scope "tools:call" or "workflows:approve"`, types)
		}

		h.db.Clock.Advance(2 * time.Hour)
		h.renameAgent(t, "orch-scholar", "later")
		last := h.lastPosition(t)
		require.NoError(t, events.Purge(h.db.Store, time.Hour)(t.Context()))
		left := h.history(t, h.admin, "after=0")
		require.Equal(t, []any{[]int64{last}, last, last}, []any{left.positions(), left.Oldest, left.Newest})
		require.Zero(t, h.history(t, h.admin, "limit=1").NextBefore)
	})

	runStreamTest(t, "LimitsWhatARequestScans", fixtureOptions{}, func(t *testing.T, h *fixture) {
		begin := h.lastPosition(t)
		first := h.emit(t, 1, events.TaskCreated, "rare", events.TaskData{TaskID: "rare"})
		last := h.emit(t, 12_000, events.BreakerOpened, "nova", map[string]any{"agent_id": "nova"})
		page := h.history(t, h.admin, "task_id=rare")
		require.Empty(t, page.Events)
		require.Equal(t, last+1-10_000, page.NextBefore)
		page = h.history(t, h.admin, "task_id=rare&before=%d", page.NextBefore)
		require.Equal(t, []int64{first}, page.positions())
		require.Zero(t, page.NextBefore)

		rare := h.emit(t, 1, events.TaskCreated, "rare2", events.TaskData{TaskID: "rare2"})
		page = h.history(t, h.admin, "task_id=rare2&after=%d", begin)
		require.Empty(t, page.Events)
		require.Equal(t, begin+10_000, page.NextAfter)
		page = h.history(t, h.admin, "task_id=rare2&after=%d", page.NextAfter)
		require.Equal(t, []int64{rare}, page.positions())
		require.Zero(t, page.NextAfter)
	})
}
