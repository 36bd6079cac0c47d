package workflow

import (
	"context"
	"encoding/json"

	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// maxInline is the longest result in a view, in bytes.
const maxInline = 256 << 10

// View is the state of a workflow as its clients see it (AgentCards, “agentcards:execute_dag”).
type View struct {
	// Status is running, complete, aborted or error; layer_complete, approval_required or uncertain if the workflow is
	// paused; rejected for a workflow that was aborted by the rejection of a checkpoint.
	Status     string `json:"status"`
	WorkflowID string `json:"workflow_id"`

	// CurrentLayer counts from 1, LayerIndex from 0.
	CurrentLayer int          `json:"current_layer,omitempty"`
	LayerIndex   *int         `json:"layer_index,omitempty"`
	TotalLayers  int          `json:"total_layers,omitempty"`
	LayerResults []TaskResult `json:"layer_results,omitempty"`
	// NextLayer are the ids of the steps of the next layer.
	NextLayer []string `json:"next_layer_preview,omitempty"`

	CheckpointID string             `json:"checkpoint_id,omitempty"`
	DecisionType string             `json:"decision_type,omitempty"`
	Description  string             `json:"description,omitempty"`
	Context      *CheckpointContext `json:"context,omitempty"`
	Options      []string           `json:"options,omitempty"`
	ExpiresAt    string             `json:"expires_at,omitempty"`

	Results         map[string]json.RawMessage `json:"results,omitempty"`
	PartialResults  map[string]json.RawMessage `json:"partial_results,omitempty"`
	CompletedLayers *int                       `json:"completed_layers,omitempty"`
	TaskResults     []TaskResult               `json:"task_results,omitempty"`
	Reason          string                     `json:"reason,omitempty"`
	Feedback        string                     `json:"feedback,omitempty"`
	Metrics         *Metrics                   `json:"metrics,omitempty"`

	NextAction string `json:"next_action,omitempty"`
}

// CheckpointContext is what a checkpoint shows.
type CheckpointContext struct {
	// Digest may be repeated in the decision, which then applies to nothing else.
	Digest string      `json:"digest"`
	Steps  []shownStep `json:"steps"`
}

// Metrics are the figures of a workflow that has ended.
type Metrics struct {
	TotalTimeMS int64 `json:"total_time_ms"`
	// ParallelBranches is the largest number of steps in a layer.
	ParallelBranches int `json:"parallel_branches"`
}

// TaskResult is the state of a step (AgentCards, “TaskResult”).
type TaskResult struct {
	TaskID string `json:"taskId"`
	// Status is success, error or skipped, or that of a step that has not ended: pending, running, uncertain.
	Status string          `json:"status"`
	Result json.RawMessage `json:"result,omitempty"`
	// Truncated is set if the result is too long for this view.
	Truncated  bool   `json:"truncated,omitempty"`
	Error      string `json:"error,omitempty"`
	ErrorCode  string `json:"error_code,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

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
	from := e.Store.Reads(ctx)
	row, err := workflows.Get(from, id)
	if err = own(row, err, by, id); err != nil {
		return View{}, err
	}
	x, err := e.load(from, row)
	if err != nil {
		return View{}, err
	}
	for i := range x.steps {
		if s := &x.steps[i]; s.Result == nil && x.state(i) == plan.Success {
			if s.Result, err = workflows.Result(from, id, i); err != nil {
				return View{}, err
			}
		}
	}
	return x.view()
}

func (x *execution) view() (View, error) {
	v := View{Status: status(x.row), WorkflowID: x.row.ID}
	switch x.row.State {
	case workflows.Running:
		v.TaskResults = x.taskResults(0)
		return v, nil
	case workflows.Paused:
		return x.pausedView(v)
	}
	v.TaskResults, v.Reason = x.taskResults(0), x.row.Reason
	v.Metrics = &Metrics{x.row.EndedAt.Sub(x.row.CreatedAt).Milliseconds(), x.plan.Width}
	results := map[string]json.RawMessage{}
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
		v.Options = []string{"continue", "abort"}
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
	if plan.Pause(c.Kind) == plan.PauseUncertain {
		v.Status, v.DecisionType, v.Options = "uncertain", "uncertain_outcome", []string{"retry", "accept", "skip", "reject"}
		v.Description = "The results of these steps were lost. They may have acted, so they are not repeated without a decision"
		v.NextAction += ", and with resolution"
	}
	return v, nil
}

// taskResults returns the results of the steps of a layer, 0 for all.
func (x *execution) taskResults(layer int) []TaskResult {
	out := []TaskResult{}
	for i, s := range x.steps {
		if layer != 0 && x.plan.Steps[i].Layer != layer {
			continue
		}
		r := TaskResult{TaskID: x.plan.Steps[i].ID, Status: stepStatus(s), Error: s.Error, ErrorCode: s.ErrorCode}
		if r.Result = s.Result; len(s.Result) > maxInline {
			r.Result, r.Truncated = nil, true
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
