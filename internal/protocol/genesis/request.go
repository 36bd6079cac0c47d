package genesis

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// request processes a REQUEST (Genesis §1): the service fulfils it, or it becomes a task. A request to another agent becomes
// a task even if the service could fulfil its intent.
func (p *Protocol) request(ctx context.Context, m received, body wire.Request, wait time.Duration) (protocol.Reply, error) {
	if expired := expiry(m.Message, body, p.clock()); !expired.IsZero() && !expired.After(p.clock()) {
		return protocol.Reply{}, coded(wire.ErrorTimeout, codeExpired, http.StatusGatewayTimeout, "/ttl", "the message expired at %s", expired.Format(time.RFC3339Nano))
	}
	toService := m.To == models.RootAgentID || m.To == wire.Broadcast
	switch {
	case toService && body.Intent == intentClarify:
		return p.clarify(ctx, m, body)
	case !m.by.Has(models.ScopeMessagesSend):
		return protocol.Reply{}, coded(wire.ErrorValidation, codeUnauthorized, http.StatusForbidden, "", "the token lacks the scope messages:send, which a REQUEST needs")
	case toService && body.Intent == intentCancel:
		return p.cancel(ctx, m, body)
	case toService && p.Intents.Has(body.Intent):
		return p.answer(ctx, m, body, wait)
	}
	return p.submit(ctx, m, body, wait)
}

// expiry returns when a request ends at the latest: after its timeout, its ttl or its maxResponseTime (docs/genesis.md
// “Time limits”). It is the zero time without any of them.
func expiry(m wire.Message, body wire.Request, now time.Time) (at time.Time) {
	for _, limit := range []struct {
		from time.Time
		ms   int64
	}{{now, body.TimeoutMS}, {m.Time(), body.TTLMS}, {now, body.Options.MaxResponseTimeMS}} {
		if end := limit.from.Add(time.Duration(limit.ms) * time.Millisecond); limit.ms > 0 && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// submit requests a task. The reply is its state, or its end if the request waits for it.
func (p *Protocol) submit(ctx context.Context, m received, body wire.Request, wait time.Duration) (protocol.Reply, error) {
	sub, err := p.submission(m, body)
	if err != nil {
		return protocol.Reply{}, err
	}
	done, err := p.Work.Submit(ctx, m.by, sub, nil)
	if err != nil {
		return protocol.Reply{}, p.requestError(err, m, body)
	}
	t := done.Task
	if wait > 0 && !t.State.Ended() {
		t, err = p.Work.Wait(ctx, m.by.TokenID, t.ID, wait)
		if err != nil && !errs.Is(err, errs.Busy) { // with too many waiting requests, reply at once
			return protocol.Reply{}, err
		}
	}
	// A request that waited too long, or whose server stops, still gets the state of the task.
	replyCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyTimeout)
	defer cancel()
	return p.taskReply(replyCtx, m, body, t)
}

// replyTimeout limits reading the data of a reply.
const replyTimeout = 5 * time.Second

// submission converts a REQUEST to a submission.
func (p *Protocol) submission(m received, body wire.Request) (orchestrator.Submission, error) {
	parameters := m.value("payload", body.Payload)
	stored := meta{
		ID: m.ID, CorrelationID: cmp.Or(m.CorrelationID, m.ID), From: m.From, Confidence: body.Confidence, Entities: body.Entities,
		Context: m.value("context", body.Context), Stream: body.Options.Stream, Partial: body.Options.AllowPartialResponse,
	}
	if parameters[0] != '{' {
		stored.Wrapped = true
		parameters = append(append([]byte(`{"payload":`), parameters...), '}')
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return orchestrator.Submission{}, err
	}
	wants := body.Options.RequiresResponse
	sub := orchestrator.Submission{
		RequestID: strings.ToLower(m.ID), Class: Class, Capabilities: []string{body.Intent}, Parameters: parameters, Priority: int(body.Priority),
		Fingerprint: fingerprint(m), Meta: text, Traceparent: cmp.Or(m.trace, traceparent(stored.CorrelationID)),
		Override: orchestrator.Override{
			Notify:   m.agentID != "" && (wants == nil || *wants),
			Partials: m.agentID != "" && (body.Options.Stream || body.Options.AllowPartialResponse),
			Receipts: m.agentID != "" && body.Options.RequiresAck,
		},
	}
	if at := expiry(m.Message, body, p.clock()); !at.IsZero() {
		sub.Override.ExpiresAt = at
	}
	if m.To != wire.Broadcast && m.To != models.RootAgentID {
		sub.AgentID = m.To
	}
	if sub.Budget, err = contextNumber(stored.Context, "maxTokens", 1, math.MaxInt64, "a number of tokens above 0"); err != nil {
		return sub, err
	}
	agents, err := contextNumber(stored.Context, "fanout", 2, 3, "2 or 3, the number of agents that execute the request at the same time")
	if agents != nil {
		sub.Override.Workers = int(*agents)
	}
	return sub, err
}

// contextNumber returns an integer in the context of a REQUEST, nil if it is missing.
func contextNumber(context json.RawMessage, name string, least, most int64, want string) (*int64, error) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(context, &members)
	if value := string(members[name]); err == nil && value != "" && value != "null" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil && least <= n && n <= most {
			return &n, nil
		}
		return nil, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/context/"+name, "context.%s must be %s", name, want)
	}
	return nil, err
}

