package envelope

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// limitTokens is the limit_name of a task's budget.
const limitTokens = "token_budget"

// exitCancelled is the exit code of a task that was taken back: that of a program which
// was interrupted.
const exitCancelled = 130

// endPayload is how a task that has ended is told: work that was done or failed is a
// work_result, what kept it from being done an error (Chiffon §Error Codes).
func (d *Protocol) endPayload(ctx context.Context, a task) (wire.Payload, error) {
	switch f := orchestrator.Failure(a.Task.ErrorCode); {
	case a.Task.State == models.TaskCancelled:
		return wire.WorkResult{TaskID: a.id, Status: wire.OutcomeFailed, ExitCode: exitCancelled, Output: a.Task.Error}, nil
	case a.Task.State == models.TaskDone || !isError(f):
		return d.result(ctx, a)
	default:
		return d.failure(ctx, a, f)
	}
}

// isError reports whether a failure is told as an error rather than as a result.
func isError(f orchestrator.Failure) bool {
	switch f {
	case orchestrator.FailureWork, orchestrator.FailureQuestions:
		return false
	}
	return true
}

func (d *Protocol) result(ctx context.Context, a task) (wire.Payload, error) {
	p := wire.WorkResult{TaskID: a.id, Status: wire.OutcomeSuccess}
	if a.Task.State != models.TaskDone {
		p.Status, p.ExitCode = wire.OutcomeFailed, 1
	}
	if c := a.Task.ExitCode; c != nil && (*c == 0) == (p.Status == wire.OutcomeSuccess) {
		p.ExitCode = int64(*c)
	}
	if a.Task.OutputBytes <= maxInline {
		text, err := d.output(ctx, a.Task)
		if err != nil {
			return nil, err
		}
		p.Output = text
	}
	if p.Output == "" && a.Task.OutputBytes == 0 {
		p.Output = a.Task.Error
	}
	p.Resources = resourcesOf(a)
	return p, nil
}

// resourcesOf are the resources of a task: what its agent told, which is kept as the detail.
func resourcesOf(a task) wire.Resources {
	var r resources
	_ = json.Unmarshal(a.Task.Detail, &r) // another dialect may keep something else
	out := wire.Resources{DurationSeconds: r.Duration, GPUVRAMMB: r.GPU, CPUTimeMS: r.CPU, Tokens: a.Task.Tokens}
	if out.DurationSeconds == 0 && a.Task.StartedAt != nil && a.Task.EndedAt != nil {
		out.DurationSeconds = int64(a.Task.EndedAt.Sub(*a.Task.StartedAt).Seconds())
	}
	return out
}

// resources is what is kept of a work_result's resources_used.
type resources struct {
	Duration int64 `json:"duration_seconds"`
	GPU      int64 `json:"gpu_vram_mb"`
	CPU      int64 `json:"cpu_time_ms"`
}

// output reads a result that is short enough to be told in one message.
func (d *Protocol) output(ctx context.Context, t models.Task) (string, error) {
	if t.OutputBytes == 0 {
		return "", nil
	}
	var b strings.Builder
	err := d.work.OutputOf(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		b.Write(o.Data)
		return nil
	})
	return clean(b.String()), err
}

// clean makes output text: bytes that are no characters, and those no JSON string of the
// protocol may hold, are replaced.
func clean(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// failure is the error that a task ended with.
func (d *Protocol) failure(ctx context.Context, a task, f orchestrator.Failure) (wire.Payload, error) {
	if a.Input.TaskID == "" { // it was not needed before
		var err error
		if a.TaskWithInput, err = d.work.TaskWithInput(ctx, a.Task.ID); err != nil {
			return nil, err
		}
	}
	switch f {
	case orchestrator.FailureUnsupported:
		return wire.UnsupportedWorkType(a.workType(), d.work.CapabilitiesOf(a.Input.AgentType)), nil
	case orchestrator.FailureInvalid:
		return wire.InvalidMessage(wire.Problem{Field: a.failureDetail().Field, Detail: a.Task.Error}), nil
	case orchestrator.FailureResource:
		l := a.failureDetail()
		return wire.ResourceLimit(l.Limit, l.Available, l.Required), nil
	case orchestrator.FailureBudget:
		budget := int64(0)
		if a.Task.Budget != nil {
			budget = *a.Task.Budget
		}
		return wire.ResourceLimit(limitTokens, max(budget-a.Task.Tokens, 0), budget), nil
	}
	attempts, err := d.work.Attempts(ctx, a.Task.ID)
	if err != nil {
		return nil, err
	}
	if f == orchestrator.FailureTimeout || f == orchestrator.FailureUnanswered {
		last := a.Task.CreatedAt
		if len(attempts) > 0 {
			last = attempts[len(attempts)-1].AssignedAt
		}
		return wire.Timeout(max(len(attempts)-1, 0), last), nil
	}
	return d.unavailable(ctx, a, attempts)
}

// unavailable names the agent that was tried last, or the type of which none was there.
func (d *Protocol) unavailable(ctx context.Context, a task, attempts []models.Attempt) (wire.Payload, error) {
	for i := len(attempts) - 1; i >= 0; i-- {
		id := attempts[i].AgentID
		if id == "" {
			continue
		}
		w, err := d.work.Worker(ctx, id)
		if errs.Is(err, errs.NotFound) || err == nil && w.LastSeenAt.IsZero() {
			return wire.Unavailable(id, nil), nil
		}
		return wire.Unavailable(id, &w.LastSeenAt), err
	}
	name := a.Input.AgentType
	if a.Input.RequestedAgentID != "" {
		name = a.Input.RequestedAgentID
	}
	if name == "" {
		name = wire.Orchestrator
	}
	return wire.Unavailable(name, nil), nil
}

// failureDetail is what is kept of an agent's error_context.
type failureDetail struct {
	Limit     string `json:"limit_name,omitempty"`
	Available int64  `json:"available,omitempty"`
	Required  int64  `json:"required,omitempty"`
	Field     string `json:"field_name,omitempty"`
}

func (a task) failureDetail() failureDetail {
	var f failureDetail
	_ = json.Unmarshal(a.Task.Detail, &f) // another dialect may keep something else
	return f
}

// metaStrings and metaNumber read what a core's error carries.
func metaStrings(err error, key string) []string {
	texts, _ := metaOfError(err)[key].([]string)
	return texts
}

func metaNumber(err error, key string) int64 {
	n, _ := metaOfError(err)[key].(int64)
	return n
}

func metaOfError(err error) map[string]any {
	var e *errs.Error
	if !errors.As(err, &e) {
		return nil
	}
	return e.Meta
}
