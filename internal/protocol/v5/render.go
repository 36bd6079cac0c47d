package v5

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// Render implements protocol.Protocol. A message that V4 cannot express fails the attempt of a V4
// worker.
func (p *Protocol) Render(ctx context.Context, to protocol.Peer, m models.InboxMessage, _ int) ([][]byte, error) {
	agent := to.Agent
	out, ok, err := p.renderMessage(ctx, agent, m)
	if err != nil || !ok {
		return nil, err
	}
	var line string
	if p.knowsOnlyV4(agent.ID) {
		line, err = p.renderV4(ctx, agent, m, out)
	} else {
		line, err = out.Format()
	}
	if err != nil || line == "" {
		return nil, err
	}
	if m.Kind != models.MessageNotice && m.Publication == nil {
		p.logOutgoing(ctx, out)
	}
	if line, err = p.sign(ctx, to, line); err != nil {
		return nil, err
	}
	return [][]byte{[]byte(line)}, nil
}

// renderMessage returns an inbox message in V5. ok is false where it is no longer true.
func (p *Protocol) renderMessage(ctx context.Context, agent models.Agent, m models.InboxMessage) (out wire.Message, ok bool, err error) {
	if m.Kind == models.MessageNotice {
		out, err = p.broadcastMessage(m)
		return out, err == nil, err
	}
	if m.Publication != nil {
		return p.publicationMessage(ctx, agent, m)
	}
	var order orchestrator.TaskWithInput
	if m.Kind == models.MessageAssign {
		order, err = p.orchestrator.TaskOfMessage(ctx, m)
	} else {
		order.Task, err = p.orchestrator.Task(ctx, m.TaskID)
	}
	if isNotFound(err) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	t := order.Task
	if out, err = p.newMessage(ctx, t); err != nil {
		return out, false, err
	}
	if out.To, err = p.agentAddress(ctx, agent.ID); err != nil {
		return out, false, err
	}
	switch m.Kind {
	case models.MessageAssign:
		if t.State.Ended() || t.Attempt != m.Attempt || t.AgentID != agent.ID {
			return out, false, nil
		}
		err = p.writeAssignment(ctx, &out, order)
	case models.MessageCancel:
		why := jsonText(m.Data, "reason")
		out.Type, out.State = wire.Update, wire.Cancelled
		out.Data, err = new(wire.Writer).Text(keyReason, why).Data()
		switch code := failureCodes[orchestrator.Failure(why)]; code {
		case codes.E20, codes.E21, codes.E22: // §4.2, step 4
			out.Type, out.State, out.Err = wire.Failure, wire.Failed, codes.E20
			out.Data, err = new(wire.Writer).Text(keyReason, string(code)).Text("desc", code.Meaning()).Data()
		}
	case models.MessageReply:
		out.Type = wire.Clarify
		out.Data, err = answerData(jsonText(m.Data, "answer"), out.Task)
	case models.MessageQuestion:
		if t.WaitingFor != models.WaitForReply || t.Attempt != m.Attempt {
			return out, false, nil
		}
		err = p.writeQuestion(ctx, &out, t)
	case models.MessageProgress:
		if t.State.Ended() {
			return out, false, nil
		}
		out.Type = wire.Update
		out.Data, err = progressData(t.Progress, t.StepName).Data()
	case models.MessageTaskEnded:
		if t.AgentID != "" && t.ParentID != nil { // the worker replies to a hand-off (§5.3)
			if out.From, err = p.agentAddress(ctx, t.AgentID); err != nil {
				return out, false, err
			}
		}
		err = p.writeOutcome(ctx, &out, t)
	default:
		return out, false, nil
	}
	return out, err == nil, err
}

// writeAssignment makes m the R that assigns a task to a worker, or the X that assigns a subtask
// (§5.2, §5.3, §8.2).
func (p *Protocol) writeAssignment(ctx context.Context, m *wire.Message, order orchestrator.TaskWithInput) error {
	t := order.Task
	m.Type, m.State = wire.Request, wire.New
	if t.ParentID != nil {
		parent, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return err
		}
		if t.Depth > parent.Depth { // and not one of several workers' copies
			m.Type, m.State = wire.Handoff, wire.Running
		}
		if parent.AgentID != "" {
			if m.From, err = p.agentAddress(ctx, parent.AgentID); err != nil {
				return err
			}
		}
	}
	retry, simplify, err := p.retryOf(ctx, t, order)
	if err != nil {
		return err
	}
	if m.Data, err = p.requestData(order.Task, order.Input, m.Task, retry); err != nil || !simplify {
		return err
	}
	if simpler := m.Data + ";" + keySimplify; utf8.RuneCountInString(string(simpler)) <= wire.MaxData {
		m.Data = simpler
	} else {
		m.Data = wire.Data(keySimplify + ";params=" + paramsRef(m.Task).String())
	}
	return nil
}

// retryOf returns what a further attempt states about those before it. simplify is set where the
// budget did not cover an earlier one and the worker is asked for a simpler result.
func (p *Protocol) retryOf(ctx context.Context, t models.Task, order orchestrator.TaskWithInput) (retry wire.Retry, simplify bool, err error) {
	if t.Attempt <= 1 {
		return retry, false, nil
	}
	attempts, err := p.orchestrator.Attempts(ctx, t.ID)
	if err != nil {
		return retry, false, err
	}
	if simplify, err = orchestrator.WantsSimplerResult(order.Input, attempts); err != nil {
		return retry, false, err
	}
	limit := *cmp.Or(order.Override.Retries, new(Policy().Retries))
	retry.Attempt, retry.Max = t.Attempt-1, max(limit, t.Attempt-1)
	for i := len(attempts) - 1; i >= 0; i-- {
		a := attempts[i]
		if a.Attempt >= t.Attempt || a.AgentID == "" || a.AgentID == t.AgentID {
			continue
		}
		if retry.From, err = p.agentAddress(ctx, a.AgentID); err != nil {
			return retry, false, err
		}
		retry.Reason = string(errorCode(models.Task{ErrorCode: a.ErrorCode, Attempt: a.Attempt}, storedReport{}))
		break
	}
	return retry, simplify, nil
}

// requestData returns the DATA of an assignment. That of a request in V5 is forwarded as it was
// received; other parameters become pairs, or a reference where pairs cannot hold them.
func (p *Protocol) requestData(t models.Task, in models.TaskInput, tid wire.Task, retry wire.Retry) (wire.Data, error) {
	if t.Class == Class {
		meta, err := readRequestMeta(in)
		if err != nil {
			return "", err
		}
		if data, ok := forwardedData(meta.Data, retry); ok && !strings.Contains(string(data), "#MSG:") { // it would mean another message
			return data, nil
		}
	}
	if w := callData(in); writeParameters(w, in.Parameters) {
		if data, err := w.Retry(retry).Data(); err == nil {
			return data, nil
		}
	}
	data, err := callData(in).Ref("params", paramsRef(tid)).Retry(retry).Data()
	if _, invalid := errors.AsType[*wire.Error](err); invalid { // DATA cannot hold the capability: Q reads it with the parameters
		return new(wire.Writer).Ref("params", paramsRef(tid)).Data()
	}
	return data, err
}
