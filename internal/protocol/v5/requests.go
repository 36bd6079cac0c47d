package v5

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
	"comet/store"
)

// maxRequestDepth is the highest DEPTH of a request or hand-off without justify= (decisions: “O1
// accepts depth up to 3, and 4-5 with justify=”).
const maxRequestDepth = 3

// handleRequest handles R (PROTOCOL_V5 §4.2). The reply says that the request is accepted; if the
// requester waits, the outcome or the worker's question follows.
func (p *Protocol) handleRequest(ctx context.Context, s sender, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	switch {
	case !s.maySubmit():
		return protocol.Reply{}, errSubmitScope()
	case m.Depth > maxRequestDepth && !has(m.Data, "justify"):
		return protocol.Reply{}, errorf(codes.E16, codes.ReasonMaxDepth, "depth %d needs justify=, a reason", m.Depth)
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
	at, err := p.placeRequest(ctx, s, m, &sub)
	if err != nil {
		return protocol.Reply{}, err
	}
	s.closesSession = (s.closesSession || sub.Session != nil) && !has(m.Data, keyKeep)
	t, id, err := p.submit(ctx, s, m, at, sub)
	if errs.Is(err, errs.Conflict) { // the same request may have been committed on another connection
		earlier, lookupErr := p.findEarlierRequest(ctx, s, m)
		if lookupErr != nil || earlier == nil {
			return protocol.Reply{}, cmp.Or(lookupErr, err)
		}
		return p.acceptedReply(ctx, s, m, *earlier, wait)
	}
	if err != nil {
		return protocol.Reply{}, requestError(err)
	}
	m.Context, m.Task = shortid.ContextName(id.Context), wire.NewTask(id.Task)
	return p.acceptedReply(ctx, s, m, t, wait)
}

// findEarlierRequest returns the task of the same request received before, nil for none. Such an
// R is accepted and has no effect.
func (p *Protocol) findEarlierRequest(ctx context.Context, s sender, m wire.Message) (*models.Task, error) {
	if tid, ok := m.Task.Number(); !ok || tid == 0 || m.Context == "" || m.Context == wire.SystemContext {
		return nil, nil //nolint:nilnil // there is none
	}
	t, err := p.namedTask(ctx, m)
	if coded, ok := errors.AsType[codedError](err); ok && coded.code == codes.E40 {
		return nil, nil //nolint:nilnil // the number is free
	}
	if err != nil {
		return nil, err
	}
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if meta, err := readRequestMeta(order.Input); err != nil || !s.owns(t) || meta.Data != m.Data {
		return nil, errorf(codes.E10, "", "another request has %s in %s", m.Task, m.Context)
	}
	return &t, nil
}

// newSubmission converts a request to a submission without session, name and resolved references.
func (p *Protocol) newSubmission(ctx context.Context, s sender, m wire.Message) (_ orchestrator.Submission, err error) {
	sub := orchestrator.Submission{
		Class: Class, Priority: corePriority(m.Priority), Override: orchestrator.Override{Notify: s.agentID != ""},
		Traceparent: s.traceparent,
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
		return sub, errorf(codes.E13, "to", "a request goes to O1, to a worker or to a group, not to %s", m.To)
	}
	if sub.AgentID == "" && len(sub.Capabilities) == 0 {
		return sub, codedError{
			code: codes.E10, desc: "DATA must have call, a capability such as call=web_search", cause: errs.New(errs.UnsupportedWork, "no capability"),
		}
	}
	if tokens, ok := m.Budget.Tokens(); ok {
		if tokens == 0 {
			return sub, codedError{code: codes.E17, needed: 1}
		}
		sub.Budget = new(int64(tokens))
	}
	retry, err := parseAttempts(&sub, m.Data)
	if err != nil {
		return sub, err
	}
	if retry.Fallback != (wire.Address{}) {
		if sub.Override.Fallback, err = p.agentByAddress(ctx, retry.Fallback); err != nil {
			return sub, err
		}
	}
	if seconds, err := intPair(m.Data, keyExpires, 1, maxTimeout, 0); err != nil {
		return sub, err
	} else if seconds > 0 {
		sub.Override.ExpiresAt = p.store.Now().Add(time.Duration(seconds) * time.Second)
	}
	if err := parseOptions(&sub, m.Data); err != nil {
		return sub, err
	}
	sub.Parameters = parseParameters(m.Data)
	return sub, nil
}

// placeRequest finds the session of a request, or prepares to open one, and returns the requested
// short id: without context for a new session, and without task for the next one of the context.
func (p *Protocol) placeRequest(ctx context.Context, s sender, m wire.Message, sub *orchestrator.Submission) (at shortid.ID, err error) {
	if m.Context == "" || m.Context == wire.SystemContext {
		sub.Session = &orchestrator.NewSession{}
		sub.Session.Facts, err = parseFacts(m.Data, map[string]any{})
	} else if err = rejectFacts(m.Data); err == nil || s.closesSession { // the session was opened for this request
		at.Context, sub.SessionID, err = p.findSession(ctx, s, m.Context)
	}
	if tid, ok := m.Task.Number(); ok {
		at.Task = tid
	}
	return at, err
}

// submit submits a request. The session, if it is new, the task and its short id are committed in
// one transaction. The error is errs.Conflict if another request has the short id.
func (p *Protocol) submit(ctx context.Context, s sender, m wire.Message, at shortid.ID, sub orchestrator.Submission) (t models.Task, id shortid.ID, err error) {
	sub.Resolver = p.resolver(s, at.Context)
	if sub.Meta, err = json.Marshal(requestMeta{Data: m.Data, Closes: s.closesSession, V4: s.v4}); err != nil {
		return t, id, err
	}
	if sub.Session != nil {
		sub.Session.ID = func(tx *store.Tx) (_ string, err error) {
			id, err = shortid.OpenSession(tx, func(n int64) int { return firstTaskNumber(at.Task, n, s.v4) })
			return shortid.ContextName(id.Context), err
		}
	}
	sub.With = func(tx *store.Tx, t *models.Task) (err error) {
		defer func() { p.shortIDs.AddAfterCommit(tx, t.ID, id) }()
		switch {
		case sub.Session != nil:
			return shortid.InsertTask(tx, t.ID, id)
		case at.Task == 0:
			id, err = shortid.Assign(tx, t.ID, t.SessionID)
			return err
		}
		id = at
		if err = shortid.Claim(tx, t.ID, id); errs.Is(err, errs.Conflict) {
			err = codedError{code: codes.E10, desc: fmt.Sprintf("another request has %s in %s", m.Task, m.Context), cause: err}
		}
		return err
	}
	submitted, err := p.orchestrator.Submit(ctx, s.Principal, sub, nil)
	return submitted.Task, id, err
}

// firstTaskNumber returns the number of the first task of a new context: the requested one or, with
// 0, that of the version.
func firstTaskNumber(requested int, context int64, v4 bool) int {
	switch {
	case requested != 0:
		return requested
	case v4:
		return firstTaskNumberV4(context)
	}
	return 1
}

// requestError gives the core's errors about a request their codes.
func requestError(err error) error {
	own := errs.From(err)
	if own.Code == errs.NotFound {
		return codedError{code: codes.E42, desc: own.Detail, cause: err}
	}
	for _, f := range own.Fields {
		if f.Rule == "reference" {
			return codedError{code: codes.E43, desc: f.Detail, cause: err}
		}
	}
	return err
}

// handleCancel handles U with the state X from a requester (decisions: “Cancel is a U with state
// X”).
func (p *Protocol) handleCancel(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.requestedTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	why, ok := m.Data.Get(keyReason)
	if !ok {
		why = "cancelled by the requester"
	}
	if t, err = p.orchestrator.Cancel(ctx, t.ID, why, nil); err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	p.closeSession(ctx, t)
	return p.reply(m, wire.Ack, wire.Cancelled, new(wire.Writer).Flag("cancelled"), true)
}

// requestedTask returns the task that a message names, which its sender must have requested.
func (p *Protocol) requestedTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	if s.task != nil {
		return *s.task, nil
	}
	t, err := p.namedTask(ctx, m)
	if err == nil && !s.owns(t) {
		err = errorf(codes.E40, "", "there is no task %s in %s", m.Task, m.Context)
	}
	return t, err
}

