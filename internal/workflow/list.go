package workflow

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/workflows"
)

// Summary is a workflow in a list.
type Summary struct {
	WorkflowID string         `json:"workflow_id" example:"wf_034530bbngmsf6j6dh3xtmbr4g"`                        // The workflow's id.
	Status     string         `json:"status" enums:"running,paused,complete,aborted,error" example:"paused"`      // The state.
	Definition *DefinitionRef `json:"definition,omitempty"`                                                       // The stored workflow that it executes; absent without one.
	Pause      string         `json:"pause,omitempty" enums:"layer,approval,uncertain,budget" example:"approval"` // What a paused workflow waits for: the confirmation of a layer, an approval, a decision on lost results, or a larger budget.
	TokenID    string         `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`                    // Id of the token that started it.
	Approver   string         `json:"approver,omitempty" enums:"other,human" example:"other"`                     // Who can approve tasks; absent for the token that started it.
	Actor      string         `json:"actor" example:"claude-desktop"`                                             // Name of the token that started it.
	AgentID    string         `json:"agent_id" example:"finance-personal"`                                        // The agent that is charged.
	Source     string         `json:"source" enums:"mcp,rest,code,task,schedule,a2a" example:"mcp"`               // Where it was started.
	TraceID    string         `json:"trace_id,omitempty" example:"4bf92f3577b34da6a3ce929d0e0e4736"`              // The W3C trace id; absent without one.
	ErrorCode  string         `json:"error_code,omitempty" example:"EXPIRED"`                                     // Why it ended, as a code; absent if all tasks ended.
	Reason     string         `json:"reason,omitempty" example:"not needed"`                                      // Why it ended; absent if all tasks ended.
	// When it was started.
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt time.Time `json:"updated_at" example:"2026-01-10T15:30:02Z"` // When it was last changed.
	// Null until it has ended.
	EndedAt *time.Time `json:"ended_at" example:"2026-01-10T15:30:02Z"`
} // @name WorkflowSummary

// Query selects workflows.
type Query struct {
	// Status is one of Statuses, "" for all.
	Status string
	// Before is the id after which the list begins, "" for the newest.
	Before string
	Limit  int
	// Decidable selects the workflows that wait for a decision that the principal may make. It does not consider rules about
	// the steps of the checkpoint.
	Decidable bool
}

// Statuses returns the values of Summary.Status.
func Statuses() []string { return []string{"running", "paused", "complete", "aborted", "error"} }

// List returns the workflows of a token and those that it may approve, newest first. Administrators receive those of all
// tokens.
func (e *Engine) List(ctx context.Context, by models.Principal, q Query) ([]Summary, error) {
	wanted := workflows.Query{
		TokenID: by.TokenID, All: by.Administers(), Approves: by.Has(models.ScopeWorkflowsApprove), Decidable: q.Decidable, Before: q.Before, Limit: q.Limit,
	}
	if by.AgentID != nil {
		wanted.AgentID = *by.AgentID
	}
	if state := slices.Index(Statuses(), q.Status); state >= 0 {
		wanted.States = []int{state}
	}
	rows, err := workflows.List(e.Store.Reads(ctx), wanted)
	out := make([]Summary, len(rows))
	for i, w := range rows {
		out[i] = Summary{
			WorkflowID: w.ID, Status: status(w), Definition: ref(w), Pause: w.Pause, Approver: w.Approver, TokenID: w.TokenID, Actor: w.Actor, AgentID: w.Payer, Source: w.Source, TraceID: w.TraceID,
			ErrorCode: w.ErrorCode, Reason: w.Reason, CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, EndedAt: timeOrNil(w.EndedAt),
		}
	}
	return out, err
}

// CheckpointRecord is a checkpoint of a workflow with its decision.
type CheckpointRecord struct {
	CheckpointID string `json:"checkpoint_id" example:"cp_034530bbngmsf6j6dh3xtmbr50"`                 // The checkpoint's id.
	Pause        string `json:"pause" enums:"layer,approval,uncertain,budget" example:"approval"`      // What it asks for: the confirmation of a layer, an approval, a decision on lost results, or a larger budget.
	Layer        int    `json:"layer,omitempty" example:"1"`                                           // Number of the completed layer, from 1; only after a layer.
	State        string `json:"state" enums:"open,approved,rejected,stale,expired" example:"approved"` // The state; `stale` means that the shown tasks have changed, so that nothing was approved.
	Resolution   string `json:"resolution,omitempty" enums:"retry,accept,skip,raise" example:"retry"`  // What was decided about tasks whose results were lost, or `raise` for a raised budget.
	Feedback     string `json:"feedback,omitempty" example:"the arguments are right"`                  // The text of the decision.
	DecidedBy    string `json:"decided_by,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8058"`   // Id of the token that decided; absent without a decision.
	Actor        string `json:"actor,omitempty" example:"claude-desktop"`                              // Name of the token that decided.
	// When the checkpoint was created.
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	// When the decision was made; null while the checkpoint is open.
	DecidedAt *time.Time  `json:"decided_at" example:"2026-01-10T15:30:02Z"`
	ExpiresAt time.Time   `json:"expires_at" example:"2026-01-10T16:30:00Z"`                                         // When it expires without a decision.
	Digest    string      `json:"digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"` // A digest of the tasks.
	Steps     []shownStep `json:"steps"`                                                                             // The tasks that it shows.
} // @name WorkflowCheckpointRecord

// Checkpoints returns at most limit checkpoints of a workflow, newest first, that precede the checkpoint with an id; "" starts
// with the newest. It returns fewer if they show more than maxView bytes. more reports whether others follow.
func (e *Engine) Checkpoints(ctx context.Context, by models.Principal, id, before string, limit int) (out []CheckpointRecord, more bool, err error) {
	from := e.Store.Reads(ctx)
	row, err := workflows.Get(from, id)
	if err = e.visible(ctx, row, err, by, id); err != nil {
		return nil, false, err
	}
	list, err := workflows.Checkpoints(from, id, before, limit+1)
	if err != nil || len(list) == 0 {
		return nil, false, err
	}
	var tokens []string
	for _, c := range list {
		tokens = append(tokens, c.DecidedBy)
	}
	names, err := workflows.Names(from, tokens)
	if err != nil {
		return nil, false, err
	}
	size := 0
	for _, c := range list {
		if size += len(c.Shown); len(out) == limit || size > maxView && len(out) > 0 {
			return out, true, nil
		}
		r := CheckpointRecord{
			CheckpointID: c.ID, Pause: c.Kind, Layer: c.Layer, State: c.State, Resolution: c.Resolution, Feedback: c.Feedback, DecidedBy: c.DecidedBy,
			Actor: names[c.DecidedBy], CreatedAt: c.CreatedAt, DecidedAt: timeOrNil(c.DecidedAt), ExpiresAt: c.ExpiresAt, Digest: c.Digest,
		}
		if r.Steps, err = shownSteps(c); err != nil {
			return nil, false, err
		}
		out = append(out, r)
	}
	return out, false, nil
}

// Result returns the complete result of a step, as JSON.
func (e *Engine) Result(ctx context.Context, by models.Principal, id, step string) (json.RawMessage, error) {
	x, err := e.read(ctx, by, id, 0)
	if err != nil {
		return nil, err
	}
	switch i := x.position(step); {
	case i < 0:
		return nil, errs.New(errs.NotFound, "the workflow %s has no task %q", id, input.Clip(step))
	case x.state(i) != plan.Success:
		return nil, errs.New(errs.NotFound, "the task %q has no result: its status is %s", step, stepStatus(x.steps[i]))
	default:
		return x.result(ctx)(i)
	}
}
