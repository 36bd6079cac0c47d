package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/workflow/plan"
)

func always(int) bool { return true }
func never(int) bool  { return false }

func TestNextOfIndependentSteps(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y", "depends_on": ["a"]}]`)
	now := plan.Progress{States: make([]plan.State, 3), NeedsApproval: never, Approved: never, MaxRunning: 16}
	assert.Equal(t, plan.Next{Run: []int{0, 1}}, p.Next(now))
	now.States = []plan.State{plan.Success, plan.Running, plan.Pending}
	assert.Equal(t, plan.Next{Run: []int{2}}, p.Next(now), "c does not wait for b")
	now.States = []plan.State{plan.Error, plan.Success, plan.Pending}
	assert.Equal(t, plan.Next{Skip: []int{2}, Ended: true, Failed: true}, p.Next(now))
	now.States = []plan.State{plan.Success, plan.Success, plan.Success}
	assert.Equal(t, plan.Next{Ended: true}, p.Next(now))
}

func TestNextLimitsRunningSteps(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y"}]`)
	now := plan.Progress{States: []plan.State{plan.Running, plan.Pending, plan.Pending}, NeedsApproval: never, Approved: never, MaxRunning: 2}
	assert.Equal(t, plan.Next{Run: []int{1}}, p.Next(now))
}

func TestNextPausesBetweenLayers(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y", "depends_on": ["a"]}, {"id": "c", "tool": "x:y"}]`)
	now := plan.Progress{States: []plan.State{plan.Success, plan.Pending, plan.Running}, NeedsApproval: never, Approved: never, MaxRunning: 16, ValidateLayers: true}
	assert.Equal(t, plan.Next{}, p.Next(now), "a step of the layer is running")
	now.States[2] = plan.Error
	assert.Equal(t, plan.Next{Pause: plan.PauseLayer, Steps: []int{0, 2}, Layer: 1}, p.Next(now))
	now.Confirmed = 1
	assert.Equal(t, plan.Next{Run: []int{1}}, p.Next(now))
	now.States[1] = plan.Success
	assert.Equal(t, plan.Next{Ended: true, Failed: true}, p.Next(now), "no pause after the last layer")
}

func TestNextPausesForApproval(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y"}]`)
	asks := func(i int) bool { return i != 1 }
	now := plan.Progress{States: make([]plan.State, 3), NeedsApproval: asks, Approved: never, MaxRunning: 16}
	assert.Equal(t, plan.Next{Run: []int{1}}, p.Next(now), "other steps go on")
	now.States[1] = plan.Success
	assert.Equal(t, plan.Next{Pause: plan.PauseApproval, Steps: []int{0, 2}}, p.Next(now))
	now.Approved = always
	assert.Equal(t, plan.Next{Run: []int{0, 2}}, p.Next(now))
}

func TestNextPausesForMoreTokens(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y"}]`)
	now := plan.Progress{States: make([]plan.State, 3), NeedsApproval: never, Approved: never, MaxRunning: 16, Left: 7, Cost: func(i int) int64 { return []int64{5, 3, 2}[i] }}
	assert.Equal(t, plan.Next{Run: []int{0, 2}}, p.Next(now), "the steps that the tokens cover begin")
	now.States, now.Left = []plan.State{plan.Success, plan.Pending, plan.Running}, 2
	assert.Equal(t, plan.Next{}, p.Next(now), "a step is running")
	now.States[2] = plan.Success
	assert.Equal(t, plan.Next{Pause: plan.PauseBudget, Steps: []int{1}}, p.Next(now))
	now.Left = 3
	assert.Equal(t, plan.Next{Run: []int{1}}, p.Next(now))
}

func TestNextPausesForUncertainSteps(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y", "depends_on": ["a"]}]`)
	now := plan.Progress{States: []plan.State{plan.Uncertain, plan.Running, plan.Pending}, NeedsApproval: never, Approved: never, MaxRunning: 16}
	assert.Equal(t, plan.Next{}, p.Next(now))
	now.States[1] = plan.Success
	assert.Equal(t, plan.Next{Pause: plan.PauseUncertain, Steps: []int{0}}, p.Next(now))
}

func TestNextAfterAnErrorThatAborts(t *testing.T) {
	p := newPlan(t, `[{"id": "a", "tool": "x:y"}, {"id": "b", "tool": "x:y"}, {"id": "c", "tool": "x:y", "depends_on": ["b"]}]`)
	now := plan.Progress{States: []plan.State{plan.Error, plan.Running, plan.Pending}, NeedsApproval: never, Approved: never, MaxRunning: 16, AbortOnError: true}
	assert.Equal(t, plan.Next{Skip: []int{2}}, p.Next(now))
}

