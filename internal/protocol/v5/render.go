package v5

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// Render implements dialect.Dialect. What V4 cannot say is given back for a worker that
// speaks it, which ends its attempt. Who signs is told in signed lines.
func (p *Protocol) Render(ctx context.Context, agent models.Agent, m models.InboxMessage, _ int) ([][]byte, error) {
	lines, err := p.renderV5(ctx, agent, m)
	if err == nil && len(lines) > 0 && p.knowsOnlyV4(agent.ID) {
		lines, err = p.renderV4(ctx, agent, m, lines)
	}
	for i := 0; err == nil && i < len(lines); i++ {
		var line string
		line, err = p.sign(ctx, agent.ID, string(lines[i]))
		lines[i] = []byte(line)
	}
	return lines, err
}

func (p *Protocol) renderV5(ctx context.Context, agent models.Agent, m models.InboxMessage) ([][]byte, error) {
	if m.Kind == models.MessageNotice {
		out, err := p.broadcastMessage(m)
		if err != nil {
			return nil, err
		}
		line, err := wire.Format(out)
		return [][]byte{[]byte(line)}, err
	}
	t, err := p.orchestrator.Task(ctx, m.TaskID)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := p.newMessage(ctx, t)
	if err != nil {
		return nil, err
	}
	if out.To, err = p.agentAddress(ctx, agent.ID); err != nil {
		return nil, err
	}
	switch m.Kind {
	case models.MessageAssign:
		if t.State.Ended() || t.Attempt != m.Attempt || t.AgentID != agent.ID {
			return nil, nil
		}
		err = p.writeAssignment(ctx, &out, t)
	case models.MessageCancel:
		out.Type, out.State = wire.Update, wire.Cancelled
		out.Data, err = new(wire.Writer).Text("reason", jsonText(m.Data, "reason")).Data()
	case models.MessageReply:
		out.Type = wire.Clarify
		out.Data, err = answerData(jsonText(m.Data, "answer"), out.Task)
	case models.MessageQuestion:
		if t.WaitingFor != models.WaitForReply || t.Attempt != m.Attempt {
			return nil, nil
		}
		err = p.writeQuestion(ctx, &out, t)
	case models.MessageTaskEnded:
		if t.AgentID != "" && t.ParentID != nil { // its part answers it (§5.3)
			if out.From, err = p.agentAddress(ctx, t.AgentID); err != nil {
				return nil, err
			}
		}
		err = p.writeOutcome(ctx, &out, t)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	line, err := wire.Format(out)
	if err == nil {
		p.logOutgoing(ctx, out)
	}
	return [][]byte{[]byte(line)}, err
}

// jsonText is a member of what an inbox message carries.
func jsonText(data json.RawMessage, name string) string {
	var members map[string]string
	_ = json.Unmarshal(data, &members) // written by the core
	return members[name]
}

// writeAssignment is the R that gives a task to a worker, and the X that gives it a part of
// another's (§5.2, §5.3, §8.2).
func (p *Protocol) writeAssignment(ctx context.Context, out *wire.Message, t models.Task) error {
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err != nil {
		return err
	}
	out.Type, out.State = wire.Request, wire.New
	if t.ParentID != nil {
		source, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return err
		}
		if t.Depth > source.Depth { // and not one of several that do the same
			out.Type, out.State = wire.Handoff, wire.Running
		}
		if source.AgentID != "" {
			if out.From, err = p.agentAddress(ctx, source.AgentID); err != nil {
				return err
			}
		}
	}
	again, err := p.retryInfoOf(ctx, t, order)
	if err != nil {
		return err
	}
	if out.Data, err = p.requestData(order.Task, order.Input, out.Task, again.Retry); err != nil || !again.simplify {
		return err
	}
	if simpler := out.Data + ";" + keySimplify; utf8.RuneCountInString(string(simpler)) <= wire.MaxData {
		out.Data = simpler
	} else {
		out.Data = wire.Data(keySimplify + ";params=" + wire.Ref{Kind: wire.RefTask, Task: out.Task, Field: "params"}.String())
	}
	return nil
}

