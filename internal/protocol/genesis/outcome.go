package genesis

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	"comet/internal/orchestrator/selection"
	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// taskReply returns the state of a task: 202 with an acknowledgement while it is open, then its end.
func (p *Protocol) taskReply(ctx context.Context, m received, body wire.Request, t models.Task) (protocol.Reply, error) {
	reply := accepted(t.ID)
	if !t.State.Ended() {
		reply.SendBack = body.Options.RequiresAck
		ack, err := p.ack(ctx, m.ID, t)
		if err != nil {
			return reply, err
		}
		ack.To = m.From
		return p.replyWith(ctx, reply, ack)
	}
	stored, err := p.Work.TaskWithInput(ctx, t.ID)
	if err != nil {
		return reply, err
	}
	of, err := taskOf(stored)
	if err != nil {
		return reply, err
	}
	out, status, err := p.end(ctx, of, m.From, 0)
	if err != nil {
		return reply, err
	}
	reply.SendBack, reply.Status, reply.IsError = true, status, out.Body.Type() == wire.TypeError
	return p.replyWith(ctx, reply, out)
}

// The stages of an acknowledgement: the effect of the message is committed, and an agent has received the task.
const stageAccepted, stageDelivered = "accepted", "delivered"

// ack returns the acknowledgement of the REQUEST with an id that has started a task.
func (p *Protocol) ack(ctx context.Context, id string, t models.Task) (wire.Message, error) {
	body := struct {
		Original string           `json:"originalMessageId"`
		Stage    string           `json:"stage"`
		TaskID   string           `json:"taskId"`
		State    models.TaskState `json:"state"`
		AgentID  string           `json:"agentId,omitempty"`
		Attempt  int              `json:"attempt,omitempty"`
		Routing  *routing         `json:"routing,omitempty"`
	}{Original: id, Stage: stageAccepted, TaskID: t.ID, State: t.State}
	var err error
	if body.Attempt = receivedAttempt(t); body.Attempt > 0 {
		body.Stage, body.AgentID = stageDelivered, t.AgentID
	}
	if body.Routing, err = p.routingOf(ctx, t); err != nil {
		return wire.Message{}, err
	}
	payload, err := json.Marshal(body)
	return wire.Message{Body: event(eventAck, "message acknowledged", payload)}, err
}

// receivedAttempt returns the number of the open attempt of a task if its agent has received it, otherwise 0.
func receivedAttempt(t models.Task) int {
	if a, ok := t.NewestAttempt(); ok && a.AgentID != "" && !a.State.Ended() && t.MessageID == "" {
		return a.Attempt
	}
	return 0
}

// routingOf returns the routing decision of a task, nil if it has none. That of a task of several agents is the decision about the
// first one, with all of them as selected agents.
func (p *Protocol) routingOf(ctx context.Context, t models.Task) (out *routing, err error) {
	if out = routingOf(t); out != nil || t.Subtasks == 0 {
		return out, nil
	}
	subtasks, err := p.Work.Subtasks(ctx, t.ID)
	for i, s := range subtasks {
		if i == 0 {
			out = cmp.Or(routingOf(s), &routing{})
			out.SelectedAgents = nil
		}
		if s.AgentID != "" {
			out.SelectedAgents = append(out.SelectedAgents, s.AgentID)
		}
	}
	return out, err
}

// routing is a routing decision (Genesis §Routing Tables, RoutingDecision), and the similarity of the best agent.
type routing struct {
	SelectedAgents []string `json:"selectedAgents"`
	Reason         string   `json:"reason"`
	Confidence     float64  `json:"confidence"`
	Alternatives   []string `json:"alternatives"`
	Similarity     float64  `json:"similarity"`
}

// routingOf returns the routing decision of a task, nil if it has none.
func routingOf(t models.Task) *routing {
	var d selection.Decision
	if jsonv2.Unmarshal(t.Decision, &d) != nil { // written by the core
		return nil
	}
	r := d.Routing()
	if r == nil || len(r.Selected) == 0 {
		return nil
	}
	ids := func(agents []selection.Routed) []string {
		out := make([]string, len(agents))
		for i, a := range agents {
			out[i] = a.AgentID
		}
		return out
	}
	return &routing{ids(r.Selected), r.Reason, r.Confidence, ids(r.Alternatives), r.Similarity}
}

// end returns the RESPONSE about the end of a task, or the ERROR if its failure is not the response of an
// agent (docs/genesis.md “Errors”), and the HTTP status. A result longer than limit bytes is left out, unless
// limit is 0.
func (p *Protocol) end(ctx context.Context, t task, to string, limit int) (wire.Message, int, error) {
	out := wire.Message{To: to, CorrelationID: t.meta.CorrelationID}
	var stored storedDetail
	_ = json.Unmarshal(t.Task.Detail, &stored) // another protocol may store another detail
	d := cmp.Or(stored.Genesis, &detail{})
	response := wire.Response{RequestID: t.id, Confidence: d.Confidence, Sources: d.Sources, ProcessingTimeMS: processingTime(t.Task)}
	if t.Task.Tokens > 0 {
		response.Usage = &wire.Usage{Tokens: t.Task.Tokens}
	}
	switch f := orchestrator.Failure(t.Task.ErrorCode); {
	case t.Task.State == models.TaskDone:
		data, err := p.output(ctx, t.Task, d.Text, limit)
		response.Status, response.Data = wire.Succeeded, data
		out.Body = response
		return out, http.StatusOK, err
	case t.Task.State == models.TaskFailed && (f == orchestrator.FailureWork || f == orchestrator.FailureQuestions || d.Error != nil):
		response.Status, response.Error = wire.Failed, d.Error
		if d.Error == nil {
			response.Error = &wire.ErrorDetails{Code: codeExecutionFailed, Message: cmp.Or(t.Task.Error, "the work failed")}
		}
		out.Body = response
		return out, http.StatusOK, nil
	default:
		if f == orchestrator.FailureExpired {
			var err error
			if f, t.Task.Error, err = p.expired(ctx, t.Task); err != nil {
				return out, 0, err
			}
		}
		failure, status := p.failureOf(t, f)
		failure.OriginalMessageID = t.id
		out.Body = failure
		return out, status, nil
	}
}

