package selection_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// TestByScoreOrder covers step 4 of PROTOCOL_V5 §5.1: score descending, then load ascending, then
// last used ascending; then by id, which the document leaves open.
func TestByScoreOrder(t *testing.T) {
	t.Parallel()
	agent := func(id string, load int, used time.Time, capabilities ...string) selection.Agent {
		return with(onlineAgent(id, capabilities...), func(a *selection.Agent) { a.Worker.Load, a.Worker.LastAssignedAt = load, used })
	}
	x := indexOf(
		agent("f", 0, time.Time{}, "web_search"), // half of the capabilities: last, although it is idle
		agent("e", 41, time.Time{}, "web_search", "summarize"),
		agent("d", 40, minute(7), "web_search", "summarize"),
		agent("c", 40, minute(6), "web_search", "summarize"),
		agent("b", 40, minute(6), "summarize", "plan", "web_search"),
		agent("a", 40, time.Time{}, "web_search", "summarize"), // never used
	)
	d := x.Select(selection.Request{Capabilities: []string{"web_search", "summarize"}})
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, ids(d.Candidates))
	require.Equal(t, selection.Ranked{AgentID: "b", Score: 1, Load: 40, LastAssignedAt: minute(6)}, d.Candidates[1])
	require.Equal(t, selection.Ranked{AgentID: "f", Score: 0.5}, d.Candidates[5])
}

// TestScore covers step 2 of PROTOCOL_V5 §5.1, |match| / |required_caps|.
func TestScore(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "web_search", "web_fetch", "summarize"), onlineAgent("w2", "code_read", "code_write", "code_exec"), onlineAgent("w3", "web_search", "code_read"))
	d := x.Select(selection.Request{Capabilities: []string{"web_search", "summarize", "code_read"}})
	require.Equal(t, []selection.Ranked{{AgentID: "w1", Score: 2.0 / 3}, {AgentID: "w3", Score: 2.0 / 3}}, d.Candidates)
	require.Equal(t, []selection.Ranked{{AgentID: "w2", Score: 1.0 / 3, Reason: selection.ReasonBelowThreshold}}, d.Rejected)
	require.Equal(t, 3, d.Considered)
	require.Equal(t, 2, d.Eligible)
}

func TestCustomRanking(t *testing.T) {
	t.Parallel()
	x := indexOf(
		with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Worker.LastAssignedAt = minute(1) }),
		with(onlineAgent("w2", "plan"), func(a *selection.Agent) { a.Worker.LastAssignedAt = minute(2) }),
		with(onlineAgent("w3", "plan"), func(a *selection.Agent) { a.Worker.LastAssignedAt = minute(3) }),
	)
	d := x.Select(selection.Request{Capabilities: []string{"plan"}, Rank: func(a, b *selection.Ranked) int { return b.LastAssignedAt.Compare(a.LastAssignedAt) }})
	require.Equal(t, []string{"w3", "w2", "w1"}, ids(d.Candidates))

	d = x.Select(selection.Request{Capabilities: []string{"plan"}, Rank: func(_, _ *selection.Ranked) int { return 0 }})
	require.Equal(t, []string{"w1", "w2", "w3"}, ids(d.Candidates), "equal agents are ordered by id")
}

func TestDecisionListsTen(t *testing.T) {
	t.Parallel()
	x := selection.New()
	for i := range 40 {
		a := onlineAgent(fmt.Sprintf("w%02d", i), "plan")
		a.Worker.Load = (i * 17) % 40 // all different
		if i%2 == 1 {
			a.Worker.State = models.WorkerBusy
		}
		put(x, a)
	}
	d := x.Select(selection.Request{Capabilities: []string{"plan"}})
	require.Equal(t, 40, d.Considered)
	require.Equal(t, 20, d.Eligible)
	require.Len(t, d.Candidates, selection.MaxListed)
	require.Len(t, d.Rejected, selection.MaxListed)
	for i := range selection.MaxListed {
		require.Equal(t, 2*i, d.Candidates[i].Load)
		require.Equal(t, 2*i+1, d.Rejected[i].Load)
	}
}

// TestNearestMissesFirst checks that the requested agent is listed although many others are
// rejected as well.
func TestNearestMissesFirst(t *testing.T) {
	t.Parallel()
	x := indexOf(with(onlineAgent("wanted", "plan"), func(a *selection.Agent) { a.Worker.State, a.Worker.Load = models.WorkerOffline, 100 }))
	for i := range 30 {
		put(x, onlineAgent(fmt.Sprintf("w%02d", i), "plan"))
	}
	d := x.Select(selection.Request{Capabilities: []string{"plan"}, AgentID: "wanted"})
	require.Equal(t, []string{"wanted: offline", "w00: not_wanted", "w01: not_wanted"}, reasons(d)[:3])
	require.Equal(t, selection.Unavailable, d.Verdict)
}

// TestRankingMayReadTheIndex checks that rankings are called without locks.
func TestRankingMayReadTheIndex(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"), onlineAgent("w2", "plan"))
	d := x.Select(selection.Request{Capabilities: []string{"plan"}, Rank: func(a, b *selection.Ranked) int {
		put(x, onlineAgent("w3", "reason"))
		update(x, "w4", func(a *selection.Agent) { a.Active = false })
		one, _ := x.Agent(a.AgentID)
		other, _ := x.Agent(b.AgentID)
		return cmp.Compare(other.ID, one.ID)
	}})
	require.Equal(t, []string{"w2", "w1"}, ids(d.Candidates))
}
