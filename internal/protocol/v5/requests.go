package v5

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// maxRequestDepth is how deep a request may say it is without a reason (decisions: “O1
// accepts depth up to 3”).
const maxRequestDepth = 3

// maxTimeout is the longest timeout= of a request, in seconds.
const maxTimeout = 7 * 24 * 3600

// requestMeta is what is kept of a request.
type requestMeta struct {
	// Data is DATA as it came, for an agent that speaks the protocol too.
	Data wire.Data `json:"data"`
	// Closes says that the session was made for this request and ends with it.
	Closes bool `json:"closes,omitempty"`
	// V4 says that it was asked for in V4, where a task is named by its TID alone.
	V4 bool `json:"v4,omitempty"`
}

func readRequestMeta(in models.TaskInput) (m requestMeta, err error) {
	err = json.Unmarshal(in.Meta, &m)
	return m, err
}

// placement is where a request is put: its session and its short name.
type placement struct {
	session    string
	shortID    models.ShortID
	newSession bool // the session was made for it
}

// handleRequest takes R (PROTOCOL_V5 §4.2). The asker hears that it is taken on and, where it
// waits, how it ended or what is asked back.
func (p *Protocol) handleRequest(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch {
	case !s.maySubmit():
		return protocol.Reply{}, errorf(wire.E90, "scope", "asking for work takes a token with the scope messages:send")
	case m.Depth > maxRequestDepth && !has(m.Data, "justify"):
		return protocol.Reply{}, errorf(wire.E16, wire.ReasonMaxDepth, "depth %d needs justify=, a reason", m.Depth)
	}
	if earlier, err := p.findEarlierRequest(ctx, s, m); err != nil || earlier != nil {
		if err != nil {
			return protocol.Reply{}, err
		}
		return p.acceptedReply(ctx, s, m, *earlier, wait)
	}
	sub, err := p.newSubmission(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	at, err := p.placeRequest(ctx, s, m, sub.ID)
	if errs.Is(err, errs.Conflict) {
		return p.followDuplicate(ctx, s, m, wait, err)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	t, err := p.submit(ctx, s, m, at, sub)
	if err != nil {
		p.releasePlacement(context.WithoutCancel(ctx), s, at, sub.ID)
		return protocol.Reply{}, requestError(err)
	}
	m.Context, m.Task = contextName(at.shortID.Context), wire.TaskOf(at.shortID.Task)
	return p.acceptedReply(ctx, s, m, t, wait)
}

// submit submits a request that has its place.
func (p *Protocol) submit(ctx context.Context, s sender, m wire.Message, at placement, sub orchestrator.Submission) (t models.Task, err error) {
	sub.SessionID = at.session
	if sub.Parameters, err = p.resolveReferences(ctx, s, at, sub.Parameters); err != nil {
		return t, err
	}
	if sub.Meta, err = json.Marshal(requestMeta{Data: m.Data, Closes: at.newSession && !has(m.Data, keyKeep), V4: s.v4}); err != nil {
		return t, err
	}
	done, err := p.orchestrator.Submit(ctx, s.Principal, sub, nil)
	return done.Task, err
}

// releasePlacement takes the place of a request back that was refused: its name, and the session
// that was made for it.
func (p *Protocol) releasePlacement(ctx context.Context, s sender, at placement, taskID string) {
	err := p.orchestrator.DeleteShortID(ctx, taskID)
	if at.newSession && err == nil {
		err = p.orchestrator.DeleteSession(ctx, s.Principal, at.session)
	}
	if err != nil {
		p.log.Warn("the place of a request that was refused stays taken", "session", at.session, "error", err)
	}
}

// requestError gives the core's refusals of a request their codes.
func requestError(err error) error {
	own := errs.From(err)
	switch own.Code {
	case errs.NotFound:
		return codedError{code: wire.E42, desc: own.Detail, cause: err}
	}
	for _, f := range own.Fields {
		if f.Rule == "reference" {
			return codedError{code: wire.E43, desc: f.Detail, cause: err}
		}
	}
	return err
}

func has(data wire.Data, key string) bool {
	_, ok := data.Pair(key)
	return ok
}

// findEarlierRequest returns the task of the same request that came before: an R in the state R
// is accepted, and changes nothing. It is nil for a new one.
func (p *Protocol) findEarlierRequest(ctx context.Context, s sender, m wire.Message) (*models.Task, error) {
	if tid, ok := m.Task.Number(); !ok || tid == 0 || m.Context == "" || m.Context == wire.SystemContext {
		return nil, nil //nolint:nilnil // there is none
	}
	t, err := p.namedTask(ctx, m)
	var r codedError
	if asCodedError(err, &r) && r.code == wire.E40 {
		return nil, nil //nolint:nilnil // the number is free
	}
	if err != nil {
		return nil, err
	}
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if kept, err := readRequestMeta(order.Input); err != nil || !s.owns(t) || kept.Data != m.Data {
		return nil, errorf(wire.E10, "", "%s is taken by another request in %s", m.Task, m.Context)
	}
	return &t, nil
}

// newSubmission reads what is asked for.
func (p *Protocol) newSubmission(ctx context.Context, s sender, m wire.Message) (orchestrator.Submission, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return orchestrator.Submission{}, err
	}
	sub := orchestrator.Submission{
		ID: id.String(), Class: Class, Priority: corePriority(m.Priority), Override: orchestrator.Override{Notify: s.agentID != ""},
		Traceparent: protocol.TraceOf(ctx),
	}
	if call := m.Data.Call(); call != "" {
		sub.Capabilities = []string{call}
	}
	switch {
	case m.To.Role == wire.Worker:
		if sub.AgentID, err = p.agentByAddress(ctx, m.To); err != nil {
			return sub, err
		}
	case m.To.Role == wire.Group: // the agents of a sphere
		sub.SphereID = int(m.To.Number)
	case m.To != self:
		return sub, errorf(wire.E13, "to", "a request goes to O1, to a worker or to a group, not to %s", m.To)
	}
	if sub.AgentID == "" && len(sub.Capabilities) == 0 {
		return sub, errorf(wire.E10, "", "DATA must have call, a capability such as call=web_search")
	}
	if tokens, ok := m.Budget.Tokens(); ok {
		if tokens == 0 {
			return sub, codedError{code: wire.E17, needed: 1}
		}
		sub.Budget = new(int64(tokens))
	}
	again, err := parseAttempts(&sub, m.Data)
	if err != nil {
		return sub, err
	}
	if again.Fallback != (wire.Address{}) {
		if sub.Override.Fallback, err = p.agentByAddress(ctx, again.Fallback); err != nil {
			return sub, err
		}
	}
	if err := parseOptions(&sub, m.Data); err != nil {
		return sub, err
	}
	sub.Parameters, err = parseParameters(m.Data)
	return sub, err
}

// placeRequest finds, or makes, the session of a request, and names its task.
func (p *Protocol) placeRequest(ctx context.Context, s sender, m wire.Message, taskID string) (at placement, err error) {
	if m.Context == "" || m.Context == wire.SystemContext {
		at.newSession = true
		facts, err := parseFacts(m.Data)
		if err != nil {
			return at, err
		}
		if at.shortID.Context, err = p.orchestrator.OpenContext(ctx, s.Principal, facts, contextName); err != nil {
			return at, err
		}
		at.session = contextName(at.shortID.Context)
	} else if err = rejectFacts(m.Data); err != nil {
		return at, err
	} else if at.shortID.Context, at.session, err = p.findSession(ctx, s, m.Context); err != nil {
		return at, err
	}
	tid, ok := m.Task.Number()
	if s.v4 && at.newSession && (!ok || tid == 0) {
		tid, ok = firstTaskNumberV4(at.shortID.Context), true
	}
	if !ok || tid == 0 {
		at.shortID, err = p.orchestrator.ShortID(ctx, taskID, at.session)
		return at, err
	}
	at.shortID.Task = tid
	err = p.orchestrator.ClaimShortID(ctx, taskID, at.shortID)
	if errs.Is(err, errs.Conflict) {
		err = codedError{code: wire.E10, desc: fmt.Sprintf("%s is taken by another request in %s", m.Task, m.Context), cause: err}
	}
	return at, err
}

// findSession returns the session that a speaker names, which has to be his.
func (p *Protocol) findSession(ctx context.Context, s sender, name string) (n int64, session string, err error) {
	n, ok := contextNumber(name)
	if ok {
		session, err = p.orchestrator.SessionOfContext(ctx, n)
	}
	unknown := errorf(wire.E42, "", "there is no session %s; - has one made", name)
	switch {
	case !ok || isNotFound(err) || err == nil && session == "":
		return n, session, unknown
	case err != nil:
		return n, session, err
	}
	kept, err := p.orchestrator.Session(ctx, session)
	switch {
	case isNotFound(err) || err == nil && kept.Owner != s.TokenID && !s.Has(models.ScopeAdmin):
		err = unknown
	case err == nil && kept.State == models.SessionClosed:
		err = errorf(wire.E42, "", "the session %s is closed; - has another one made", name)
	}
	return n, session, err
}

// resolveReferences gives the references to tasks of the session that stand among the parameters the
// names that the core knows. A field that only this protocol can read in a result is
// read here, and so is a message.
func (p *Protocol) resolveReferences(ctx context.Context, s sender, at placement, parameters json.RawMessage) (json.RawMessage, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(parameters, &values); err != nil {
		return nil, err
	}
	changed := false
	for name, raw := range values {
		var text string
		if json.Unmarshal(raw, &text) != nil || !wire.IsRef(text) {
			continue
		}
		value, err := p.resolveReference(ctx, s, at, text)
		if err != nil {
			return nil, err
		}
		if value == text {
			continue
		}
		changed = true
		if values[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	if !changed {
		return parameters, nil
	}
	return json.Marshal(values)
}

func (p *Protocol) resolveReference(ctx context.Context, s sender, at placement, text string) (string, error) {
	ref, err := wire.ParseRef(text)
	if err == nil && ref.Kind == wire.RefMessage {
		return p.messageByNumber(ctx, s, at.shortID.Context, ref.Number)
	}
	if err != nil || ref.Kind != wire.RefTask {
		return text, err
	}
	tid, ok := ref.Task.Number()
	if !ok {
		return text, nil
	}
	t, err := p.orchestrator.TaskByShortID(ctx, models.ShortID{Context: at.shortID.Context, Task: tid})
	if err != nil {
		return "", notFoundAs(err, wire.E43, "there is no task %s in the session", ref.Task)
	}
	if !t.State.Ended() {
		return "", errorf(wire.E43, "", "%s has not ended", ref.Task)
	}
	switch ref.Field {
	case "", "S", "raw", "result", "state", "exit_code", "error", "tokens", "log":
		return "#REF:" + t.ID + ":" + ref.Field, nil
	}
	return p.taskField(ctx, t, ref.Task, ref.Field)
}
