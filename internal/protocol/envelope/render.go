package envelope

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// Render implements dialect.Dialect.
func (d *Protocol) Render(ctx context.Context, agent models.Agent, m models.InboxMessage, limit int) ([][]byte, error) {
	order, err := d.work.TaskWithInput(ctx, m.TaskID)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := taskOf(order)
	if err != nil {
		return nil, err
	}
	switch m.Kind {
	case models.MessageAssign:
		if a.Task.State.Ended() || a.Task.Attempt != m.Attempt || a.Task.AgentID != agent.ID {
			return nil, nil
		}
		return d.assignment(ctx, agent, a, m, limit)
	case models.MessageCancel:
		return d.renderMessage(agent, a, m, wire.WorkRequest{TaskID: a.id, WorkType: wire.WorkTypeCancel, Parameters: objectOrEmpty(m.Data)})
	case models.MessageTaskEnded:
		return d.renderEnd(ctx, agent, a, m, limit)
	}
	return nil, nil // the protocol has no words for it
}

// assignment is the work_request. One that is too long for the agent's line is failed at
// once, for another agent to do: it would only be silent about it.
func (d *Protocol) assignment(ctx context.Context, agent models.Agent, a task, m models.InboxMessage, limit int) ([][]byte, error) {
	asked, err := d.request(ctx, a)
	if err != nil {
		return nil, err
	}
	lines, err := d.renderMessage(agent, a, m, asked)
	if err != nil || limit <= 0 || len(lines[0]) <= limit {
		return lines, err
	}
	detail, err := json.Marshal(failureDetail{Limit: "message_bytes", Available: int64(limit), Required: int64(len(lines[0]))})
	if err != nil {
		return nil, err
	}
	_, err = d.work.Complete(ctx, agent.ID, a.Task.ID, orchestrator.Result{
		Failure: orchestrator.FailureResource, Text: "the request is too long for the agent's line", Detail: detail,
	})
	return nil, err
}

// request is the work_request of an attempt. Every attempt at a task has the same
// request_id, so that an agent does the work once.
func (d *Protocol) request(ctx context.Context, a task) (wire.WorkRequest, error) {
	h := wire.Hints{MaxDurationSeconds: a.meta.MaxDuration, MaxMemoryMB: a.meta.MaxMemory, Other: a.meta.Hints}
	if a.Task.Budget != nil {
		h.MaxTokens = max(*a.Task.Budget-a.Task.Tokens, 1)
	}
	if names := a.Input.Capabilities; len(names) > 1 {
		if text, err := json.Marshal(names); err == nil {
			h.Other = append(h.Other[:len(h.Other):len(h.Other)], wire.Member{Name: "capabilities", Value: text})
		}
	}
	if a.Task.Attempt > 1 {
		attempts, err := d.work.Attempts(ctx, a.Task.ID)
		if err != nil {
			return wire.WorkRequest{}, err
		}
		if simpler, err := orchestrator.WantsSimplerResult(a.Input, attempts); err == nil && simpler {
			h.Other = append(h.Other[:len(h.Other):len(h.Other)], wire.Member{Name: "simplify", Value: json.RawMessage("true")})
		}
	}
	return wire.WorkRequest{TaskID: a.id, WorkType: a.workType(), Parameters: objectOrEmpty(a.Input.Parameters), Hints: h}, nil
}

func objectOrEmpty(raw json.RawMessage) json.RawMessage {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return json.RawMessage("{}")
	}
	return raw
}

// renderEnd tells an agent that asked for a task how it ended: a long result in chunks
// first, then the result without it (Chiffon §Large Payloads).
func (d *Protocol) renderEnd(ctx context.Context, agent models.Agent, a task, m models.InboxMessage, limit int) ([][]byte, error) {
	payload, err := d.endPayload(ctx, a)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	result, is := payload.(wire.WorkResult)
	inline := int64(maxInline)
	if limit > 0 {
		inline = min(inline, int64(limit)/8) // a byte may be written as six
	}
	if is && a.Task.OutputBytes > maxChunked {
		is, result.Output = false, ""
		payload = result
	}
	if is && a.Task.OutputBytes > inline {
		text, err := d.output(ctx, a.Task)
		if err != nil {
			return nil, err
		}
		for i, c := range split(text, limit) {
			step := wire.Step{Number: 1, Name: "output", Output: c.Text, Chunk: c.Range}
			line, err := wire.Format(d.envelope(agent, a, chunkID(m.ID, i), wire.WorkStatus{TaskID: a.id, Status: wire.StatusRunning, Progress: 100, Step: &step}))
			if err != nil {
				return nil, err
			}
			out = append(out, line)
		}
		result.Output = ""
		payload = result
	}
	last, err := d.renderMessage(agent, a, m, payload)
	return append(out, last...), err
}

// chunkID is the id of a message that goes ahead of the one with the id, the same
// however often they are sent.
func chunkID(id string, n int) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "comet:message:%s:%d", id, n))
}

// renderMessage writes the one message that an inbox message is.
func (d *Protocol) renderMessage(agent models.Agent, a task, m models.InboxMessage, p wire.Payload) ([][]byte, error) {
	id, err := uuid.Parse(m.ID)
	if err != nil {
		return nil, err
	}
	line, err := wire.Format(d.envelope(agent, a, id, p))
	if err != nil {
		return nil, err
	}
	return [][]byte{line}, nil
}

func (d *Protocol) envelope(agent models.Agent, a task, id uuid.UUID, p wire.Payload) wire.Envelope {
	return wire.Envelope{
		ProtocolVersion: wire.Version, MessageID: id, From: wire.Orchestrator, To: agent.Type, Timestamp: d.clock().UTC(),
		TraceID: a.traceID, RequestID: a.requestID, Type: p.Type(), Payload: p, Custom: a.meta.Custom,
	}
}

// maxChunked is the longest result that is told in chunks; a longer one is fetched.
const maxChunked = 8 << 20

// split cuts an output into chunks whose messages are not longer than limit bytes, where
// that is not 0. A byte may be written as six (\u0007).
func split(text string, limit int) []wire.Chunk {
	all := wire.Split(text)
	const envelope, escaped = 2048, 6
	most := (limit - envelope) / escaped
	if limit <= 0 || most >= wire.MaxChunk {
		return all
	}
	most = max(most, 1024)
	var out []wire.Chunk
	for _, c := range all {
		for at := 0; at < len(c.Text); {
			end := min(at+most, len(c.Text))
			for end < len(c.Text) && end > at+1 && !utf8.RuneStart(c.Text[end]) {
				end--
			}
			from := c.From + int64(at)
			out = append(out, wire.Chunk{Range: wire.Range{From: from, To: from + int64(end-at), Total: c.Total}, Text: c.Text[at:end]})
			at = end
		}
	}
	return out
}