// parseAttempts reads timeout= and attempt_timeout= and, where retry= and max= are there, the number of retries. It
// returns what DATA states about attempts besides.
func parseAttempts(sub *orchestrator.Submission, data wire.Data) (retry wire.Retry, err error) {
	seconds, err := intPair(data, keyTimeout, 1, maxTimeout, 0)
	if err != nil {
		return retry, err
	}
	sub.Override.TimeoutMS = int64(seconds) * 1000
	if seconds, err = intPair(data, keyAttempt, 1, maxTimeout, 0); err != nil {
		return retry, err
	}
	sub.Override.AttemptTimeoutMS = int64(seconds) * 1000
	if retry, err = data.Retry(); err != nil || !has(data, keyRetry) || !has(data, keyMax) {
		return retry, err
	}
	n, err := intPair(data, keyMax, 0, maxRetries, 0)
	sub.Override.Retries = &n
	return retry, err
}

// parseOptions reads the options of a request: what happens to an unanswered question, how many
// workers execute the task, and what follows an E17 (PROTOCOL_V5 §5.1, §7.2, §9.2).
func parseOptions(sub *orchestrator.Submission, data wire.Data) (err error) {
	if err = parseUnanswered(sub, data); err != nil {
		return err
	}
	n, err := parseWorkers(data)
	if err != nil {
		return err
	}
	if sub.Override.Workers = n; n != 0 && sub.AgentID != "" {
		return errorf(codes.E10, "", "parallel asks several workers, and one is named")
	}
	if sub.Budget != nil && *sub.Budget < int64(n) {
		return codedError{code: codes.E17, needed: int64(n), have: *sub.Budget} // one token for each
	}
	sub.Override.Overrun, err = parseOverrun(data, sub.Budget)
	return err
}

