package genesis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
	"comet/store"
)

// requireAgent rejects reports whose sender is not an agent, and reports that are not addressed to comet.
func requireAgent(m received) error {
	if m.agentID == "" {
		return coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "/from", "only an agent may send a message of type %s, with its own token or key", m.Type)
	}
	if m.To != models.RootAgentID {
		return coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/to", "to must be %q if the type is %s, because comet forwards it to the requester", models.RootAgentID, m.Type)
	}
	return nil
}

// response processes a RESPONSE (Genesis §2): a result of a worker, or a reply to a question.
func (p *Protocol) response(ctx context.Context, m received, body wire.Response) (protocol.Reply, error) {
	if err := requireAgent(m); err != nil {
		return protocol.Reply{}, err
	}
	data := m.value("data", body.Data)
	taskID := m.CorrelationID // of the REQUEST that assigned the task
	if asked, ok := strings.CutPrefix(taskID, questionPrefix); ok {
		return p.answerQuestion(ctx, m, body, asked, data)
	}
	attempt, err := attemptOf(body.RequestID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if body.Status == wire.Partial {
		if data == nil {
			data = json.RawMessage("null")
		}
		t, err := p.Work.Progress(ctx, m.agentID, taskID, orchestrator.Progress{Partial: data, Attempt: attempt, MessageID: m.ID})
		return accepted(t.ID), taskError(err)
	}
	return p.complete(ctx, m, body, data, attempt)
}

// attemptOf returns the number of the attempt that a REQUEST to a worker begins. Its id is that of the message that assigns
// the task, and ends with the number (orchestrator.Orchestrator.Submit).
func attemptOf(requestID string) (int, error) {
	id, err := uuid.Parse(requestID)
	attempt := int(binary.BigEndian.Uint16(id[14:]))
	if err != nil || attempt == 0 {
		return 0, coded(wire.ErrorValidation, codeNotFound, http.StatusNotFound, "/requestId", "requestId must be the id of the REQUEST that the agent received, not %s", input.Quote(requestID))
	}
	return attempt, nil
}

// complete ends an attempt with a RESPONSE.
func (p *Protocol) complete(ctx context.Context, m received, body wire.Response, data json.RawMessage, attempt int) (protocol.Reply, error) {
	d := detail{Confidence: body.Confidence, Sources: body.Sources, Error: body.Error}
	r := orchestrator.Result{Output: data, Attempt: attempt, MessageID: m.ID}
	if body.Usage != nil {
		r.Tokens, r.Model = body.Usage.Tokens, body.Usage.Model
	}
	if text, ok := textOf(data); ok {
		d.Text, r.Output = true, []byte(text)
	}
	if body.Status == wire.Failed {
		r.Failure, r.Text = orchestrator.FailureWork, cmp.Or(input.ClipBytes(body.Error.Message, maxFailureText), "the work failed")
		if body.Error.Retryable {
			r.Failure = orchestrator.FailureResource
		}
	}
	var err error
	if r.Detail, err = json.Marshal(storedDetail{&d}); err != nil {
		return protocol.Reply{}, err
	}
	return p.endTask(ctx, m, m.CorrelationID, r)
}

// maxFailureText limits the reason of a failure, in bytes.
const maxFailureText = 1000

// endTask ends a task of an agent; a task that has ended already does not change.
func (p *Protocol) endTask(ctx context.Context, m received, taskID string, r orchestrator.Result) (protocol.Reply, error) {
	t, err := p.Work.Complete(ctx, m.agentID, taskID, r)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, taskError(err)
	}
	return accepted(t.ID), nil
}

// taskError converts an error about a task that does not exist, belongs to another agent or has ended.
func taskError(err error) error {
	switch {
	case errs.Is(err, errs.NotFound):
		return coded(wire.ErrorValidation, codeNotFound, http.StatusNotFound, "/correlationId", "%s; correlationId and requestId must be those of the REQUEST", errs.From(err).Detail)
	case errs.Is(err, errs.TaskState):
		return coded(wire.ErrorValidation, codeConflict, http.StatusConflict, "/correlationId", "%s; only the agent that works on it may send this, from its REQUEST to its RESPONSE", errs.From(err).Detail)
	}
	return err
}