// expired returns the failure of a task that has not ended in time, and its text. If no agent was available in this time, that is
// the failure.
func (p *Protocol) expired(ctx context.Context, t models.Task) (orchestrator.Failure, string, error) {
	const limits = "its timeout, ttl or maxResponseTime"
	var d selection.Decision
	if jsonv2.Unmarshal(t.Decision, &d) == nil && d.Verdict == selection.Unavailable {
		all, err := p.Work.Attempts(ctx, t.ID)
		if err != nil || !slices.ContainsFunc(all, func(a models.Attempt) bool { return a.AgentID != "" }) {
			return orchestrator.FailureUnavailable, "no agent that offers the intent was available before the request reached " + limits, err
		}
	}
	return orchestrator.FailureExpired, "the request did not end within " + limits, nil
}

// processingTime returns the duration of the last attempt in milliseconds, nil without one.
func processingTime(t models.Task) *float64 {
	if t.EndedAt == nil || t.AssignedAt.IsZero() || t.EndedAt.Before(t.AssignedAt) {
		return nil
	}
	return new(float64(t.EndedAt.Sub(t.AssignedAt).Microseconds()) / 1000)
}

// output returns the result of a task as JSON: the value if it is JSON, otherwise a string with the text.
func (p *Protocol) output(ctx context.Context, t models.Task, text bool, limit int) (jsontext.Value, error) {
	if t.OutputBytes == 0 {
		return nil, nil
	}
	most := int64(maxResult)
	if limit > 0 {
		most = min(most, int64(limit)/6) // JSON may escape a byte as six
	}
	if t.OutputBytes > most {
		return truncated(t.OutputBytes, t.ID, "output"), nil
	}
	var b strings.Builder
	err := p.Work.Output(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		b.Write(o.Data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	value := resultValue(b.String(), text)
	if len(value) > maxValue { // because of escapes
		value = truncated(t.OutputBytes, t.ID, "output")
	}
	return value, nil
}

// truncated returns what replaces a value of a task that is too long for a message. of is the path below the task where it is.
func truncated(bytes int64, taskID, of string) jsontext.Value {
	text, _ := json.Marshal(map[string]any{"truncated": true, "bytes": bytes, "location": "/api/v1/tasks/" + taskID + "/" + of}) // marshals always
	return text
}

// maxValue is the longest value in a message, in bytes. wire.Fits has the same limit.
const maxValue = wire.MaxSize - 1<<20

// maxResult is the longest result in a message, in bytes. A longer one is only available over the REST API.
const maxResult = 6 << 20

// failureOf returns the ERROR about a task that failed without a response of an agent.
func (p *Protocol) failureOf(t task, f orchestrator.Failure) (wire.Failure, int) {
	text := cmp.Or(t.Task.Error, "the work failed")
	if t.Task.State == models.TaskCancelled {
		return wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeCancelled, Message: text}, http.StatusConflict
	}
	switch f {
	case orchestrator.FailureTimeout, orchestrator.FailureExpired, orchestrator.FailureUnanswered:
		return wire.Failure{ErrorType: wire.ErrorTimeout, ErrorCode: codeTimeout, Message: text}, http.StatusGatewayTimeout
	case orchestrator.FailureUnsupported:
		return wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeUnsupported, Message: text, Details: p.supported(t.Input.AgentType)}, http.StatusUnprocessableEntity
	case orchestrator.FailureBudget:
		return wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeBudget, Message: text}, http.StatusTooManyRequests
	case orchestrator.FailureSaturated:
		return wire.Failure{ErrorType: wire.ErrorRouting, ErrorCode: codeQueueFull, Message: text, RetryAfterMS: new(int64(1000))}, http.StatusServiceUnavailable
	case orchestrator.FailureInvalid:
		return wire.Failure{ErrorType: wire.ErrorAgent, ErrorCode: codeInvalidResponse, Message: text}, http.StatusBadGateway
	case orchestrator.FailureResource:
		return wire.Failure{ErrorType: wire.ErrorAgent, ErrorCode: codeResource, Message: text}, http.StatusBadGateway
	}
	return wire.Failure{
		ErrorType: wire.ErrorRouting, ErrorCode: codeUnavailable, Message: text, RetryAfterMS: new(int64(1000)),
		FallbackSuggestion: p.Work.Index().Best(t.Input.Capabilities, t.Task.AgentID, t.Input.RequestedAgentID),
	}, http.StatusServiceUnavailable
}

// supported returns the details of an unsupported intent.
func (p *Protocol) supported(agentType string) jsontext.Value {
	text, _ := json.Marshal(map[string][]string{"supported": p.Work.CapabilitiesOf(agentType)}) // marshals always
	return text
}
