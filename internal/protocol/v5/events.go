package v5

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/logformat"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// Event returns an event of the core as a line of the log (PROTOCOL_V5 §10.3). An event of a task
// becomes the V5 message about it, whichever protocol its agents speak; agents and tasks get
// short names for that. Another event, and one of a purged task, is written with its type and
// key. A task that was assigned when it was created has two lines: its request and its assignment.
func (p *Protocol) Event(ctx context.Context, e models.Event) (string, error) {
	text, err := p.eventLine(ctx, e)
	if err != nil || e.Type != events.TaskCreated {
		return text, err
	}
	var created events.TaskData
	if err := json.Unmarshal(e.Data, &created); err != nil || created.AgentID == "" {
		return text, err
	}
	e.Type = events.TaskAssigned
	assignment, err := p.eventLine(ctx, e)
	return text + "\n" + assignment, err
}

func (p *Protocol) eventLine(ctx context.Context, e models.Event) (string, error) {
	m, err := p.eventMessage(ctx, e)
	switch {
	case isNotFound(err):
		return string(logformat.AppendText(nil, e.At, slog.LevelInfo, string(e.Type)+" "+e.Key)), nil
	case err != nil:
		return "", err
	}
	return string(traceRecord(m).Append(nil, e.At, logformat.Level(m.Type.String()))), nil
}

// parties are the two ends of a task's event.
type parties struct {
	requester, worker wire.Address
	handedOff         bool // the requester is the worker that handed the task off
	shared            bool // the task is one worker's copy of a task that several execute
}

// reportRoute returns the route of a worker's report: to the worker that handed the task off
// (§5.3), and otherwise to O1.
func (ends parties) reportRoute() (from, to wire.Address) {
	switch {
	case ends.worker == self:
		return self, ends.requester
	case ends.handedOff:
		return ends.worker, ends.requester
	}
	return ends.worker, self
}

// eventMessage returns the message about an event, or errs.NotFound where there is none.
func (p *Protocol) eventMessage(ctx context.Context, event models.Event) (m wire.Message, err error) {
	if !strings.HasPrefix(string(event.Type), "task.") {
		return m, errs.New(errs.NotFound, "there is no message about %s", event.Type)
	}
	var e events.TaskData
	if err := json.Unmarshal(event.Data, &e); err != nil {
		return m, err
	}
	t, err := p.orchestrator.Task(ctx, e.TaskID)
	if err != nil {
		return m, err
	}
	name, err := p.shortID(ctx, t)
	if err != nil {
		return m, err
	}
	m.Context, m.Task = shortid.ContextName(name.Context), wire.NewTask(name.Task)
	ends, err := p.partiesOf(ctx, t, e)
	if err != nil {
		return m, err
	}
	t.Attempt, t.AgentID = e.Attempt, e.AgentID // as they were at the event
	switch event.Type {
	case events.TaskAssigned:
		m.From, m.To = self, ends.worker
		var order orchestrator.TaskWithInput
		if order, err = p.orchestrator.TaskWithInput(ctx, t.ID); err == nil {
			order.Task.Attempt, order.Task.AgentID = e.Attempt, e.AgentID
			err = p.writeAssignment(ctx, &m, order)
		}
	case events.TaskCompleted:
		m.From, m.To = ends.reportRoute()
		err = p.writeOutcome(ctx, &m, t)
	case events.TaskFailed:
		m.From, m.To = self, ends.requester
		if e.AgentID != "" && (len(t.Detail) > 0 || t.ErrorCode == string(orchestrator.FailureWork)) { // the worker has reported it
			m.From, m.To = ends.reportRoute()
		}
		err = p.writeOutcome(ctx, &m, t)
	case events.TaskCancelled:
		m.From, m.To = self, ends.worker
		if e.AgentID == "" {
			m.From, m.To = ends.requester, self
		}
		err = p.writeOutcome(ctx, &m, t)
	case events.TaskCreated:
		ends.worker = self
		err = p.writeTaskCreated(ctx, &m, ends, t)
	default:
		err = writeTaskEvent(&m, ends, event.Type, e)
	}
	return m, err
}

// partiesOf returns the requester and the worker of a task at an event; without a worker it is O1.
func (p *Protocol) partiesOf(ctx context.Context, t models.Task, e events.TaskData) (ends parties, err error) {
	ends.requester, ends.worker = wire.Address{Role: wire.User}, self
	requester := t.OwnerAgent
	if t.ParentID != nil {
		parent, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return ends, err
		}
		if ends.handedOff = t.Depth > parent.Depth; ends.handedOff {
			requester = parent.AgentID
		}
		ends.shared = !ends.handedOff
	}
	if requester != "" {
		if ends.requester, err = p.agentAddress(ctx, requester); err != nil {
			return ends, err
		}
	}
	if e.AgentID != "" {
		ends.worker, err = p.agentAddress(ctx, e.AgentID)
	}
	return ends, err
}

// writeTaskCreated makes m the R of a request, or the U with which a worker reports a hand-off
// (§5.3).
func (p *Protocol) writeTaskCreated(ctx context.Context, m *wire.Message, ends parties, t models.Task) error {
	if ends.shared { // no agent has sent a message about it
		return errs.New(errs.NotFound, "there are no messages about a subtask that O1 created for several workers")
	}
	m.From, m.To, m.Type = ends.requester, self, wire.Request
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

// writeTaskEvent makes m the message about an event between a task's creation and its end.
func writeTaskEvent(m *wire.Message, ends parties, kind models.EventType, e events.TaskData) (err error) {
	m.From, m.To = ends.reportRoute()
	if m.Data = "-"; ends.handedOff {
		m.To = self
	}
	w := new(wire.Writer)
	switch kind {
	case events.TaskStarted:
		m.Type = wire.Ack
		return nil
	case events.TaskProgress:
		m.Type = wire.Update
		m.Data, err = progressData(e.Progress, e.StepName).Data()
	case events.TaskQuestion:
		m.Type = wire.Clarify
		m.Data = questionData(e)
	case events.TaskReplied:
		m.From, m.To, m.Type = self, ends.worker, wire.Clarify
		m.Data, err = w.Text(keyAnswer, e.Reply).Data()
	case events.TaskRetried:
		m.Type, m.Err = wire.Failure, errorCode(models.Task{ErrorCode: e.Failure, Attempt: e.Attempt}, storedReport{})
		switch orchestrator.Failure(e.Failure) {
		case orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable: // O1 has detected it
			m.From, m.To = self, ends.worker
		}
		m.Data, err = w.Text("desc", m.Err.Meaning()).Data()
	default: // the task waits for a worker
		m.From, m.To, m.Type = self, ends.requester, wire.Ack
		m.Data, err = w.Add("waiting_for", string(e.WaitingFor)).Data()
	}
	return err
}

// questionData returns the DATA of a worker's C, without its options where they do not fit.
func questionData(e events.TaskData) wire.Data {
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
