package selection_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
	"comet/internal/testkit"
	"comet/models"
)

// TestModel changes small indexes at random and compares complete decisions: from a seed that is
// known to cover every case, and from another one.
func TestModel(t *testing.T) {
	t.Parallel()
	t.Run("known seed", func(t *testing.T) {
		t.Parallel()
		met := decidesAsTheModel(t, 1)
		for _, word := range []string{
			"chosen", "saturated", "excluded", "unavailable", "unsupported",
			"inactive", "wrong_type", "wrong_sphere", "not_wanted", "below_threshold", "self_registered", "offline", "breaker_open", "excluded", "busy",
			"more candidates than are listed", "more rejected than are listed", "candidates that only the id tells apart",
		} {
			require.Greater(t, met[word], 20, word)
		}
	})
	t.Run("other seed", func(t *testing.T) {
		t.Parallel()
		decidesAsTheModel(t, testkit.Seed(t))
	})
}

// decidesAsTheModel returns how often each case was covered.
func decidesAsTheModel(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	g := generator{rand.New(rand.NewPCG(seed, 0)), t}
	met := map[string]int{}
	for world := range 12 {
		x, m := selection.New(), model{}
		g.putMany(x, m)
		for i := range 120 {
			what := g.change(x, m)
			for range 3 {
				r := g.request()
				want, got := m.Select(r), x.Select(r.real())
				require.Equal(t, want, got, "world %d, change %d: %s, request %+v", world, i, what, r)
				countCases(met, got)
			}
			for _, agentType := range []string{"", "infra", "code"} {
				require.Equal(t, m.CapabilitiesOf(agentType), x.CapabilitiesOf(agentType))
			}
		}
		for id, want := range m {
			got, ok := x.Agent(id)
			require.True(t, ok)
			require.Equal(t, want, got)
		}
		require.NoError(t, selection.Verify(x))
	}
	return met
}

func countCases(met map[string]int, d selection.Decision) {
	met[string(d.Verdict)]++
	for _, r := range d.Rejected {
		met[string(r.Reason)]++
	}
	if d.Eligible > len(d.Candidates) {
		met["more candidates than are listed"]++
	}
	if d.Considered-d.Eligible > len(d.Rejected) {
		met["more rejected than are listed"]++
	}
	for i := 1; i < len(d.Candidates); i++ {
		if a, b := d.Candidates[i-1], d.Candidates[i]; selection.ByScore(&a, &b) == 0 {
			met["candidates that only the id tells apart"]++
		}
	}
}

type generator struct {
	*rand.Rand

	t *testing.T
}

func (g generator) one(words ...string) string { return words[g.IntN(len(words))] }
func (g generator) oneIn(n int) bool           { return g.IntN(n) == 0 }
func (g generator) id() string                 { return fmt.Sprintf("w%02d", g.IntN(80)) }

// capability returns one of five common or three rare names, half of them with prefix.
func (g generator) capability() string {
	name := g.one("plan", "plan", "reason", "reason", "web_search", "summarize", "translate", "run_playbook", "deploy", "budgeting")
	if g.oneIn(2) {
		return "custom:" + name
	}
	return name
}

func (g generator) capabilities(most int) (out []string) {
	for range g.IntN(most + 1) {
		out = append(out, g.capability())
	}
	return out
}

func (g generator) agent(id string) selection.Agent {
	a := selection.Agent{ID: id, Capabilities: g.capabilities(5), Active: !g.oneIn(8), Type: g.one("", "infra", "code"), SphereID: g.IntN(3), SelfRegistered: g.oneIn(5)}
	g.live(&a)
	return a
}

// live changes the load of an agent to one of a few values, so that there are ties.
func (g generator) live(a *selection.Agent) {
	a.Worker.State = models.WorkerOnline
	if g.oneIn(3) {
		a.Worker.State = []models.WorkerState{models.WorkerOffline, models.WorkerOnline, models.WorkerBusy}[g.IntN(3)]
	}
	a.Worker.Concurrency, a.Worker.InFlight, a.Worker.Load = 1+g.IntN(5), g.IntN(3), 20*g.IntN(6)
	a.Worker.LastAssignedAt, a.Worker.BreakerUntil = time.Time{}, time.Time{}
	if g.oneIn(2) {
		a.Worker.LastAssignedAt = minute(g.IntN(3))
	}
	if g.oneIn(8) {
		a.Worker.BreakerUntil = minute(g.IntN(3))
	}
}

func (g generator) request() request {
	r := request{loadFirst: g.oneIn(3)}
	if g.oneIn(5) {
		r.Capabilities = []string{g.one("plan", "custom:plan", "reason")}
		return r
	}
	r.Capabilities = g.capabilities(4)
	if g.oneIn(3) {
		r.AgentType = g.one("infra", "code", "desktop")
	}
	if g.oneIn(4) {
		r.SphereID = 1 + g.IntN(2)
	}
	if g.oneIn(6) {
		r.AgentID = g.id()
	}
	for range g.IntN(4) * g.IntN(8) {
		r.Exclude = append(r.Exclude, g.id())
	}
	r.Threshold = []float64{0, 0, 0.5, 1.0 / 3, 2.0 / 3, 0.25, 1, 0.01}[g.IntN(8)]
	return r
}

// change makes the same change to the index and to the model.
func (g generator) change(x *selection.Index, m model) string {
	id := g.id()
	switch g.IntN(12) {
	case 0, 1:
		update(x, id, func(a *selection.Agent) { a.Active = false; m[id] = *a })
		return "deactivate " + id
	case 2, 3, 4, 5:
		_, known := m[id]
		require.Equal(g.t, known, update(x, id, func(a *selection.Agent) { g.live(a); m[id] = *a }))
		return "update " + id
	case 6:
		if update(x, id, func(a *selection.Agent) { *a = g.agent(id); m[id] = *a }) {
			return "change " + id
		}
	case 7:
		if g.oneIn(4) {
			g.putMany(x, m)
			return "put many"
		}
	}
	a := g.agent(id)
	put(x, a)
	m[id] = a
	return "put " + id
}

// putMany adds or replaces many agents.
func (g generator) putMany(x *selection.Index, m model) {
	for range 30 {
		id := g.id()
		m[id] = g.agent(id)
		put(x, m[id])
	}
}