// parseUnanswered reads what happens to a question without an answer.
func parseUnanswered(sub *orchestrator.Submission, data wire.Data) error {
	text, err := wordPair(data, keyUnanswered, "first", "abandon")
	if err == nil && text != "" {
		sub.Override.UseFirstOption = new(text == "first")
	}
	return err
}

// parseWorkers reads the number of workers that execute the task at the same time, 0 for one. The
// first success is the result (PROTOCOL_V5 §4.2, §5.1); no other aggregation is supported.
func parseWorkers(data wire.Data) (int, error) {
	how, aggregates := data.Get(keyAggregate)
	if aggregates && how != aggregateFirst {
		return 0, errorf(codes.E10, "", "aggregate must be %s, not %s: no other aggregation is supported", aggregateFirst, how)
	}
	n, err := intPair(data, keyParallel, 2, orchestrator.MaxParallel, 0)
	if err == nil && n == 0 && aggregates {
		err = errorf(codes.E10, "", "aggregate needs parallel=, 2 to %d workers", orchestrator.MaxParallel)
	}
	return n, err
}

// parseOverrun reads what follows an E17, nil for nothing.
func parseOverrun(data wire.Data, budget *int64) (*orchestrator.Overrun, error) {
	var words []string
	for _, a := range orchestrator.OverrunActions() {
		words = append(words, string(a))
	}
	action, err := wordPair(data, keyOnBudget, words...)
	if err != nil {
		return nil, err
	}
	text, limited := data.Get(keyMaxBudget)
	switch {
	case limited && action != string(orchestrator.OverrunRaise):
		return nil, errorf(codes.E10, "", "max_budget needs on_budget=raise")
	case action == "":
		return nil, nil //nolint:nilnil // nothing follows
	case action == string(orchestrator.OverrunRaise) && budget == nil:
		return nil, errorf(codes.E10, "", "on_budget=raise needs a BUDGET to raise, not -")
	}
	out := &orchestrator.Overrun{Action: orchestrator.OverrunAction(action)}
	if limited {
		out.MaxBudget, err = strconv.ParseInt(text, 10, 64)
		if err != nil || out.MaxBudget < 1 || out.MaxBudget > orchestrator.MaxBudget {
			return nil, errorf(codes.E10, "", "max_budget must be a number of tokens, not %s", text)
		}
		if out.MaxBudget < *budget {
			return nil, errorf(codes.E10, "", "max_budget must not be less than BUDGET, %d", *budget)
		}
	}
	return out, nil
}
