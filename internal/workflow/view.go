package workflow

import (
	"context"
	"time"

	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// maxInline is the longest result in a view, and maxView that of all results together, in bytes.
const maxInline, maxView = 256 << 10, 4 << 20

// View is the state of a workflow as its clients see it (AgentCards, “agentcards:execute_dag”).
type View struct {
	// The state: layer_complete, approval_required, uncertain and budget_exhausted are those of a paused workflow, and rejected is that of
	// one that was aborted by the rejection of a checkpoint.
	Status     string         `json:"status" enums:"running,layer_complete,approval_required,uncertain,budget_exhausted,complete,aborted,rejected,error" example:"complete"`
	WorkflowID string         `json:"workflow_id" example:"wf_034530bbngmsf6j6dh3xtmbr4g"` // The workflow's id.
	Definition *DefinitionRef `json:"definition,omitempty"`                                // The stored workflow that it executes; absent without one.
	Revision   int            `json:"revision,omitempty" example:"1"`                      // The number of replans, which add tasks.
	Version    int64          `json:"-"`
	UpdatedAt  time.Time      `json:"-"` // When it was last changed.
	// The budget; absent without one.
	Budget *Budget `json:"budget,omitempty"`
	// Who can approve tasks; absent for the token that started the workflow.
	Approver Approver `json:"approver,omitempty" swaggertype:"string" enums:"other,human" example:"other"`

	CurrentLayer int          `json:"current_layer,omitempty" example:"1"`       // Number of the completed layer, from 1; only after a layer.
	LayerIndex   *int         `json:"layer_index,omitempty" example:"0"`         // The same from 0.
	TotalLayers  int          `json:"total_layers,omitempty" example:"2"`        // Number of layers; only after a layer.
	LayerResults []TaskResult `json:"layer_results,omitempty"`                   // States of the tasks of the completed layer, or of all tasks at a checkpoint.
	NextLayer    []string     `json:"next_layer_preview,omitempty" example:"t3"` // Ids of the tasks of the next layer.

	CheckpointID string             `json:"checkpoint_id,omitempty" example:"cp_034530bbngmsf6j6dh3xtmbr50"`                                          // The checkpoint that waits for a decision, or was rejected.
	DecisionType string             `json:"decision_type,omitempty" enums:"tool_approval,uncertain_outcome,budget_exhausted" example:"tool_approval"` // The kind of decision that the checkpoint requires.
	Description  string             `json:"description,omitempty" example:"These steps begin only if they are approved."`                             // A description of the decision.
	Context      *CheckpointContext `json:"context,omitempty"`                                                                                        // What the checkpoint shows.
	Options      []string           `json:"options,omitempty" example:"approve,reject"`                                                               // The possible decisions on a paused workflow.
	ExpiresAt    string             `json:"expires_at,omitempty" format:"date-time" example:"2026-01-10T16:30:00Z"`                                   // When a paused workflow is aborted.

	Results         map[string]any `json:"results,omitempty"`                         // The results by task id, after the end.
	PartialResults  map[string]any `json:"partial_results,omitempty"`                 // The results by task id of an aborted workflow.
	CompletedLayers *int           `json:"completed_layers,omitempty" example:"1"`    // Number of completed layers of an aborted workflow.
	TaskResults     []TaskResult   `json:"task_results,omitempty"`                    // States of all tasks, unless it is paused.
	Reason          string         `json:"reason,omitempty" example:"not needed"`     // Why it ended.
	Feedback        string         `json:"feedback,omitempty" example:"wrong folder"` // Text of the rejection.
	Metrics         *Metrics       `json:"metrics,omitempty"`                         // Figures, after the end.

	NextAction string `json:"next_action,omitempty" example:"Use agentcards:continue to proceed"` // The next call for an MCP client.
} // @name Workflow

// CheckpointContext is what a checkpoint shows.
type CheckpointContext struct {
	// A digest of the steps. A decision with another digest is rejected.
	Digest string      `json:"digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Steps  []shownStep `json:"steps"` // The tasks that it is about.
} // @name WorkflowCheckpoint

// Metrics are the figures of a workflow that has ended.
type Metrics struct {
	TotalTimeMS      int64 `json:"total_time_ms" example:"412"`   // Duration in milliseconds.
	ParallelBranches int   `json:"parallel_branches" example:"2"` // The largest number of tasks in a layer.
} // @name WorkflowMetrics

// TaskResult is the state of a step as AgentCards defines it.
type TaskResult struct {
	TaskID string `json:"taskId" example:"t1"` // The task's id in the workflow.
	// The state. The first three are final.
	Status     string `json:"status" enums:"success,error,skipped,pending,running,uncertain" example:"success"`
	Result     any    `json:"result,omitempty"`                              // The result; absent without one.
	Truncated  bool   `json:"truncated,omitempty" example:"true"`            // Set if the result is too long for this view.
	Error      string `json:"error,omitempty" example:"the disk is full"`    // Why it failed.
	ErrorCode  string `json:"error_code,omitempty" example:"TOOL_NOT_FOUND"` // The error code of the MCP server.
	DurationMS int64  `json:"duration_ms" example:"120"`                     // Duration of the last attempt in milliseconds.
	Tokens     int64  `json:"tokens,omitempty" example:"310"`                // Tokens of all attempts; only in a workflow with a budget.
} // @name WorkflowTaskResult

// Wait waits until a workflow that this process holds is paused or has ended, and returns its state.
func (e *Engine) Wait(ctx context.Context, by models.Principal, id string) (View, error) {
	if r := e.held(id); r != nil {
		select {
		case <-r.done:
		case <-ctx.Done():
			return View{}, ctx.Err()
		}
	}
	return e.Get(ctx, by, id)
}

// Get returns the state of a workflow.
func (e *Engine) Get(ctx context.Context, by models.Principal, id string) (View, error) {
	x, err := e.read(ctx, by, id, maxInline)
	if err != nil {
		return View{}, err
	}
	return x.view()
}

// Readable returns errs.NotFound unless the workflow exists and the principal may read it.
func (e *Engine) Readable(ctx context.Context, by models.Principal, id string) error {
	row, err := workflows.Get(e.Store.Reads(ctx), id)
	return e.visible(ctx, row, err, by, id)
}

// read returns a workflow that the principal may read, without results of more than maxResult bytes.
func (e *Engine) read(ctx context.Context, by models.Principal, id string, maxResult int) (*execution, error) {
	from := e.Store.Reads(ctx)
	row, err := workflows.Get(from, id)
	if err = e.visible(ctx, row, err, by, id); err != nil {
		return nil, err
	}
	return e.load(from, row, maxResult)
}

func (x *execution) view() (View, error) {
	v := View{Status: status(x.row), WorkflowID: x.row.ID, Definition: ref(x.row), Revision: x.row.Revision, Version: x.row.Version, UpdatedAt: x.row.UpdatedAt, Approver: Approver(x.row.Approver)}
	if x.row.Budget > 0 {
		v.Budget = &Budget{x.row.Budget, x.row.Used, x.row.Reserved}
	}
	switch x.row.State {
	case workflows.Running:
		v.TaskResults = x.taskResults(0)
		return v, nil
	case workflows.Paused:
		return x.pausedView(v)
	}
	v.TaskResults, v.Reason = x.taskResults(0), x.row.Reason
	v.Metrics = &Metrics{x.row.EndedAt.Sub(x.row.CreatedAt).Milliseconds(), x.plan.Width}
	results := map[string]any{}
	for _, r := range v.TaskResults {
		if r.Result != nil {
			results[r.TaskID] = r.Result
		}
	}
	if x.row.State != workflows.Aborted {
		v.Results = results
		return v, nil
	}
	v.PartialResults, v.CompletedLayers = results, new(x.completedLayers())
	if x.row.ErrorCode == codeRejected {
		v.Status, v.CheckpointID, v.Reason, v.Feedback = "rejected", x.checkpoint.ID, "", x.row.Reason
	}
	return v, nil
}

// pausedView adds the open checkpoint.
func (x *execution) pausedView(v View) (View, error) {
	c := *x.checkpoint
	v.CheckpointID, v.ExpiresAt = c.ID, c.ExpiresAt.UTC().Format("2006-01-02T15:04:05Z")
	if plan.Pause(c.Kind) == plan.PauseLayer {
		v.Status, v.CurrentLayer, v.LayerIndex, v.TotalLayers = "layer_complete", c.Layer, new(c.Layer-1), x.plan.Layers
		v.LayerResults, v.NextAction = x.taskResults(c.Layer), "Use agentcards:continue to proceed"
		v.Options = []string{"continue", "replan", "abort"}
		for i := range x.plan.Steps {
			if x.plan.Steps[i].Layer == c.Layer+1 {
				v.NextLayer = append(v.NextLayer, x.plan.Steps[i].ID)
			}
		}
		return v, nil
	}
	shown, err := shownSteps(c)
	if err != nil {
		return v, err
	}
	v.Context = &CheckpointContext{c.Digest, shown}
	v.LayerResults = x.taskResults(0)
	v.Status, v.DecisionType, v.Options = "approval_required", "tool_approval", []string{"approve", "reject"}
	v.Description = "These steps begin only if they are approved. The approval covers exactly these arguments"
	v.NextAction = "Use agentcards:approval_response with this workflow_id and checkpoint_id"
	switch plan.Pause(c.Kind) {
	case plan.PauseBudget:
		v.Status, v.DecisionType, v.Options = "budget_exhausted", "budget_exhausted", []string{"raise", "abort"}
		v.Description = "The budget of the workflow does not cover these steps"
		v.NextAction += ", with resolution raise and the new total as budget, or agentcards:abort"
	case plan.PauseUncertain:
		v.Status, v.DecisionType, v.Options = "uncertain", "uncertain_outcome", []string{"retry", "accept", "skip", "reject"}
		v.Description = "The results of these steps were lost. They may have acted, so they are not repeated without a decision"
		v.NextAction += ", and with resolution"
	}
	return v, nil
}

// taskResults returns the results of the steps of a layer, 0 for all.
func (x *execution) taskResults(layer int) []TaskResult {
	out, left := []TaskResult{}, maxView
	for i, s := range x.steps {
		if layer != 0 && x.plan.Steps[i].Layer != layer {
			continue
		}
		r := TaskResult{TaskID: x.plan.Steps[i].ID, Status: stepStatus(s), Error: s.Error, ErrorCode: s.ErrorCode, Tokens: s.Tokens}
		if left -= len(s.Result); left < 0 || s.Result == nil && x.state(i) == plan.Success {
			r.Truncated = true
		} else if s.Result != nil {
			r.Result = s.Result
		}
		if !s.StartedAt.IsZero() && !s.EndedAt.IsZero() {
			r.DurationMS = s.EndedAt.Sub(s.StartedAt).Milliseconds()
		}
		out = append(out, r)
	}
	return out
}

// completedLayers returns the number of layers whose steps have all ended successfully, from the first on.
func (x *execution) completedLayers() int {
	done := x.plan.Layers
	for i := range x.steps {
		if x.state(i) != plan.Success {
			done = min(done, x.plan.Steps[i].Layer-1)
		}
	}
	return done
}
