package plan

// State is the state of a step.
type State uint8

// The states of a step. The database stores their numbers.
const (
	Pending State = iota
	Running
	Success
	Error
	Skipped
	// Uncertain is a step that may have acted and whose result was lost.
	Uncertain
)

// Ended reports whether a state is final.
func (s State) Ended() bool { return s >= Success && s <= Skipped }

// Pause is the reason why a workflow is paused.
type Pause string

// Values of Pause, "" for none.
const (
	// PauseLayer waits for the confirmation of the results of a layer.
	PauseLayer Pause = "layer"
	// PauseApproval waits for the approval of steps.
	PauseApproval Pause = "approval"
	// PauseUncertain waits for a decision on uncertain steps.
	PauseUncertain Pause = "uncertain"
	// PauseBudget waits for a larger budget.
	PauseBudget Pause = "budget"
)

// Progress is the state of the execution of a plan.
type Progress struct {
	States []State
	// NeedsApproval and Approved report whether a step that has not begun needs approval, and has it.
	NeedsApproval, Approved func(step int) bool
	// ValidateLayers pauses between layers; Confirmed is the number of confirmed layers.
	ValidateLayers bool
	Confirmed      int
	// AbortOnError skips all steps that have not begun when one has failed.
	AbortOnError bool
	// MaxRunning limits the running steps.
	MaxRunning int
	// Cost returns the tokens that a step needs to begin, nil for no limit. Left is the number of tokens for further steps.
	Cost func(step int) int64
	Left int64
}

// Next is the decision for a Progress.
type Next struct {
	// Skip are the steps that cannot run any more, and Run those that begin now, in order.
	Skip, Run []int
	// Pause is the reason why nothing runs and no step can begin. Steps are the steps that it concerns:
	// for PauseLayer all steps of Layer, the layer that was completed.
	Pause Pause
	Steps []int
	Layer int
	// Ended is set when no step is left; Failed is then set if a step failed or was skipped.
	Ended, Failed bool
}

// Next returns the decision for a Progress. It changes nothing, and the result depends only on now. It
// takes time proportional to the number of steps and dependencies.
func (p *Plan) Next(now Progress) Next {
	out := Next{}
	states := append([]State(nil), now.States...)
	running, failed := 0, false
	var uncertain []int
	for i, s := range states {
		switch s {
		case Running:
			running++
		case Error:
			failed = true
		case Uncertain:
			uncertain = append(uncertain, i)
		}
	}
	for _, i := range p.inLayers {
		if _, lost := p.needs(i, states); states[i] == Pending && (failed && now.AbortOnError || lost) {
			states[i] = Skipped
			out.Skip = append(out.Skip, i)
		}
	}
	layer := p.currentLayer(states)
	var asked, short []int
	for i := range p.Steps {
		if met, _ := p.needs(i, states); states[i] != Pending || len(uncertain) > 0 || !met || now.ValidateLayers && p.Steps[i].Layer > now.Confirmed+1 {
			continue
		}
		switch {
		case now.NeedsApproval(i) && !now.Approved(i):
			asked = append(asked, i)
		case running+len(out.Run) >= now.MaxRunning:
		case now.covers(i):
			out.Run = append(out.Run, i)
		default:
			short = append(short, i)
		}
	}
	switch {
	case running+len(out.Run) > 0:
	case len(uncertain) > 0:
		out.Pause, out.Steps = PauseUncertain, uncertain
	case len(asked) > 0:
		out.Pause, out.Steps = PauseApproval, asked
	case len(short) > 0:
		out.Pause, out.Steps = PauseBudget, short
	case layer == 0:
		out.Ended = true
		for _, s := range states {
			out.Failed = out.Failed || s != Success
		}
	default: // the next steps are in a layer that is not confirmed
		out.Pause, out.Layer = PauseLayer, layer-1
		for i := range p.Steps {
			if p.Steps[i].Layer == out.Layer {
				out.Steps = append(out.Steps, i)
			}
		}
	}
	return out
}

// covers reports whether the remaining tokens cover a step, and subtracts the tokens that it needs.
func (now *Progress) covers(step int) bool {
	if now.Cost == nil {
		return true
	}
	cost := now.Cost(step)
	if cost > now.Left {
		return false
	}
	now.Left -= cost
	return true
}

// needs reports whether the dependencies of a step have all succeeded, and whether one of them did not succeed.
func (p *Plan) needs(i int, states []State) (met, failed bool) {
	met = true
	for _, to := range p.Steps[i].Needs {
		met, failed = met && states[to] == Success, failed || states[to] == Error || states[to] == Skipped
	}
	return met, failed
}

// currentLayer returns the first layer with a step that has not ended, 0 for none.
func (p *Plan) currentLayer(states []State) int {
	for _, i := range p.inLayers {
		if !states[i].Ended() {
			return p.Steps[i].Layer
		}
	}
	return 0
}
