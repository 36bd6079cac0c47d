package genesis

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
	"comet/store/partials"
)

// Render implements protocol.Protocol.
func (p *Protocol) Render(ctx context.Context, to protocol.Peer, m models.InboxMessage, limit int) ([][]byte, error) {
	agent := to.Agent.ID
	if m.Publication != nil {
		out := published(*m.Publication)
		out.To = agent
		parts, err := p.rendered(ctx, limit, nil, out)
		if bad, ok := errors.AsType[*wire.Error](err); ok { // such as a type of one word
			p.log.InfoContext(ctx, "the protocol cannot express a publication", "publication", m.ID, "agent", agent, "reason", bad)
			return nil, nil
		}
		return parts, err
	}
	stored, err := p.Work.TaskOfMessage(ctx, m)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := taskOf(stored)
	if err != nil {
		return nil, err
	}
	out, err := p.message(ctx, agent, t, m, limit)
	if err != nil || out.Body == nil {
		return nil, err
	}
	if out.To = agent; out.ID == "" {
		out.ID = m.ID
	}
	var fail func(reason string) error
	if m.Kind == models.MessageAssign {
		fail = func(reason string) error {
			_, err := p.Work.Complete(ctx, agent, t.Task.ID, orchestrator.Result{Failure: orchestrator.FailureResource, Text: input.ClipBytes(reason, maxFailureText)})
			return err
		}
	}
	return p.rendered(ctx, limit, fail, out)
}

// rendered signs a message. If it cannot be expressed or is longer than limit, it calls fail, unless that is nil, and there is none.
func (p *Protocol) rendered(ctx context.Context, limit int, fail func(reason string) error, m wire.Message) ([][]byte, error) {
	text, err := p.sign(ctx, m)
	if bad, ok := errors.AsType[*wire.Error](err); ok && fail != nil {
		return nil, fail("the request cannot be a message to the agent: " + bad.Error())
	}
	if err != nil {
		return nil, err
	}
	if limit > 0 && len(text) > limit && fail != nil {
		return nil, fail("the request is too long for the agent's transport")
	}
	return [][]byte{text}, nil
}

// message returns the unsigned message to an agent about a task, without a body if it is obsolete.
func (p *Protocol) message(ctx context.Context, agent string, t task, m models.InboxMessage, limit int) (wire.Message, error) {
	switch m.Kind {
	case models.MessageAssign:
		if t.Task.State.Ended() || t.Task.Attempt != m.Attempt || t.Task.AgentID != agent {
			return wire.Message{}, nil
		}
		return p.assignment(t), nil
	case models.MessageCancel:
		var reason struct{ Reason string }
		_ = json.Unmarshal(m.Data, &reason) // written by the core
		return p.order(t, m, intentCancel, map[string]any{"reason": reason.Reason}), nil
	case models.MessageReply:
		var reply struct{ Answer string }
		_ = json.Unmarshal(m.Data, &reply) // written by the core
		return p.order(t, m, intentClarify, map[string]any{"answer": reply.Answer}), nil
	case models.MessageQuestion:
		return p.questionOf(ctx, t)
	case orchestrator.MessageReceived:
		if receivedAttempt(t.Task) != m.Attempt {
			return wire.Message{}, nil
		}
		return p.ack(ctx, t.id, t.Task)
	case partials.MessageKind:
		return p.partial(ctx, t, m)
	case models.MessageProgress:
		if t.Task.State.Ended() || !t.meta.Stream {
			return wire.Message{}, nil
		}
		return wire.Message{Body: event("task.progress", "progress of a task", progressOf(t))}, nil
	case models.MessageTaskEnded:
		out, _, err := p.end(ctx, t, agent, limit)
		return out, err
	}
	return wire.Message{}, nil // the protocol has no message for this kind
}

// assignment returns the REQUEST of an attempt.
func (p *Protocol) assignment(t task) wire.Message {
	payload := jsontext.Value(t.Input.Parameters)
	if len(payload) == 0 {
		payload = jsontext.Value("{}")
	}
	if t.meta.Wrapped {
		var wrapped struct {
			Payload jsontext.Value `json:"payload"`
		}
		if json.Unmarshal(payload, &wrapped) == nil {
			payload = wrapped.Payload
		}
	}
	req := wire.Request{
		Intent: intentOf(t.Input.Capabilities), Confidence: 1, Entities: t.meta.Entities, Payload: printable(payload), Context: p.contextFor(t),
		Priority: wire.Priority(t.Task.Priority), Options: wire.Options{RequiresResponse: new(true), Stream: t.meta.Stream, AllowPartialResponse: t.meta.Stream || t.meta.Partial},
	}
	if t.Task.Class == Class {
		req.Confidence = t.meta.Confidence
	}
	if req.Entities == nil {
		req.Entities = []wire.Entity{}
	}
	if left := t.Task.Deadline.Sub(p.clock()).Milliseconds(); left > 0 {
		req.TimeoutMS = left
	}
	return wire.Message{CorrelationID: t.Task.ID, Body: req}
}

