package envelope

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// requireAgent refuses reports on work from somebody who is no agent, and those that are
// not meant for us.
func requireAgent(s sender, e wire.Envelope) error {
	if s.agentID == "" {
		return refusal{wire.InvalidMessage(wire.Problem{
			Field: "from_agent", Detail: "from_agent: only an agent sends " + string(e.Type) + ", with a token of its own",
		}), nil}
	}
	if e.To != wire.Orchestrator {
		return refusal{wire.InvalidMessage(wire.Problem{
			Field: "to_agent", Detail: "to_agent must be orchestrator where the type is " + string(e.Type) + ", not " + e.To,
		}), nil}
	}
	return nil
}

// progress takes a work_status (Chiffon §work_status). The first one says that the agent
// has the work, each one that it is alive.
func (d *Protocol) progress(ctx context.Context, s sender, e wire.Envelope, p wire.WorkStatus) (protocol.Reply, error) {
	if err := requireAgent(s, e); err != nil {
		return protocol.Reply{}, err
	}
	report := orchestrator.Progress{Percent: &p.Progress, MessageID: e.MessageID.String()}
	if p.Step != nil {
		report.Step, report.StepName = p.Step.Number, p.Step.Name
		if p.Step.Chunk == (wire.Range{}) {
			report.Log = []byte(p.Step.Output)
		} else {
			c := p.Step.Chunk
			report.Chunk = &orchestrator.Chunk{
				Step: p.Step.Number, Start: c.From, Span: c.To - c.From, Total: c.Total, Data: []byte(p.Step.Output),
			}
		}
	}
	t, err := d.work.Progress(ctx, s.agentID, p.TaskID.String(), report)
	if err != nil {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// heartbeat takes a sign of life. It brings back an agent that was away, and one that
// has never been here.
func (d *Protocol) heartbeat(ctx context.Context, s sender, p wire.Heartbeat) (protocol.Reply, error) {
	if p.AgentID != s.agentID || s.agentID == "" {
		return protocol.Reply{}, errs.New(errs.Unauthenticated, "a heartbeat of another agent")
	}
	if p.Status == wire.PresenceOffline {
		return accepted(""), d.work.Leave(ctx, s.agentID, false)
	}
	beat := orchestrator.Heartbeat{State: models.WorkerOnline, Load: p.Load}
	if p.Status == wire.PresenceBusy {
		beat.State = models.WorkerBusy
	}
	_, err := d.work.Heartbeat(ctx, s.agentID, beat)
	if errs.Is(err, errs.NotFound) {
		if _, err = d.work.Join(ctx, s.agentID, orchestrator.JoinRequest{Protocol: Name, Transport: "poll"}); err == nil {
			_, err = d.work.Heartbeat(ctx, s.agentID, beat)
		}
	}
	a := accepted("")
	a.Joined = err == nil
	return a, err
}

// complete takes a work_result (Chiffon §work_result). One that comes when the task has
// ended otherwise is taken too: what it used is charged, and the agent has done its part.
func (d *Protocol) complete(ctx context.Context, s sender, e wire.Envelope, p wire.WorkResult) (protocol.Reply, error) {
	if err := requireAgent(s, e); err != nil {
		return protocol.Reply{}, err
	}
	exit := int(p.ExitCode)
	detail, err := json.Marshal(resources{p.Resources.DurationSeconds, p.Resources.GPUVRAMMB, p.Resources.CPUTimeMS})
	if err != nil {
		return protocol.Reply{}, err
	}
	r := orchestrator.Result{
		ExitCode: &exit, Output: []byte(p.Output), Tokens: p.Resources.Tokens, Detail: detail, MessageID: e.MessageID.String(),
	}
	switch p.Status {
	case wire.OutcomeFailed:
		r.Failure, r.Text = orchestrator.FailureWork, "the work failed"
	case wire.OutcomeCancelled:
		r.Failure, r.Text = orchestrator.FailureWork, "the agent gave the work up"
	}
	t, err := d.work.Complete(ctx, s.agentID, p.TaskID.String(), r)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// agentError takes an agent's error (Chiffon §error). It names no task, so the request_id
// does, which the error echoes.
func (d *Protocol) agentError(ctx context.Context, s sender, e wire.Envelope, p wire.Failure) (protocol.Reply, error) {
	if err := requireAgent(s, e); err != nil {
		return protocol.Reply{}, err
	}
	orders, err := d.work.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return protocol.Reply{}, err
	}
	var found *task
	for _, order := range orders {
		a, err := taskOf(order)
		if err != nil {
			return protocol.Reply{}, err
		}
		// Two askers may have used the same request_id; the trace tells them apart.
		if a.requestID == e.RequestID && (found == nil || a.traceID == e.TraceID) {
			found = &a
		}
	}
	if found != nil {
		return d.failTask(ctx, s, e, *found, p)
	}
	if heard, err := d.work.IsProcessed(ctx, s.agentID, e.MessageID.String()); err != nil || heard {
		return accepted(""), err // it has had its effect
	}
	return protocol.Reply{}, refusal{wire.InvalidMessage(wire.Problem{
		Field: "request_id", Detail: "request_id " + e.RequestID.String() + " is of no task that you have",
	}), nil}
}

func (d *Protocol) failTask(ctx context.Context, s sender, e wire.Envelope, a task, p wire.Failure) (protocol.Reply, error) {
	var c failureDetail
	_ = json.Unmarshal(p.Context, &c) // a code of its own may have any context
	detail, err := json.Marshal(c)
	if err != nil {
		return protocol.Reply{}, err
	}
	r := orchestrator.Result{Failure: failureOf(p.Code), Text: p.Message, Detail: detail, MessageID: e.MessageID.String()}
	t, err := d.work.Complete(ctx, s.agentID, a.Task.ID, r)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// failureOf is what a code means to the core. One that the document does not name, or
// that tells of the agent's own trouble with a token, is work that failed.
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

// taskError is the refusal of a message about a task that is not there, or not the
// sender's, or has ended.
func taskError(err error) error {
	var e *errs.Error
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.TaskState) {
		if asError(err, &e) {
			return refusal{wire.InvalidMessage(wire.Problem{Field: "payload.task_id", Detail: e.Detail}), err}
		}
	}
	return err
}
