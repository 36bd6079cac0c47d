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

// acceptedDepth is how deep a request may say it is without a reason (decisions: “O1
// accepts depth up to 3”).
const acceptedDepth = 3

// maxTimeout is the longest timeout= of a request, in seconds.
const maxTimeout = 7 * 24 * 3600

// meta is what is kept of a request.
type meta struct {
	// Data is DATA as it came, for an agent that speaks the protocol too.
	Data wire.Data `json:"data"`
	// Closes says that the session was made for this request and ends with it.
	Closes bool `json:"closes,omitempty"`
	// V4 says that it was asked for in V4, where a task is named by its TID alone.
	V4 bool `json:"v4,omitempty"`
}

func metaOf(in models.TaskInput) (m meta, err error) {
	err = json.Unmarshal(in.Meta, &m)
	return m, err
}

// place is where a request is put: its session and its short name.
type place struct {
	session string
	name    models.ShortID
	made    bool // the session was made for it
}

// request takes R (PROTOCOL_V5 §4.2). The asker hears that it is taken on and, where it
// waits, how it ended or what is asked back.
func (d *Protocol) request(ctx context.Context, s speaker, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch {
	case !s.mayAsk():
		return protocol.Reply{}, refuse(wire.E90, "scope", "asking for work takes a token with the scope messages:send")
	case m.Depth > acceptedDepth && !has(m.Data, "justify"):
		return protocol.Reply{}, refuse(wire.E16, wire.ReasonMaxDepth, "depth %d needs justify=, a reason", m.Depth)
	}
	if earlier, err := d.earlier(ctx, s, m); err != nil || earlier != nil {
		if err != nil {
			return protocol.Reply{}, err
		}
		return d.follow(ctx, s, m, *earlier, wait)
	}
	sub, err := d.submission(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	p, err := d.place(ctx, s, m, sub.ID)
	if errs.Is(err, errs.Conflict) {
		return d.followTwin(ctx, s, m, wait, err)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	t, err := d.submit(ctx, s, m, p, sub)
	if err != nil {
		d.giveBack(context.WithoutCancel(ctx), s, p, sub.ID)
		return protocol.Reply{}, requestError(err)
	}
	m.Context, m.Task = contextName(p.name.Context), wire.TaskOf(p.name.Task)
	return d.follow(ctx, s, m, t, wait)
}

// submit submits a request that has its place.
func (d *Protocol) submit(ctx context.Context, s speaker, m wire.Message, p place, sub orchestrator.Submission) (t models.Task, err error) {
	sub.Session = p.session
	if sub.Parameters, err = d.refer(ctx, s, p, sub.Parameters); err != nil {
		return t, err
	}
	if sub.Meta, err = json.Marshal(meta{Data: m.Data, Closes: p.made && !has(m.Data, keyKeep), V4: s.old}); err != nil {
		return t, err
	}
	done, err := d.work.Submit(ctx, s.Principal, sub, nil)
	return done.Task, err
}

// giveBack takes the place of a request back that was refused: its name, and the session
// that was made for it.
func (d *Protocol) giveBack(ctx context.Context, s speaker, p place, taskID string) {
	err := d.work.DeleteShortID(ctx, taskID)
	if p.made && err == nil {
		err = d.work.DeleteSession(ctx, s.Principal, p.session)
	}
	if err != nil {
		d.log.Warn("the place of a request that was refused stays taken", "session", p.session, "error", err)
	}
}

// requestError gives the core's refusals of a request their codes.
func requestError(err error) error {
	own := errs.From(err)
	switch own.Code {
	case errs.NotFound:
		return refusal{code: wire.E42, desc: own.Detail, cause: err}
	}
	for _, f := range own.Fields {
		if f.Rule == "reference" {
			return refusal{code: wire.E43, desc: f.Detail, cause: err}
		}
	}
	return err
}

func has(data wire.Data, key string) bool {
	_, ok := data.Pair(key)
	return ok
}

// earlier returns the task of the same request that came before: an R in the state R
// is accepted, and changes nothing. It is nil for a new one.
func (d *Protocol) earlier(ctx context.Context, s speaker, m wire.Message) (*models.Task, error) {
	if tid, ok := m.Task.Number(); !ok || tid == 0 || m.Context == "" || m.Context == wire.SystemContext {
		return nil, nil //nolint:nilnil // there is none
	}
	t, err := d.named(ctx, m)
	var r refusal
	if asRefusal(err, &r) && r.code == wire.E40 {
		return nil, nil //nolint:nilnil // the number is free
	}
	if err != nil {
		return nil, err
	}
	order, err := d.work.TaskWithInput(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if kept, err := metaOf(order.Input); err != nil || !s.owns(t) || kept.Data != m.Data {
		return nil, refuse(wire.E10, "", "%s is taken by another request in %s", m.Task, m.Context)
	}
	return &t, nil
}

// submission reads what is asked for.
func (d *Protocol) submission(ctx context.Context, s speaker, m wire.Message) (orchestrator.Submission, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return orchestrator.Submission{}, err
	}
	sub := orchestrator.Submission{
		ID: id.String(), Class: Class, Priority: priorityOf(m.Priority), Override: orchestrator.Override{Notify: s.agent != ""},
		Trace: protocol.TraceOf(ctx),
	}
	if call := m.Data.Call(); call != "" {
		sub.Capabilities = []string{call}
	}
	switch {
	case m.To.Role == wire.Worker:
		if sub.Agent, err = d.agentAt(ctx, m.To); err != nil {
			return sub, err
		}
	case m.To.Role == wire.Group: // the agents of a sphere
		sub.Sphere = int(m.To.Number)
	case m.To != self:
		return sub, refuse(wire.E13, "to", "a request goes to O1, to a worker or to a group, not to %s", m.To)
	}
	if sub.Agent == "" && len(sub.Capabilities) == 0 {
		return sub, refuse(wire.E10, "", "DATA must have call, a capability such as call=web_search")
	}
	if tokens, ok := m.Budget.Tokens(); ok {
		if tokens == 0 {
			return sub, refusal{code: wire.E17, needed: 1}
		}
		sub.Budget = new(int64(tokens))
	}
	again, err := attempts(&sub, m.Data)
	if err != nil {
		return sub, err
	}
	if again.Fallback != (wire.Address{}) {
		if sub.Override.Fallback, err = d.agentAt(ctx, again.Fallback); err != nil {
			return sub, err
		}
	}
	if err := choices(&sub, m.Data); err != nil {
		return sub, err
	}
	sub.Parameters, err = parametersOf(m.Data)
	return sub, err
}

// place finds, or makes, the session of a request, and names its task.
func (d *Protocol) place(ctx context.Context, s speaker, m wire.Message, taskID string) (p place, err error) {
	if m.Context == "" || m.Context == wire.SystemContext {
		p.made = true
		facts, err := factsOf(m.Data)
		if err != nil {
			return p, err
		}
		if p.name.Context, err = d.work.OpenContext(ctx, s.Principal, facts, contextName); err != nil {
			return p, err
		}
		p.session = contextName(p.name.Context)
	} else if err = opensNone(m.Data); err != nil {
		return p, err
	} else if p.name.Context, p.session, err = d.session(ctx, s, m.Context); err != nil {
		return p, err
	}
	tid, ok := m.Task.Number()
	if s.old && p.made && (!ok || tid == 0) {
		tid, ok = countedV4(p.name.Context), true
	}
	if !ok || tid == 0 {
		p.name, err = d.work.ShortID(ctx, taskID, p.session)
		return p, err
	}
	p.name.Task = tid
	err = d.work.ClaimShortID(ctx, taskID, p.name)
	if errs.Is(err, errs.Conflict) {
		err = refusal{code: wire.E10, desc: fmt.Sprintf("%s is taken by another request in %s", m.Task, m.Context), cause: err}
	}
	return p, err
}

// session returns the session that a speaker names, which has to be his.
func (d *Protocol) session(ctx context.Context, s speaker, name string) (n int64, session string, err error) {
	n, ok := contextNumber(name)
	if ok {
		session, err = d.work.SessionOfContext(ctx, n)
	}
	unknown := refuse(wire.E42, "", "there is no session %s; - has one made", name)
	switch {
	case !ok || isGone(err) || err == nil && session == "":
		return n, session, unknown
	case err != nil:
		return n, session, err
	}
	kept, err := d.work.Session(ctx, session)
	switch {
	case isGone(err) || err == nil && kept.Owner != s.TokenID && !s.Has(models.ScopeAdmin):
		err = unknown
	case err == nil && kept.State == models.SessionClosed:
		err = refuse(wire.E42, "", "the session %s is closed; - has another one made", name)
	}
	return n, session, err
}

// refer gives the references to tasks of the session that stand among the parameters the
// names that the core knows. A field that only this protocol can read in a result is
// read here, and so is a message.
func (d *Protocol) refer(ctx context.Context, s speaker, p place, parameters json.RawMessage) (json.RawMessage, error) {
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
		value, err := d.referred(ctx, s, p, text)
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

func (d *Protocol) referred(ctx context.Context, s speaker, p place, text string) (string, error) {
	ref, err := wire.ParseRef(text)
	if err == nil && ref.Kind == wire.RefMessage {
		return d.message(ctx, s, p.name.Context, ref.Number)
	}
	if err != nil || ref.Kind != wire.RefTask {
		return text, err
	}
	tid, ok := ref.Task.Number()
	if !ok {
		return text, nil
	}
	t, err := d.work.TaskByShortID(ctx, models.ShortID{Context: p.name.Context, Task: tid})
	if err != nil {
		return "", orNotFound(err, wire.E43, "there is no task %s in the session", ref.Task)
	}
	if !t.State.Ended() {
		return "", refuse(wire.E43, "", "%s has not ended", ref.Task)
	}
	switch ref.Field {
	case "", "S", "raw", "result", "state", "exit_code", "error", "tokens", "log":
		return "#REF:" + t.ID + ":" + ref.Field, nil
	}
	return d.stored(ctx, t, ref.Task, ref.Field)
}
