package envelope

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// limitTokens is the limit_name of a task's token budget.
const limitTokens = "token_budget"

// exitCancelled is the exit code of a cancelled task, which is that of an interrupted program.
const exitCancelled = 130

// endPayload returns the message about a task that has ended: a work_result if the task succeeded
// or the work itself failed, otherwise an error (Chiffon §Error Codes).
func (p *Protocol) endPayload(ctx context.Context, t task) (wire.Payload, error) {
	switch f, d := orchestrator.Failure(t.Task.ErrorCode), t.failureDetail(); {
	case t.Task.State == models.TaskFailed && d.Code != 0:
		return wire.Failure{Code: d.Code, Message: t.Task.Error, Context: d.Context}, nil
	case t.Task.State == models.TaskCancelled:
		return wire.WorkResult{TaskID: t.id, Status: wire.OutcomeFailed, ExitCode: exitCancelled, Output: t.Task.Error}, nil
	case t.Task.State == models.TaskDone, f == orchestrator.FailureWork, f == orchestrator.FailureQuestions:
		return p.result(ctx, t)
	default:
		return p.failure(ctx, t, f)
	}
}

func (p *Protocol) result(ctx context.Context, t task) (wire.Payload, error) {
	out := wire.WorkResult{TaskID: t.id, Status: wire.OutcomeSuccess}
	if t.Task.State != models.TaskDone {
		out.Status, out.ExitCode = wire.OutcomeFailed, 1
	}
	if c := t.Task.ExitCode; c != nil && (*c == 0) == (out.Status == wire.OutcomeSuccess) {
		out.ExitCode = int64(*c)
	}
	if t.Task.OutputBytes <= maxInline {
		text, err := p.output(ctx, t.Task)
		if err != nil {
			return nil, err
		}
		out.Output = text
	}
	if out.Output == "" && t.Task.OutputBytes == 0 {
		out.Output = t.Task.Error
	}
	out.Resources = resourcesOf(t)
	return out, nil
}

// resourcesOf returns the resources used by a task, which its agent reported.
func resourcesOf(t task) wire.Resources {
	var r resultDetail
	_ = json.Unmarshal(t.Task.Detail, &r) // another protocol may store another detail
	out := wire.Resources{DurationSeconds: r.Duration, GPUVRAMMB: r.GPU, CPUTimeMS: r.CPU, Tokens: t.Task.Tokens}
	if out.DurationSeconds == 0 && t.Task.StartedAt != nil && t.Task.EndedAt != nil {
		out.DurationSeconds = int64(t.Task.EndedAt.Sub(*t.Task.StartedAt).Seconds())
	}
	return out
}

// resultDetail is the stored form of resources_used of a work_result and of the context of a failure.
type resultDetail struct {
	Duration int64 `json:"duration_seconds"`
	GPU      int64 `json:"gpu_vram_mb"`
	CPU      int64 `json:"cpu_time_ms"`
	ExitCode int   `json:"exit_code,omitempty"`
	// Message is the reason of a failure that comet's own agents send, "" for none.
	Message string `json:"message,omitempty"`
}

// output returns a result that is short enough for one message.
func (p *Protocol) output(ctx context.Context, t models.Task) (string, error) {
	if t.OutputBytes == 0 {
		return "", nil
	}
	var b strings.Builder
	err := p.work.Output(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		b.Write(o.Data)
		return nil
	})
	return wire.Clean(b.String()), err
}

func (p *Protocol) failure(ctx context.Context, t task, f orchestrator.Failure) (wire.Payload, error) {
	if t.Input.TaskID == "" { // not loaded before
		var err error
		if t.TaskWithInput, err = p.work.TaskWithInput(ctx, t.Task.ID); err != nil {
			return nil, err
		}
	}
	switch f {
	case orchestrator.FailureUnsupported:
		return wire.UnsupportedWorkType(t.workType(), p.work.CapabilitiesOf(t.Input.AgentType)), nil
	case orchestrator.FailureInvalid:
		return wire.InvalidMessage(wire.Problem{Field: t.failureDetail().Field, Detail: t.Task.Error}), nil
	case orchestrator.FailureResource:
		l := t.failureDetail()
		return wire.ResourceLimit(l.Limit, l.Available, l.Required), nil
	case orchestrator.FailureBudget:
		budget := *cmp.Or(t.Task.Budget, new(int64))
		return wire.ResourceLimit(limitTokens, max(budget-t.Task.Tokens, 0), budget), nil
	}
	attempts, err := p.work.Attempts(ctx, t.Task.ID)
	if err != nil {
		return nil, err
	}
	if f == orchestrator.FailureTimeout || f == orchestrator.FailureExpired || f == orchestrator.FailureUnanswered {
		last := t.Task.CreatedAt
		if len(attempts) > 0 {
			last = attempts[len(attempts)-1].AssignedAt
		}
		return wire.Timeout(max(len(attempts)-1, 0), last), nil
	}
	return p.unavailable(ctx, t, attempts)
}

// unavailable names the agent that was tried last, or the requested agent or type if none was tried.
func (p *Protocol) unavailable(ctx context.Context, t task, attempts []models.Attempt) (wire.Payload, error) {
	for i := len(attempts) - 1; i >= 0; i-- {
		id := attempts[i].AgentID
		if id == "" {
			continue
		}
		w, err := p.work.Worker(ctx, id)
		if errs.Is(err, errs.NotFound) || err == nil && w.LastSeenAt.IsZero() {
			return wire.Unavailable(id, nil), nil
		}
		return wire.Unavailable(id, &w.LastSeenAt), err
	}
	return wire.Unavailable(cmp.Or(t.Input.RequestedAgentID, t.Input.AgentType, wire.Orchestrator), nil), nil
}

// failureDetail is how error_context of an agent's error is stored.
type failureDetail struct {
	Limit     string `json:"limit_name,omitempty"`
	Available int64  `json:"available,omitempty"`
	Required  int64  `json:"required,omitempty"`
	Field     string `json:"field_name,omitempty"`
	// Code and Context are those of an error that the requester gets as the agent sent it.
	Code    wire.Code       `json:"envelope_code,omitempty"`
	Context json.RawMessage `json:"envelope_context,omitempty"`
}

func (t task) failureDetail() failureDetail {
	var f failureDetail
	_ = json.Unmarshal(t.Task.Detail, &f) // another protocol may store another detail
	return f
}