// traceparent returns a W3C traceparent with a UUID as its trace id, "" if the text is not a UUID.
func traceparent(id string) string {
	trace, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	span := uuid.NewSHA1(trace, []byte("span"))
	return "00-" + hex.EncodeToString(trace[:]) + "-" + hex.EncodeToString(span[8:]) + "-01"
}

// cancel cancels a task of the sender. A task that has ended does not change.
func (p *Protocol) cancel(ctx context.Context, m received, body wire.Request) (protocol.Reply, error) {
	ref, err := readReference(m, body)
	if err != nil {
		return protocol.Reply{}, err
	}
	t, err := p.ownTask(ctx, m, ref)
	if err != nil {
		return protocol.Reply{}, err
	}
	t, err = p.Work.Cancel(ctx, t.ID, cmp.Or(input.ClipTo(ref.Reason, maxReason), "cancelled by the requester"), nil)
	if err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, err
	}
	return p.respond(ctx, m, map[string]any{"taskId": t.ID, "state": t.State})
}

// maxReason limits the reason of a cancellation, in characters.
const maxReason = 1000

// answer makes the service fulfil an intent.
func (p *Protocol) answer(ctx context.Context, m received, body wire.Request, wait time.Duration) (protocol.Reply, error) {
	q := Query{ID: strings.ToLower(m.ID), Agent: m.agentID, Intent: body.Intent, Payload: m.value("payload", body.Payload), Entities: map[string]string{}, Traceparent: m.trace, Wait: wait}
	for _, e := range body.Entities {
		if _, repeated := q.Entities[e.Type]; !repeated {
			q.Entities[e.Type] = e.Value
		}
	}
	data, err := p.Intents.Answer(ctx, m.by, q)
	if errs.Is(err, errs.IdempotencyKeyReused) {
		return protocol.Reply{}, replayed(m.ID, err)
	}
	if err != nil {
		return p.intentFailure(ctx, m, err)
	}
	return p.respond(ctx, m, data)
}

// respond returns a RESPONSE with the data of a REQUEST that the service has fulfilled.
func (p *Protocol) respond(ctx context.Context, m received, data any) (protocol.Reply, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return protocol.Reply{}, err
	}
	reply := protocol.Reply{Status: http.StatusOK, SendBack: true}
	return p.replyWith(ctx, reply, p.responseTo(m.Message, wire.Response{Status: wire.Succeeded, Data: text}))
}
