package v5

import (
	"context"
	"encoding/json"
	"strings"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/telemetry"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// Event is an event of the core as a line of the log (PROTOCOL_V5 §10.3). What happens to a
// task is told as the line that says it in this protocol, whichever its agents speak, with
// the code and the DATA that this door gives it; agents and tasks get their short names for
// that. Another event, and one about a task that is not kept any more, is told by its type
// and key.
func (p *Protocol) Event(ctx context.Context, e models.Event) (string, error) {
	m, err := p.eventMessage(ctx, e)
	switch {
	case isNotFound(err):
		return string(telemetry.AppendV5Note(nil, e.At, string(e.Type)+" "+e.Key)), nil
	case err != nil:
		return "", err
	}
	return string(traceRecord(m).Append(nil, e.At, telemetry.V5Level(m.Type.String()))), nil
}

// eventMessage is the line that tells of an event, or errs.NotFound where there is none.
func (p *Protocol) eventMessage(ctx context.Context, e models.Event) (m wire.Message, err error) {
	if !strings.HasPrefix(string(e.Type), "task.") {
		return m, errs.New(errs.NotFound, "no line tells of %s", e.Type)
	}
	var changed models.TaskChanged
	if err := json.Unmarshal(e.Data, &changed); err != nil {
		return m, err
	}
	return p.taskEventMessage(ctx, e.Type, changed)
}

// parties are those between whom an event of a task is. handed is set for what an agent has
// handed off, which is then the asker; shared for what one of several workers does.
type parties struct {
	requester, worker wire.Address
	handedOff, shared bool
}

// reportRoute is from whom to whom a worker's report goes: to the source of what was handed off
// (§5.3), and otherwise to O1. What several do is told by O1.
func (b parties) reportRoute() (from, to wire.Address) {
	switch {
	case b.worker == self:
		return self, b.requester
	case b.handedOff:
		return b.worker, b.requester
	}
	return b.worker, self
}

// taskEventMessage is the line that says what has happened to a task.
func (p *Protocol) taskEventMessage(ctx context.Context, kind models.EventType, e models.TaskChanged) (m wire.Message, err error) {
	t, err := p.orchestrator.Task(ctx, e.TaskID)
	if err != nil {
		return m, err
	}
	root, err := p.rootTask(ctx, t)
	if err != nil {
		return m, err
	}
	name, err := p.orchestrator.ShortID(ctx, root.ID, root.SessionID)
	if err != nil {
		return m, err
	}
	m.Context, m.Task = contextName(name.Context), wire.TaskOf(name.Task)
	between, err := p.partiesOf(ctx, t, e)
	if err != nil {
		return m, err
	}
	t.Attempt, t.AgentID = e.Attempt, e.AgentID // as they were then
	switch kind {
	case models.EventTaskAssigned:
		m.From, m.To = self, between.worker
		err = p.writeAssignment(ctx, &m, t)
	case models.EventTaskCompleted:
		m.From, m.To = between.reportRoute()
		err = p.writeOutcome(ctx, &m, t)
	case models.EventTaskFailed:
		m.From, m.To = self, between.requester
		if e.AgentID != "" && (len(t.Detail) > 0 || t.ErrorCode == string(orchestrator.FailureWork)) { // it has said so
			m.From, m.To = between.reportRoute()
		}
		err = p.writeOutcome(ctx, &m, t)
	case models.EventTaskCancelled:
		m.From, m.To = self, between.worker
		if e.AgentID == "" {
			m.From, m.To = between.requester, self
		}
		err = p.writeOutcome(ctx, &m, t)
	default:
		err = p.writeTaskEvent(ctx, &m, between, kind, e, t)
	}
	return m, err
}

// partiesOf returns who asked for a task and who had it at an event; without one it is O1.
func (p *Protocol) partiesOf(ctx context.Context, t models.Task, e models.TaskChanged) (out parties, err error) {
	out.requester, out.worker = wire.Address{Role: wire.User}, self
	asker := t.OwnerAgent
	if t.ParentID != nil {
		source, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return out, err
		}
		if out.handedOff = t.Depth > source.Depth; out.handedOff {
			asker = source.AgentID
		}
		out.shared = !out.handedOff
	}
	if asker != "" {
		if out.requester, err = p.agentAddress(ctx, asker); err != nil {
			return out, err
		}
	}
	if e.AgentID != "" {
		out.worker, err = p.agentAddress(ctx, e.AgentID)
	}
	return out, err
}

// writeTaskEvent makes the line of an event on the way.
func (p *Protocol) writeTaskEvent(ctx context.Context, m *wire.Message, b parties, kind models.EventType, e models.TaskChanged, t models.Task) (err error) {
	m.From, m.To = b.reportRoute()
	if m.Data = "-"; b.handedOff {
		m.To = self
	}
	w := new(wire.Writer)
	switch kind {
	case models.EventTaskCreated:
		return p.writeTaskCreated(ctx, m, b, t)
	case models.EventTaskStarted:
		m.Type = wire.Ack
		return nil
	case models.EventTaskProgress:
		m.Type = wire.Update
		m.Data, err = progressData(e.Progress, e.StepName).Data()
	case models.EventTaskQuestion:
		m.Type = wire.Clarify
		m.Data = questionData(e)
	case models.EventTaskReplied:
		m.From, m.To, m.Type = self, b.worker, wire.Clarify
		m.Data, err = w.Text("answer", e.Reply).Data()
	case models.EventTaskRetried:
		m.Type, m.Err = wire.Failure, errorCode(models.Task{ErrorCode: e.Failure, Attempt: e.Attempt}, failureDetail{})
		if f := orchestrator.Failure(e.Failure); f == orchestrator.FailureTimeout || f == orchestrator.FailureUnavailable { // O1 has found that out
			m.From, m.To = self, b.worker
		}
		m.Data, err = w.Text("desc", m.Err.Meaning()).Data()
	default: // in line for an agent
		m.From, m.To, m.Type = self, b.requester, wire.Ack
		m.Data, err = w.Add("waiting_for", string(e.WaitingFor)).Data()
	}
	return err
}

// writeTaskCreated is the R that a task was asked for with, or what a source says of a part that it
// hands off (§5.3).
func (p *Protocol) writeTaskCreated(ctx context.Context, m *wire.Message, b parties, t models.Task) error {
	if b.shared { // nobody has said so
		return errs.New(errs.NotFound, "no line tells of a part that O1 has made")
	}
	m.From, m.To, m.Type = b.requester, self, wire.Request
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err != nil {
		return err
	}
	if t.ParentID == nil || order.Input.RequestedAgentID == "" {
		m.Data, err = p.requestData(order.Task, order.Input, m.Task, wire.Retry{})
		return err
	}
	m.Type = wire.Update
	target, err := p.agentAddress(ctx, order.Input.RequestedAgentID)
	if err == nil {
		m.Data, err = new(wire.Writer).Add("handoff", target.String()).Data()
	}
	return err
}

// questionData is the DATA of an agent's C, without its options where they have no room.
func questionData(e models.TaskChanged) wire.Data {
	w := new(wire.Writer).Text("question", e.Question)
	data, err := w.Data()
	if err != nil {
		return "-"
	}
	if with, err := w.List("options", e.Options...).Data(); err == nil && len(e.Options) > 0 {
		return with
	}
	return data
}