// failure processes an ERROR of a worker (Genesis §4).
func (p *Protocol) failure(ctx context.Context, m received, body wire.Failure) (protocol.Reply, error) {
	if err := requireAgent(m); err != nil {
		return protocol.Reply{}, err
	}
	if m.CorrelationID == "" {
		return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/correlationId", "correlationId must be that of the REQUEST that failed")
	}
	r := orchestrator.Result{Failure: failureKind(body), Text: cmp.Or(input.ClipBytes(body.Message, maxFailureText), "the work failed"), MessageID: m.ID}
	if r.Failure == orchestrator.FailureWork { // the requester receives the code of the agent
		var err error
		if r.Detail, err = json.Marshal(storedDetail{&detail{Error: &wire.ErrorDetails{Code: body.ErrorCode, Message: body.Message, Details: body.Details}}}); err != nil {
			return protocol.Reply{}, err
		}
	}
	return p.endTask(ctx, m, m.CorrelationID, r)
}

// failureKind converts the type of an agent's ERROR to a failure of the core.
func failureKind(f wire.Failure) orchestrator.Failure {
	switch f.ErrorType {
	case wire.ErrorTimeout:
		return orchestrator.FailureTimeout
	case wire.ErrorValidation:
		return orchestrator.FailureInvalid
	case wire.ErrorRouting:
		if f.ErrorCode == codeUnsupported {
			return orchestrator.FailureUnsupported
		}
		return orchestrator.FailureUnavailable
	}
	return orchestrator.FailureWork
}

// failInvalid ends the attempt of a worker whose RESPONSE violates the protocol, so that another worker can be tried. The
// worker still receives the error of its message. A returned error is one of the core.
func (p *Protocol) failInvalid(ctx context.Context, m received, cause error) error {
	if m.Type != wire.TypeResponse || m.CorrelationID == "" || m.agentID == "" || !p.isTrusted(ctx, m) {
		return nil
	}
	requestID, _ := textOf(json.RawMessage(m.SignedValue("requestId", wire.JCS)))
	attempt, _ := attemptOf(requestID) // 0, the newest one, if it is what is wrong
	_, err := p.Work.Complete(ctx, m.agentID, m.CorrelationID, orchestrator.Result{
		Attempt: attempt, Failure: orchestrator.FailureInvalid, Text: input.ClipBytes("the response of the agent is invalid: "+cause.Error(), maxFailureText), MessageID: m.ID,
	})
	if errs.CodeOf(err) != errs.Internal { // the task is not one of the agent, or has ended
		err = nil
	}
	return err
}

// isTrusted reports whether an invalid message may have an effect: its sender need not sign, or its signature is valid.
func (p *Protocol) isTrusted(ctx context.Context, m received) bool {
	return p.checkSender(m) == nil && (p.mayBeUnsigned(ctx, m) || p.isSigned(ctx, m))
}

// mayBeUnsigned reports whether no key of the agent that sends a message is required.
func (p *Protocol) mayBeUnsigned(ctx context.Context, m received) bool {
	unsigned := m.Message
	unsigned.Signature, unsigned.SignatureJCS, unsigned.PublicKey = nil, nil, nil
	_, _, err := p.verify(ctx, m.agentID, unsigned)
	return err == nil
}

