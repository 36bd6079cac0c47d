package orchestrator

import (
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// The bounds of what a task may set differently.
const (
	minTimeout  = 100 * time.Millisecond
	maxTimeout  = 7 * 24 * time.Hour
	maxRetries  = 10
	maxSubmitID = 64
)

// validate judges a submission by itself. It sets what is left out.
func (sub *Submission) validate() error {
	var v errs.Violations
	wrong := func(at, rule, format string, args ...any) { v.Add(errs.InvalidRequest, at, rule, format, args...) }
	if sub.Class == "" {
		sub.Class = ClassDefault
	}
	if len(sub.Capabilities) == 0 && sub.AgentType == "" && sub.AgentID == "" {
		wrong("/capabilities", "required", "capabilities must say what an agent must be able to do, unless agent_id or agent_type says who is meant")
	}
	if len(sub.Capabilities) > models.MaxTaskCapabilities {
		wrong("/capabilities", "max", "capabilities must have at most %d entries, not %d", models.MaxTaskCapabilities, len(sub.Capabilities))
	}
	if sub.Priority < 0 || sub.Priority > models.MaxPriority {
		wrong("/priority", "max", "priority must be 0 to %d, not %d", models.MaxPriority, sub.Priority)
	}
	if sub.Budget != nil && (*sub.Budget < 1 || *sub.Budget > models.MaxTokens) {
		wrong("/budget", "min", "budget must be 1 to %d tokens", int64(models.MaxTokens))
	}
	if ms := sub.Override.TimeoutMS; ms != 0 && (ms < minTimeout.Milliseconds() || ms > maxTimeout.Milliseconds()) {
		wrong("/timeout_ms", "range", "timeout_ms must be %d to %d", minTimeout.Milliseconds(), maxTimeout.Milliseconds())
	}
	if r := sub.Override.Retries; r != nil && (*r < 0 || *r > maxRetries) {
		wrong("/retries", "range", "retries must be 0 to %d", maxRetries)
	}
	sub.checkWorkers(wrong)
	sub.checkOverrun(wrong)
	if len(sub.ID) > maxSubmitID {
		wrong("/id", "max", "id must have at most %d bytes", maxSubmitID)
	}
	sub.Parameters = orEmpty(sub.Parameters)
	if len(sub.Parameters) > models.MaxTaskParameters {
		wrong("/parameters", "max", "parameters must have at most %d bytes", models.MaxTaskParameters)
	} else if !isObject(sub.Parameters) {
		wrong("/parameters", "object", "parameters must be a JSON object")
	}
	sub.Meta = orEmpty(sub.Meta)
	return v.Err()
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func isObject(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && members != nil
}

// newTask makes the rows of a submission that check has accepted.
func (sub Submission) newTask(by models.Principal, now time.Time) (models.Task, models.TaskInput, error) {
	policy, err := json.Marshal(sub.Override)
	in := models.TaskInput{
		TaskID: sub.ID, Capabilities: sub.Capabilities, AgentType: sub.AgentType, Sphere: sub.SphereID, RequestedAgentID: sub.AgentID,
		Parameters: sub.Parameters, Policy: policy, Meta: sub.Meta, Trace: sub.Traceparent,
	}
	t := models.Task{
		ID: sub.ID, SessionID: sub.SessionID, ParentID: sub.parentID, Depth: sub.depth, Class: sub.Class, Owner: by.TokenID, QueueKey: sub.queueKey(in), Priority: sub.Priority,
		State: models.TaskNew, Budget: sub.Budget, Deadline: now, CreatedAt: now, UpdatedAt: now, Version: 1,
	}
	if by.AgentID != nil {
		t.OwnerAgent = *by.AgentID
	}
	return t, in, err
}
