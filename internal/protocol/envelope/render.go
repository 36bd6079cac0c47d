package envelope

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// Render implements protocol.Protocol.
func (p *Protocol) Render(ctx context.Context, to protocol.Peer, m models.InboxMessage, limit int) ([][]byte, error) {
	agent := to.Agent
	stored, err := p.work.TaskOfMessage(ctx, m)
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
	switch m.Kind {
	case models.MessageAssign:
		if t.Task.State.Ended() || t.Task.Attempt != m.Attempt || t.Task.AgentID != agent.ID {
			return nil, nil
		}
		return p.assignment(ctx, agent, t, m, limit)
	case models.MessageCancel:
		return p.renderMessage(agent, t, m, wire.WorkRequest{TaskID: t.id, WorkType: wire.WorkTypeCancel, Parameters: objectOrEmpty(m.Data)})
	case models.MessageProgress:
		if t.Task.State.Ended() {
			return nil, nil
		}
		return p.renderMessage(agent, t, m, statusOf(t.id, t.Task))
	case models.MessageTaskEnded:
		return p.renderEnd(ctx, agent, t, m, limit)
	}
	return nil, nil // the protocol has no message for this kind
}

// assignment returns the work_request of an attempt. If it exceeds limit, the attempt fails at once
// instead of timing out, so that another agent can be tried.
func (p *Protocol) assignment(ctx context.Context, agent models.Agent, t task, m models.InboxMessage, limit int) ([][]byte, error) {
	req, err := p.request(ctx, t)
	if err != nil {
		return nil, err
	}
	messages, err := p.renderMessage(agent, t, m, req)
	if err != nil || limit <= 0 || len(messages[0]) <= limit {
		return messages, err
	}
	detail, err := json.Marshal(failureDetail{Limit: "message_bytes", Available: int64(limit), Required: int64(len(messages[0]))})
	if err != nil {
		return nil, err
	}
	_, err = p.work.Complete(ctx, agent.ID, t.Task.ID, orchestrator.Result{
		Failure: orchestrator.FailureResource, Text: "the request is too long for the agent's transport", Detail: detail,
	})
	return nil, err
}

// request returns the work_request of an attempt. All attempts at a task have the same request_id,
// so that an agent does the work only once.
func (p *Protocol) request(ctx context.Context, t task) (wire.WorkRequest, error) {
	h := wire.Hints{MaxDurationSeconds: t.meta.MaxDuration, MaxMemoryMB: t.meta.MaxMemory, Other: t.meta.Hints}
	if t.Task.Budget != nil {
		h.MaxTokens = max(*t.Task.Budget-t.Task.Tokens, 1)
	}
	if required := t.Input.Capabilities; len(required) > 1 {
		if value, err := json.Marshal(required); err == nil {
			h.Other = append(h.Other[:len(h.Other):len(h.Other)], wire.Member{Name: "capabilities", Value: value})
		}
	}
	if t.Task.Attempt > 1 {
		attempts, err := p.work.Attempts(ctx, t.Task.ID)
		if err != nil {
			return wire.WorkRequest{}, err
		}
		if simpler, err := orchestrator.WantsSimplerResult(t.Input, attempts); err == nil && simpler {
			h.Other = append(h.Other[:len(h.Other):len(h.Other)], wire.Member{Name: "simplify", Value: json.RawMessage("true")})
		}
	}
	return wire.WorkRequest{TaskID: t.id, WorkType: t.workType(), Parameters: objectOrEmpty(t.Input.Parameters), Hints: h}, nil
}

func objectOrEmpty(raw json.RawMessage) json.RawMessage {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return json.RawMessage("{}")
	}
	return raw
}

// renderEnd returns the messages about the end of a task for the agent that submitted it: a long
// result in chunks first, then the work_result without output (Chiffon §Large Payloads).
func (p *Protocol) renderEnd(ctx context.Context, agent models.Agent, t task, m models.InboxMessage, limit int) ([][]byte, error) {
	payload, err := p.endPayload(ctx, t)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	result, isResult := payload.(wire.WorkResult)
	inline := int64(maxInline)
	if limit > 0 {
		inline = min(inline, int64(limit)/8) // JSON may escape a byte as six
	}
	if isResult && t.Task.OutputBytes > maxChunked {
		isResult, result.Output = false, ""
		payload = result
	}
	if isResult && t.Task.OutputBytes > inline {
		text, err := p.output(ctx, t.Task)
		if err != nil {
			return nil, err
		}
		for i, c := range wire.Split(text, maxText(limit)) {
			step := wire.Step{Number: 1, Name: "output", Output: c.Text, Chunk: c.Range}
			message, err := wire.Format(p.envelope(agent, t, chunkID(m.ID, i), wire.WorkStatus{TaskID: t.id, Status: wire.StatusRunning, Progress: 100, Step: &step}))
			if err != nil {
				return nil, err
			}
			out = append(out, message)
		}
		result.Output = ""
		payload = result
	}
	last, err := p.renderMessage(agent, t, m, payload)
	return append(out, last...), err
}

// chunkID returns the id of the n-th chunk before a message. It is the same for every delivery.
func chunkID(id string, n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "comet:message:%s:%d", id, n))
}

// renderMessage returns the payload in a single message with the id of the inbox message.
func (p *Protocol) renderMessage(agent models.Agent, t task, m models.InboxMessage, payload wire.Payload) ([][]byte, error) {
	id, err := uuid.Parse(m.ID)
	if err != nil {
		return nil, err
	}
	message, err := wire.Format(p.envelope(agent, t, id, payload))
	if err != nil {
		return nil, err
	}
	return [][]byte{message}, nil
}

func (p *Protocol) envelope(agent models.Agent, t task, id uuid.UUID, payload wire.Payload) wire.Envelope {
	from := wire.Orchestrator
	if payload.Type() != wire.TypeWorkRequest { // the requester gets the sender of the response to its request
		from = cmp.Or(t.meta.To, from)
	}
	return wire.Envelope{
		ProtocolVersion: wire.Version, MessageID: id, From: from, To: agent.Type, Timestamp: p.clock().UTC(),
		TraceID: t.traceID, RequestID: t.requestID, Type: payload.Type(), Payload: payload, Custom: t.meta.Custom,
	}
}

// maxChunked is the longest result that is sent in chunks; a longer one is only available over the
// REST API.
const maxChunked = 8 << 20

// maxText returns the longest text of a chunk whose message is at most limit bytes long, unless
// limit is 0. JSON may escape a byte as six (\u0007).
func maxText(limit int) int {
	const envelope, escaped, least = 2048, 6, 1024
	if limit <= 0 {
		return wire.MaxChunk
	}
	return max((limit-envelope)/escaped, least)
}