// clarify asks a question about a task of the worker, or replies to one about a task of the requester.
func (p *Protocol) clarify(ctx context.Context, m received, body wire.Request) (protocol.Reply, error) {
	ref, err := readReference(m, body)
	switch {
	case err != nil:
		return protocol.Reply{}, err
	case ref.Question == "" && ref.Answer == nil:
		return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/question", "payload must have a question of the worker, or the answer of the requester")
	case ref.Question == "":
		id, err := p.askedTask(ctx, m, ref)
		if err != nil {
			return protocol.Reply{}, err
		}
		return p.reply(ctx, m, id, ref.Answer)
	case m.agentID == "":
		return protocol.Reply{}, coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "/payload/question", "only the agent of a task may ask a question about it")
	}
	taskID := cmp.Or(ref.TaskID, ref.CorrelationID)
	question := orchestrator.Question{Text: input.ClipBytes(ref.Question, maxQuestion), Options: ref.Options}
	if t, err := p.Work.Task(ctx, taskID); err == nil && t.AgentID == m.agentID && t.WaitingFor == models.WaitForReply { // a repeated message
		if open, err := p.Work.OpenQuestion(ctx, t); err == nil && open.Text == question.Text {
			return accepted(taskID), nil
		}
	}
	t, err := p.Work.Clarify(ctx, m.agentID, taskID, question)
	return accepted(t.ID), taskError(err)
}

// maxQuestion limits a question, and its options together, in bytes; maxOptions their number, and maxAnswer an answer, in bytes.
const maxQuestion, maxOptions, maxAnswer = 16 << 10, 100, 64 << 10

// answerQuestion processes the RESPONSE of a requester to a question about its task.
func (p *Protocol) answerQuestion(ctx context.Context, m received, body wire.Response, taskID string, data json.RawMessage) (protocol.Reply, error) {
	id, err := p.askedTask(ctx, m, reference{TaskID: taskID})
	if err != nil {
		return protocol.Reply{}, err
	}
	if body.Status != wire.Succeeded {
		return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/status", "status must be SUCCESS in an answer to a question")
	}
	return p.reply(ctx, m, id, data)
}

// reply answers the question of a task: with a text, or an object with the text as answer. A repeated message does not answer
// the next question.
func (p *Protocol) reply(ctx context.Context, m received, taskID string, data json.RawMessage) (protocol.Reply, error) {
	answer, ok := textOf(data)
	if !ok {
		var object struct{ Answer string }
		if json.Unmarshal(data, &object) != nil || object.Answer == "" {
			return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/answer", "the answer must be a text")
		}
		answer = object.Answer
	}
	if len(answer) > maxAnswer {
		return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/answer", "the answer has %d bytes; the limit is %d", len(answer), maxAnswer)
	}
	once := &models.Idempotency{
		Principal: m.by.TokenID, Key: Name + " " + strings.ToLower(m.ID), RequestHash: sha256.Sum256(m.raw),
		Render: func(any) (models.StoredResponse, error) {
			return models.StoredResponse{Status: http.StatusAccepted}, nil
		},
	}
	t, err := p.Work.Reply(ctx, taskID, answer, func(tx *store.Tx) error {
		err := tx.Idempotent(once, func() (any, error) { return nil, nil })
		if err == nil && once.Replay != nil {
			err = errRepeated
		}
		return err
	})
	switch {
	case errors.Is(err, errRepeated):
		return accepted(taskID), nil
	case errs.Is(err, errs.IdempotencyKeyReused):
		return protocol.Reply{}, coded(wire.ErrorValidation, codeReplayed, http.StatusConflict, "/id", "the id was used before for another message; use a new id for each message")
	}
	return accepted(t.ID), err
}

// acknowledge removes a message from the inbox of the agent that has received it.
func (p *Protocol) acknowledge(ctx context.Context, m received, body wire.Event) (protocol.Reply, error) {
	var payload struct {
		Original string `json:"originalMessageId"`
	}
	if err := json.Unmarshal(m.value("payload", body.Payload), &payload); err != nil || payload.Original == "" || strings.Contains(payload.Original, "\x00") {
		return protocol.Reply{}, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/originalMessageId", "payload.originalMessageId must be the id of the message that is acknowledged")
	}
	_, err := p.Work.Acknowledge(ctx, m.agentID, []string{payload.Original})
	return accepted(""), err
}

// event processes an EVENT (Genesis §3): an acknowledgement, or an event for subscribers.
func (p *Protocol) event(ctx context.Context, m received, body wire.Event) (protocol.Reply, error) {
	if body.EventType == eventAck && m.agentID != "" {
		return p.acknowledge(ctx, m, body)
	}
	return p.publish(ctx, m, body)
}
