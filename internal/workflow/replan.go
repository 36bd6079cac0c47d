package workflow

import (
	"context"
	"encoding/json"

	"comet/internal/tools"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// maxRevisions is the number of times that steps may be added to a workflow.
const maxRevisions = 10

// Requirement is a request to add steps to a workflow.
type Requirement struct {
	// Text says what is to be added; it may be empty if Workflow is set.
	Text string
	// Workflow has the steps to add; if it is nil, they are those of the plan for Text. Context has values of arguments for
	// this plan.
	Workflow *Graph
	Context  json.RawMessage
}

// Replanned is a workflow after steps were added (AgentCards, “agentcards:replan”).
type Replanned struct {
	Status         string   `json:"status" enums:"replanned" example:"replanned"`                                                                                        // Always `replanned`.
	WorkflowID     string   `json:"workflow_id" example:"wf_034530bbngmsf6j6dh3xtmbr4g"`                                                                                 // The workflow's id.
	NewRequirement string   `json:"new_requirement,omitempty" example:"parse the XML files"`                                                                             // The text of the request.
	NewTasksCount  int      `json:"new_tasks_count" example:"1"`                                                                                                         // Number of new tasks.
	NewTaskIDs     []string `json:"new_task_ids" example:"t4"`                                                                                                           // Ids of the new tasks.
	TotalTasks     int      `json:"total_tasks" example:"4"`                                                                                                             // Number of all tasks.
	TotalLayers    int      `json:"total_layers" example:"3"`                                                                                                            // Number of layers.
	Revision       int      `json:"revision" example:"1"`                                                                                                                // How many times tasks were added, at most 10.
	WorkflowStatus string   `json:"workflow_status" enums:"running,layer_complete,approval_required,uncertain,budget_exhausted,complete,error" example:"layer_complete"` // The state of the workflow.
	Options        []string `json:"options" example:"continue,replan,abort"`                                                                                             // The possible next operations.
	// The checkpoint that waits for a decision. If the previous checkpoint showed tasks, this one replaces it, because an
	// approval covers the whole plan.
	CheckpointID string             `json:"checkpoint_id,omitempty" example:"cp_034530bbngmsf6j6dh3xtmbr50"`
	Context      *CheckpointContext `json:"context,omitempty"` // What the checkpoint shows.
	Version      int64              `json:"-"`
} // @name WorkflowReplan

// Replan adds steps to a running or paused workflow. A paused workflow stays paused; a checkpoint that shows steps is
// replaced by a new one. If the workflow runs, its holder executes the new steps. If the plan for a text is not Ready, Replan adds
// nothing and returns the plan. It returns WORKFLOW_STATE for a workflow that has ended, errs.InvalidRequest with the violations
// of the plan, and the errors of CallTool for a tool that the owner may not call.
func (e *Engine) Replan(ctx context.Context, by tools.Caller, id string, add Requirement) (out Replanned, p Proposal, err error) {
	e.Tools.WaitForUpstreams(ctx, upstreamsWait)
	_, err = e.transitionOf(ctx, by.Principal, id, func(x *execution) error {
		out, p = Replanned{}, Proposal{Status: Ready}
		if err := x.mayReplan(by.Principal); err != nil {
			return err
		}
		steps, at := add.Workflow, "/workflow/tasks"
		if steps == nil {
			at = "/new_requirement"
			var err error
			p, err = e.propose(ctx, by, intent.Request{Sentence: add.Text, Context: add.Context, Taken: func(id string) bool { return x.position(id) >= 0 }})
			if err != nil {
				return err
			}
			if p.Status != Ready {
				return errUnchanged
			}
			steps = p.Workflow
		}
		before := len(x.steps)
		if err := x.extend(ctx, by.Principal, steps.Tasks, at, add.Text); err != nil {
			return err
		}
		out = x.replanned(before, add.Text)
		return nil
	})
	if err != nil || p.Status != Ready {
		return Replanned{}, p, err
	}
	if r := e.held(id); r != nil {
		r.extend()
	}
	v, err := e.Get(ctx, by.Principal, id)
	out.WorkflowStatus, out.CheckpointID, out.Context, out.Version = v.Status, v.CheckpointID, v.Context, v.Version
	if out.Options = v.Options; v.Status == "running" {
		out.Options = []string{"continue", "replan", "abort"} // continue waits for a workflow that runs
	}
	return out, p, err
}

// mayReplan returns an error if the principal may not add steps to the workflow, or if no more steps can be added.
func (x *execution) mayReplan(by models.Principal) error {
	switch err := requireOwner(x.row, by); {
	case err != nil:
		return err
	case x.settings.Call:
		return errState("the workflow %s is a single tool call and cannot be replanned", x.row.ID)
	case x.row.State > workflows.Paused:
		return errState("the workflow %s cannot be replanned: its status is %s", x.row.ID, status(x.row))
	case x.halted != nil:
		return x.halted
	case x.row.Revision >= maxRevisions:
		return errState("the workflow %s was already replanned %d times, which is the limit", x.row.ID, maxRevisions)
	}
	return nil
}

// replanned describes the steps that were added after the first before ones.
func (x *execution) replanned(before int, text string) Replanned {
	out := Replanned{
		Status: "replanned", WorkflowID: x.row.ID, NewRequirement: text, TotalTasks: len(x.steps), NewTasksCount: len(x.steps) - before,
		TotalLayers: x.plan.Layers, Revision: x.row.Revision,
	}
	for _, n := range x.plan.Steps[before:] {
		out.NewTaskIDs = append(out.NewTaskIDs, n.ID)
	}
	return out
}

// extend adds steps; at is their JSON pointer, for errors. If layers are confirmed, new steps belong to the next layer or to
// later ones.
func (x *execution) extend(ctx context.Context, by models.Principal, steps []plan.Step, at, why string) (err error) {
	for i := range steps {
		if steps[i].FirstLayer = 0; x.settings.ValidateLayers {
			steps[i].FirstLayer = x.nextLayer()
		}
	}
	if x.plan, err = x.plan.Extend(steps, at); err != nil {
		return err
	}
	if err := x.checkAgentSteps(at, len(x.steps)); err != nil {
		return err
	}
	if _, err := x.addSteps(ctx); err != nil {
		return err
	}
	x.row.Revision++
	x.emit(EventReplanned, EventData{Revision: x.row.Revision, Added: len(steps), Reason: why})
	if x.row.State == workflows.Running {
		x.elsewhere = true
		return nil
	}
	return x.askAgain(ctx, by, why)
}

// nextLayer returns the lowest layer whose steps cannot have begun.
func (x *execution) nextLayer() int {
	if x.row.Pause == string(plan.PauseLayer) {
		return x.checkpoint.Layer + 1
	}
	return x.row.Confirmed + 1
}

// askAgain replaces the checkpoint of a paused workflow by one with the same steps and new digests. A checkpoint after a layer
// stays open, because it shows no steps.
func (x *execution) askAgain(ctx context.Context, by models.Principal, why string) error {
	if x.row.Pause == string(plan.PauseLayer) {
		return nil
	}
	shown, err := shownSteps(*x.checkpoint)
	if err != nil {
		return err
	}
	again := plan.Next{Pause: plan.Pause(x.row.Pause)}
	for _, s := range shown {
		again.Steps = append(again.Steps, x.position(s.ID))
	}
	x.settle(workflows.Stale, by.TokenID, why)
	_, err = x.pause(ctx, again, x.env.Store.Now()) // if a step has failed instead, the workflow runs
	return err
}

// extendStored stores the steps that were added to a workflow that runs. It returns workflows.ErrFenced if other steps were
// added since the workflow was read.
func (x *execution) extendStored(tx *store.Tx) error {
	version, err := workflows.Extend(tx, x.row, x.steps[x.stored:])
	if err != nil {
		return err
	}
	for i := range x.events { // outcomes may have been stored since the workflow was read
		data := x.events[i].Data.(EventData)
		data.Version = version
		x.events[i].Data = data
	}
	return tx.Events().EmitAll(x.events)
}
