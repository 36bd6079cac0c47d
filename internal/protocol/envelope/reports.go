package envelope

import (
	"cmp"
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// requireAgent rejects reports from senders that are not agents and reports that are not addressed
// to the orchestrator.
func requireAgent(s sender, e wire.Envelope) error {
	if s.agentID == "" {
		return invalidField(nil, "from_agent", "from_agent: only an agent may send "+string(e.Type)+", with its own token")
	}
	if e.To != wire.Orchestrator {
		return invalidField(nil, "to_agent", "to_agent must be orchestrator if the type is "+string(e.Type)+", not "+e.To)
	}
	return nil
}

// progress processes a work_status (Chiffon §work_status). The first one accepts the task; each one
// shows that the agent is alive.
func (p *Protocol) progress(ctx context.Context, s sender, e wire.Envelope, payload wire.WorkStatus) (protocol.Reply, error) {
	report := orchestrator.Progress{Percent: &payload.Progress, MessageID: e.MessageID.String()}
	if payload.Step != nil {
		report.Step, report.StepName = payload.Step.Number, payload.Step.Name
		if payload.Step.Chunk == (wire.Range{}) {
			report.Log = []byte(payload.Step.Output)
		} else {
			c := payload.Step.Chunk
			report.Chunk = &orchestrator.Chunk{
				Step: payload.Step.Number, Start: c.From, Span: c.To - c.From, Total: c.Total, Data: []byte(payload.Step.Output),
			}
		}
	}
	t, err := p.work.Progress(ctx, s.agentID, payload.TaskID.String(), report)
	if err != nil {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// heartbeat processes a heartbeat. It brings an offline or unknown agent online.
func (p *Protocol) heartbeat(ctx context.Context, s sender, payload wire.Heartbeat) (protocol.Reply, error) {
	if payload.AgentID != s.agentID || s.agentID == "" {
		return protocol.Reply{}, errs.New(errs.Unauthenticated, "the heartbeat names another agent")
	}
	if payload.Status == wire.PresenceOffline {
		return accepted(""), p.work.Leave(ctx, s.agentID, false)
	}
	beat := orchestrator.Heartbeat{State: models.WorkerOnline, Load: payload.Load}
	if payload.Status == wire.PresenceBusy {
		beat.State = models.WorkerBusy
	}
	_, err := p.work.Heartbeat(ctx, s.agentID, beat)
	if errs.Is(err, errs.NotFound) {
		if _, err = p.work.Join(ctx, s.agentID, orchestrator.JoinRequest{Protocol: Name, Transport: "poll"}); err == nil {
			_, err = p.work.Heartbeat(ctx, s.agentID, beat)
		}
	}
	reply := accepted("")
	reply.Joined = err == nil
	return reply, err
}

// maxFailureText limits the reason of a failure, in bytes.
const maxFailureText = 1000

// complete processes a work_result (Chiffon §work_result). A result for a task that has ended in
// another way is accepted too: its usage is charged.
func (p *Protocol) complete(ctx context.Context, s sender, e wire.Envelope, payload wire.WorkResult) (protocol.Reply, error) {
	exit := int(payload.ExitCode)
	var custom struct{ Failure string }
	_ = json.Unmarshal(e.Custom, &custom) // other agents may send other members
	message := input.ClipBytes(wire.Clean(custom.Failure), maxFailureText)
	used := payload.Resources
	detail, err := json.Marshal(resultDetail{used.DurationSeconds, used.GPUVRAMMB, used.CPUTimeMS, exit, message})
	if err != nil {
		return protocol.Reply{}, err
	}
	r := orchestrator.Result{
		ExitCode: &exit, Output: []byte(payload.Output), Tokens: payload.Resources.Tokens, Detail: detail, MessageID: e.MessageID.String(),
	}
	switch payload.Status {
	case wire.OutcomeFailed:
		r.Failure, r.Text = orchestrator.FailureWork, cmp.Or(message, "the work failed")
	case wire.OutcomeCancelled:
		r.Failure, r.Text = orchestrator.FailureWork, "the agent cancelled the work"
	}
	return p.endTask(ctx, s, payload.TaskID.String(), r)
}

// endTask ends a task of an agent; a task that has ended already does not change.
func (p *Protocol) endTask(ctx context.Context, s sender, taskID string, r orchestrator.Result) (protocol.Reply, error) {
	t, err := p.work.Complete(ctx, s.agentID, taskID, r)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// agentError processes an error from an agent (Chiffon §error). The error names no task, but it
// echoes the request_id of one.
func (p *Protocol) agentError(ctx context.Context, s sender, e wire.Envelope, payload wire.Failure) (protocol.Reply, error) {
	open, err := p.work.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return protocol.Reply{}, err
	}
	var found *task
	for _, stored := range open {
		t, err := taskOf(stored)
		if err != nil {
			return protocol.Reply{}, err
		}
		// Two clients may have used the same request_id; then the trace id decides.
		if t.requestID == e.RequestID && (found == nil || t.traceID == e.TraceID) {
			found = &t
		}
	}
	if found != nil {
		return p.failTask(ctx, s, e, *found, payload)
	}
	if processed, err := p.work.IsProcessed(ctx, s.agentID, e.MessageID.String()); err != nil || processed {
		return accepted(""), err // the message was processed before
	}
	return protocol.Reply{}, invalidField(nil, "request_id", "request_id "+e.RequestID.String()+" belongs to none of your tasks")
}

func (p *Protocol) failTask(ctx context.Context, s sender, e wire.Envelope, t task, payload wire.Failure) (protocol.Reply, error) {
	var c failureDetail
	_ = json.Unmarshal(payload.Context, &c) // an error with a custom code may have any context
	c.Code, c.Context = 0, nil              // of comet, not of the agent
	failure := failureOf(payload.Code)
	if failure == orchestrator.FailureWork || failure == orchestrator.FailureUnsupported || failure == orchestrator.FailureInvalid {
		c.Code, c.Context = payload.Code, payload.Context
	}
	detail, err := json.Marshal(c)
	if err != nil {
		return protocol.Reply{}, err
	}
	r := orchestrator.Result{Failure: failure, Text: payload.Message, Detail: detail, MessageID: e.MessageID.String()}
	return p.endTask(ctx, s, t.Task.ID, r)
}

// failureOf converts an error code to a failure of the core. An unknown code, or one about the
// agent's own token, is a failure of the work.
func failureOf(c wire.Code) orchestrator.Failure {
	switch c {
	case wire.CodeTimeout:
		return orchestrator.FailureTimeout
	case wire.CodeUnavailable:
		return orchestrator.FailureUnavailable
	case wire.CodeInvalidMessage:
		return orchestrator.FailureInvalid
	case wire.CodeResourceLimit:
		return orchestrator.FailureResource
	case wire.CodeUnsupportedWorkType:
		return orchestrator.FailureUnsupported
	}
	return orchestrator.FailureWork
}

// taskError converts an error about a task that does not exist, belongs to another sender or has
// ended.
func taskError(err error) error {
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.TaskState) {
		return invalidField(err, "payload.task_id", errs.From(err).Detail)
	}
	return err
}