// TestNextMatchesAModel runs random plans to their ends, with steps that end in random order and
// sometimes fail, and compares the states with a model that follows the definition.
func TestNextMatchesAModel(t *testing.T) {
	const plans = 100_000
	for seed := range uint64(plans) {
		r := rand.New(rand.NewPCG(seed, 1))
		if !runToEnd(t, r) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func runToEnd(t *testing.T, r *rand.Rand) bool {
	p := randomPlan(t, r)
	n := len(p.Steps)
	fails, asks, approved := make([]bool, n), make([]bool, n), make([]bool, n)
	for i := range n {
		fails[i], asks[i] = r.IntN(6) == 0, r.IntN(5) == 0
	}
	now := plan.Progress{
		States: make([]plan.State, n), ValidateLayers: r.IntN(3) == 0, MaxRunning: 1 + r.IntN(4),
		NeedsApproval: func(i int) bool { return asks[i] }, Approved: func(i int) bool { return approved[i] },
	}
	costs, spent, budget := make([]int64, n), int64(0), int64(0)
	if r.IntN(2) == 0 {
		for i := range n {
			costs[i] = r.Int64N(5)
		}
		budget = r.Int64N(20)
		now.Cost = func(i int) int64 { return costs[i] }
	}
	check := func(holds bool, rule string) { // faster than package require, which matters here
		if !holds {
			t.Error(rule)
		}
	}
	var running []int
	for range 4*n + 4 {
		now.Left = budget - spent
		next := p.Next(now)
		for _, i := range next.Skip {
			check(now.States[i] == plan.Pending, "a step that has begun is not skipped")
			now.States[i] = plan.Skipped
		}
		for _, i := range next.Run {
			check(now.States[i] == plan.Pending, "no step runs twice")
			check(!asks[i] || approved[i], "no step runs without its approval")
			check(!now.ValidateLayers || p.Steps[i].Layer <= now.Confirmed+1, "no step runs before its layer")
			for _, to := range p.Steps[i].Needs {
				check(now.States[to] == plan.Success, "no step runs before its dependencies")
			}
			now.States[i] = plan.Running
			spent += costs[i]
			running = append(running, i)
		}
		check(len(running) <= now.MaxRunning, "running steps are limited")
		check(now.Cost == nil || spent <= budget, "no step runs without its tokens")
		switch {
		case next.Ended:
			check(len(running) == 0, "no step runs after the end")
			check(slices.Equal(finalStates(p, fails), now.States), "the states are those of the model")
			check(slices.Contains(now.States, plan.Error) == next.Failed, "a plan fails with its steps")
			return !t.Failed()
		case len(running) > 0:
			check(next.Pause == "", "no pause while a step runs")
			k := r.IntN(len(running))
			i := running[k]
			running = slices.Delete(running, k, k+1)
			now.States[i] = plan.Success
			if fails[i] {
				now.States[i] = plan.Error
			}
		case next.Pause == plan.PauseApproval:
			check(len(next.Steps) > 0, "a pause names its steps")
			for _, i := range next.Steps {
				approved[i] = true
			}
		case next.Pause == plan.PauseBudget:
			check(len(next.Steps) > 0, "a pause names its steps")
			budget += costs[next.Steps[0]]
		case next.Pause == plan.PauseLayer:
			check(next.Layer == now.Confirmed+1, "layers complete in order")
			now.Confirmed++
		default:
			check(false, "a plan runs, waits or has ended")
			return false
		}
	}
	check(false, "a plan ends")
	return false
}

// finalStates is the model: a step succeeds unless it fails or one that it needs did not succeed.
func finalStates(p *plan.Plan, fails []bool) []plan.State {
	out := make([]plan.State, len(p.Steps))
	var stateOf func(i int) plan.State
	stateOf = func(i int) plan.State {
		if out[i] == plan.Pending {
			out[i] = plan.Success
			for _, to := range p.Steps[i].Needs {
				if stateOf(to) != plan.Success {
					out[i] = plan.Skipped
				}
			}
			if out[i] == plan.Success && fails[i] {
				out[i] = plan.Error
			}
		}
		return out[i]
	}
	for i := range p.Steps {
		stateOf(i)
	}
	return out
}

// randomPlan returns a plan of up to twelve steps in random order.
func randomPlan(t *testing.T, r *rand.Rand) *plan.Plan {
	n := 1 + r.IntN(12)
	names := r.Perm(n)
	steps := make([]plan.Step, n)
	for i := range n {
		s := plan.Step{ID: fmt.Sprintf("s%d", names[i]), Tool: "x:y"}
		for k := range i {
			if r.IntN(4) == 0 {
				s.DependsOn = append(s.DependsOn, fmt.Sprintf("s%d", names[k]))
			}
		}
		steps[i] = s
	}
	r.Shuffle(n, func(i, k int) { steps[i], steps[k] = steps[k], steps[i] })
	p, err := plan.New(steps, "")
	require.NoError(t, err)
	return p
}