// retryInfo is what a further attempt says of those before it.
type retryInfo struct {
	wire.Retry

	simplify bool // the budget did not cover one, so less is asked for
}

func (p *Protocol) retryInfoOf(ctx context.Context, t models.Task, order orchestrator.TaskWithInput) (out retryInfo, err error) {
	if t.Attempt <= 1 {
		return out, nil
	}
	attempts, err := p.orchestrator.Attempts(ctx, t.ID)
	if err != nil {
		return out, err
	}
	if out.simplify, err = orchestrator.WantsSimplerResult(order.Input, attempts); err != nil {
		return out, err
	}
	most := Policy().Retries
	if asked := order.Override.Retries; asked != nil {
		most = *asked
	}
	out.Attempt, out.Max = t.Attempt-1, max(most, t.Attempt-1)
	for i := len(attempts) - 1; i >= 0; i-- {
		a := attempts[i]
		if a.Attempt >= t.Attempt || a.AgentID == "" || a.AgentID == t.AgentID {
			continue
		}
		if out.From, err = p.agentAddress(ctx, a.AgentID); err != nil {
			return out, err
		}
		out.Reason = string(errorCode(models.Task{ErrorCode: a.ErrorCode, Attempt: a.Attempt}, failureDetail{}))
		break
	}
	return out, nil
}

// requestData is the DATA of a request. What was asked for in this protocol is passed on as it
// came; other parameters become pairs, or a reference where they cannot.
func (p *Protocol) requestData(t models.Task, in models.TaskInput, tid wire.Task, again wire.Retry) (wire.Data, error) {
	if t.Class == Class {
		kept, err := readRequestMeta(in)
		if err != nil {
			return "", err
		}
		if data, ok := forwardedData(kept.Data, again); ok && !strings.Contains(string(data), "#MSG:") { // which would mean another one
			return data, nil
		}
	}
	w := new(wire.Writer)
	if name := capabilityName(in.Capabilities); name != "" {
		w.Add("call", name)
	}
	if writeParameters(w, in.Parameters) {
		if data, err := w.Retry(again).Data(); err == nil {
			return data, nil
		}
	}
	w = new(wire.Writer)
	if name := capabilityName(in.Capabilities); name != "" {
		w.Add("call", name)
	}
	w.Ref("params", wire.Ref{Kind: wire.RefTask, Task: tid, Field: "params"})
	data, err := w.Retry(again).Data()
	var e *wire.Error
	if errors.As(err, &e) { // a name that DATA cannot say: the parameters have it all
		return new(wire.Writer).Ref("params", wire.Ref{Kind: wire.RefTask, Task: tid, Field: "params"}).Data()
	}
	return data, err
}

// forwardedData is DATA as the asker wrote it, with what is to be said of attempts before and
// without what is for O1, what the asker said of attempts, and the number of a message that
// its worker never saw. ok is false where that cannot be said, or would be mistaken.
func forwardedData(data wire.Data, again wire.Retry) (said wire.Data, ok bool) {
	asked := data
	for p := range asked.Pairs() {
		if isRequestPair(p.Key) || isAttemptPair(asked, p.Key, again) || p.Key == "pid" {
			data, _, _ = data.Cut(p.Key)
			data = wire.Data(strings.TrimSuffix(string(data), ";"))
		}
	}
	if again.Max != 0 && has(data, keyMax) { // which is a parameter
		return "", false
	}
	if strings.Trim(string(data), "; ") == "" {
		data = "-"
	}
	more, err := new(wire.Writer).Retry(again).Data()
	if err != nil {
		return "", false
	}
	switch {
	case more == "-":
		return data, true
	case data == "-":
		return more, true
	}
	data += ";" + more
	return data, len([]rune(string(data))) <= wire.MaxData
}
