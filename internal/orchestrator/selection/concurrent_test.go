package selection_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator/selection"
)

// TestConcurrentUpdatesAreAllApplied counts tasks in flight in many goroutines while the agents'
// capabilities change.
func TestConcurrentUpdatesAreAllApplied(t *testing.T) {
	t.Parallel()
	const counters, counts = 4, 500
	x := indexOf(with(onlineAgent("w1", "plan"), func(a *selection.Agent) { a.Worker.Concurrency = counters * counts }))
	var all sync.WaitGroup
	for range counters {
		all.Go(func() {
			for range counts {
				update(x, "w1", func(a *selection.Agent) { a.Worker.InFlight++ })
			}
		})
	}
	all.Go(func() {
		for i := range counts {
			update(x, "w1", func(a *selection.Agent) { a.Capabilities = []string{"plan", fmt.Sprint("c", i)} })
		}
	})
	all.Wait()
	require.Equal(t, []string{"w1: saturated"}, reasons(x.Select(selection.Request{Capabilities: []string{"plan", "c499"}})))
	require.NoError(t, selection.Verify(x))
}

// TestSelectSeesConsistentAgents switches agents between two combinations of capability, sphere
// and type, one by one and all at once. No Select may see a mixture.
func TestSelectSeesConsistentAgents(t *testing.T) {
	t.Parallel()
	const agents, rounds = 20, 300
	form := func(i, n int) selection.Agent {
		a := onlineAgent(fmt.Sprintf("w%02d", i), "plan", "summarize")
		a.Type, a.SphereID = "infra", 1
		if n%2 == 1 {
			a.Capabilities, a.Type, a.SphereID = []string{"reason", "summarize"}, "code", 2
		}
		return a
	}
	roster := func(n int) (all []selection.Agent) {
		for i := range agents {
			all = append(all, form(i, n))
		}
		return all
	}
	x := indexOf(roster(0)...)
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, change := range []func(n int){
		func(n int) { put(x, form(n%agents, n/agents)) },
		func(n int) { update(x, form(n%agents, 0).ID, func(a *selection.Agent) { a.Worker.InFlight = n % 4 }) },
		func(n int) {
			if n%50 == 0 {
				for _, a := range roster(n / 50) {
					put(x, a)
				}
			}
		},
	} {
		all.Go(func() {
			for n := range rounds {
				change(n)
			}
		})
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					readForms(t, x)
				}
			}
		})
	}
	all.Wait()
	close(done)
	readers.Wait()
	for _, a := range roster(0) {
		put(x, a)
	}
	require.Equal(t, 20, x.Select(selection.Request{Capabilities: []string{"plan"}, AgentType: "infra", SphereID: 1}).Eligible)
	require.NoError(t, selection.Verify(x))
}

func readForms(t *testing.T, x *selection.Index) {
	for _, r := range []selection.Request{
		{Capabilities: []string{"plan"}, AgentType: "infra", SphereID: 1},
		{Capabilities: []string{"reason"}, AgentType: "code", SphereID: 2},
		{AgentType: "infra", SphereID: 1},
	} {
		d := x.Select(r)
		if d.Eligible != d.Considered {
			t.Errorf("%+v: %v", r, reasons(d))
		}
	}
	d := x.Select(selection.Request{Capabilities: []string{"plan", "reason", "summarize"}, Threshold: 0.6})
	if d.Eligible != d.Considered {
		t.Errorf("%v", reasons(d))
	}
	if a, ok := x.Agent("w03"); ok && (a.Type == "infra") != (a.Capabilities[0] == "plan") {
		t.Errorf("%+v", a)
	}
	x.CapabilitiesOf("code")
}

// TestSelectDoesNotBlockUpdates blocks one Select in its ranking until the index was read and
// changed.
func TestSelectDoesNotBlockUpdates(t *testing.T) {
	t.Parallel()
	x := indexOf(onlineAgent("w1", "plan"), onlineAgent("w2", "plan"))
	inside, goOn := make(chan struct{}), make(chan struct{})
	var held selection.Decision
	var all sync.WaitGroup
	all.Go(func() {
		var once sync.Once
		held = x.Select(selection.Request{Capabilities: []string{"plan"}, Rank: func(a, b *selection.Ranked) int {
			once.Do(func() { close(inside); <-goOn })
			return selection.ByScore(a, b)
		}})
	})
	<-inside
	put(x, onlineAgent("w3", "plan"))
	update(x, "w1", func(a *selection.Agent) { a.Capabilities = []string{"reason"} })
	update(x, "w2", func(a *selection.Agent) { a.Worker.Load = 50 })
	require.Equal(t, []string{"w3", "w2"}, candidateIDs(x, "plan"))
	update(x, "w2", func(a *selection.Agent) { a.Capabilities = nil })
	close(goOn)
	all.Wait()
	require.Equal(t, []string{"w1", "w2"}, ids(held.Candidates), "as at the start of the Select")
}