// intentOf returns the first required capability, which is the intent in the protocol.
func intentOf(capabilities []string) string {
	if len(capabilities) == 0 {
		return "any"
	}
	return models.CapabilityKey(capabilities[0])
}

// maxContext limits the context of a REQUEST, in bytes.
const maxContext = 64 << 10

// contextFor returns the context of the REQUEST to a worker: that of the requester, with originalFrom, its
// correlationId, the task and the attempt.
func (p *Protocol) contextFor(t task) jsontext.Value {
	var members map[string]jsontext.Value
	if json.Unmarshal(t.meta.Context, &members) != nil || members == nil {
		members = map[string]jsontext.Value{}
	}
	own := map[string]any{"originalFrom": t.meta.From, "correlationId": t.meta.CorrelationID, "taskId": t.Task.ID, "attempt": t.Task.Attempt}
	if t.Task.Budget != nil {
		own["maxTokens"] = max(*t.Task.Budget-t.Task.Tokens, 1)
	}
	if t.Input.Trace != "" {
		own["traceparent"] = t.Input.Trace
	}
	if len(t.Input.Capabilities) > 1 {
		own["capabilities"] = t.Input.Capabilities
	}
	for name, value := range own {
		text, err := json.Marshal(value)
		if err == nil && string(text) != `""` {
			members[name] = text
		}
	}
	text, err := json.Marshal(members)
	if err != nil || len(text) > maxContext || !wire.Fits(text) {
		text, _ = json.Marshal(own) // marshals always
	}
	return text
}

// order returns a REQUEST to a worker about its task that needs no response.
func (p *Protocol) order(t task, m models.InboxMessage, intent string, payload map[string]any) wire.Message {
	payload["taskId"], payload["attempt"] = t.Task.ID, m.Attempt
	text, _ := json.Marshal(payload) // marshals always
	return wire.Message{CorrelationID: t.Task.ID, Body: wire.Request{
		Intent: intent, Confidence: 1, Entities: []wire.Entity{}, Payload: text, Context: jsontext.Value("{}"), Priority: wire.Critical, Options: wire.Options{RequiresResponse: new(false)},
	}}
}

// questionOf returns the question of a task, which may be a subtask of the requester's one.
func (p *Protocol) questionOf(ctx context.Context, asking task) (wire.Message, error) {
	of := asking
	for of.Task.ParentID != nil {
		stored, err := p.Work.TaskWithInput(ctx, *of.Task.ParentID)
		if err == nil {
			of, err = taskOf(stored)
		}
		if err != nil {
			return wire.Message{}, err
		}
	}
	return p.question(ctx, of, asking.Task)
}

// question returns the REQUEST that asks the requester of a task about it or about a subtask. The RESPONSE to it has the same
// correlationId.
func (p *Protocol) question(ctx context.Context, t task, asking models.Task) (wire.Message, error) {
	if asking.WaitingFor != models.WaitForReply {
		return wire.Message{}, nil
	}
	open, err := p.Work.OpenQuestion(ctx, asking)
	if err != nil {
		return wire.Message{}, err
	}
	options := open.Options
	if options == nil {
		options = []string{}
	}
	text, err := json.Marshal(map[string]any{"taskId": asking.ID, "requestId": t.id, "question": open.Text, "options": options})
	if err != nil {
		return wire.Message{}, err
	}
	return wire.Message{CorrelationID: questionPrefix + asking.ID, Body: wire.Request{
		Intent: intentClarify, Confidence: 1, Entities: []wire.Entity{}, Payload: printable(text), Context: jsontext.Value("{}"), Priority: wire.Priority(t.Task.Priority), Options: wire.Options{RequiresResponse: new(true)},
	}}, nil
}

// partial returns the RESPONSE with a partial result.
func (p *Protocol) partial(ctx context.Context, t task, m models.InboxMessage) (wire.Message, error) {
	var data struct{ Seq string }
	if err := json.Unmarshal(m.Data, &data); err != nil {
		return wire.Message{}, err
	}
	seq, err := strconv.ParseInt(data.Seq, 10, 64)
	if err != nil {
		return wire.Message{}, err
	}
	found, err := p.Work.Partials(ctx, t.Task.ID, seq-1, 1)
	if err != nil || len(found) == 0 {
		return wire.Message{}, err
	}
	return partialOf(t, found[0].Seq, found[0].Data), nil
}

// partialOf returns the RESPONSE with a partial result, or with its length if it is too long.
func partialOf(t task, seq int64, data json.RawMessage) wire.Message {
	value := printable(jsontext.Value(data))
	if len(value) > maxValue {
		value = truncated(int64(len(data)), t.Task.ID, "partials")
	}
	return wire.Message{CorrelationID: t.meta.CorrelationID, Body: wire.Response{RequestID: t.id, Status: wire.Partial, Data: value, Sequence: seq}}
}

// progressOf returns the payload of an EVENT about the progress of a task.
func progressOf(t task) []byte {
	text, _ := json.Marshal(map[string]any{ // marshals always
		"taskId": t.Task.ID, "requestId": t.id, "progress": t.Task.Progress, "step": t.Task.Step, "stepName": t.Task.StepName,
	})
	return text
}
