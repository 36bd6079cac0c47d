package v5

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// reportError gives the core's refusals of a report their codes.
func reportError(err error, s sender, m wire.Message) error {
	switch {
	case errs.Is(err, errs.NotFound):
		return errorf(wire.E40, "", "%s has no task %s in %s", s.address, m.Task, m.Context)
	case errs.Is(err, errs.TaskState):
		return stateError(err, m)
	}
	return err
}

// stateError is the refusal of what cannot be done with a task as it is.
func stateError(err error, m wire.Message) error {
	desc := fmt.Sprintf("%s does not take %s now", m.Task, m.Type)
	if state, ok := errs.From(err).Meta["state"].(models.TaskState); ok {
		desc = fmt.Sprintf("%s is %s and does not take %s now", m.Task, state, m.Type)
	}
	return codedError{code: wire.E15, reason: wire.ReasonTransition, desc: desc, cause: err}
}

// messageKey names a message, so that the same line has its effect once in an attempt. A piece of the
// log is the same under another number too: who signs cannot say it again under the old one.
func messageKey(m wire.Message, t models.Task) string {
	if isLogPiece(m.Data) {
		m.Number = 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d|%s|%s|%s|%s|%d|%s|%s|%s", m.Number, m.From, m.To, m.Type, m.Task, m.Depth, m.Context, m.Budget, m.Data))
	return "v5:" + t.ID + ":" + strconv.Itoa(t.Attempt) + ":" + hex.EncodeToString(sum[:8])
}

// handleUpdate takes U (PROTOCOL_V5 §12.1): progress=50% is how far the work is, step= or desc=
// what it is about, and all of it goes into the log.
func (p *Protocol) handleUpdate(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	progress := orchestrator.Progress{MessageID: messageKey(m, t)}
	if m.Data != "-" {
		progress.Log = []byte(string(m.Data) + "\n")
	}
	if text, ok := m.Data.Get("progress"); ok {
		n, ok := parsePercent(text)
		if !ok {
			return protocol.Reply{}, errorf(wire.E10, "", "progress must be 0%% to 100%%, not %s", text)
		}
		progress.Percent = &n
	}
	for _, key := range []string{"step", "desc"} {
		if text, ok := m.Data.Get(key); ok && progress.StepName == "" {
			progress.StepName, progress.Step = text, max(t.Step, 1)
			if text != t.StepName && t.StepName != "" {
				progress.Step = t.Step + 1
			}
		}
	}
	if err := parsePiece(s, m, t, &progress); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.orchestrator.Progress(ctx, s.agentID, t.ID, progress); err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "noted", has(m.Data, keyAck))
}

// handleSuccess takes S: DATA is the result, or refers to its pieces. One that comes when the
// task has ended otherwise is taken too: what it used is charged.
func (p *Protocol) handleSuccess(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	var r orchestrator.Result
	if r.Tokens, err = usedTokens(t, m); err != nil {
		return protocol.Reply{}, err
	}
	inPieces, err := resultInPieces(s, m, t)
	switch {
	case inPieces:
		r.Detail, err = piecesDetail(m)
	case m.Data != "-":
		r.Output = []byte(m.Data)
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.completeTask(ctx, s, m, t, r)
}

// handleFailure takes E (§8.3).
func (p *Protocol) handleFailure(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	if m.Err == "" || m.Err == wire.E00 {
		return protocol.Reply{}, errorf(wire.E10, "", "ERR must say what went wrong, such as E99, not %s", orDash(string(m.Err)))
	}
	if _, err := resultInPieces(s, m, t); err != nil {
		return protocol.Reply{}, err
	}
	tokens, err := usedTokens(t, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	var needed int64
	if m.Err == wire.E17 { // otherwise it is a word as any other
		if needed, _, err = tokensPair(m.Data, "needed"); err != nil {
			return protocol.Reply{}, err
		}
	}
	raw, err := json.Marshal(failureDetail{Code: m.Err, Data: m.Data})
	if err != nil {
		return protocol.Reply{}, err
	}
	text, ok := m.Data.Get("desc")
	if !ok {
		text = string(m.Data)
	}
	return p.completeTask(ctx, s, m, t, orchestrator.Result{
		Failure: coreFailure(m.Err), Text: text, Detail: raw, Tokens: tokens, Needed: needed, ExitCode: exitCodePair(m.Data),
	})
}

func (p *Protocol) completeTask(ctx context.Context, s sender, m wire.Message, t models.Task, r orchestrator.Result) (protocol.Reply, error) {
	r.MessageID = messageKey(m, t)
	if _, err := p.orchestrator.Complete(ctx, s.agentID, t.ID, r); err != nil && !errs.Is(err, errs.TaskState) {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "noted", true)
}

// usedTokens is what an agent has used: what it says with tokens=, and otherwise by how much
// the budget that it got has become less (§9.1).
func usedTokens(t models.Task, m wire.Message) (int64, error) {
	if n, said, err := tokensPair(m.Data, "tokens"); said || err != nil {
		return n, err
	}
	left, ok := m.Budget.Tokens()
	if !ok || t.Budget == nil {
		return 0, nil
	}
	had, _ := wire.BudgetOf(*t.Budget - t.Tokens).Tokens()
	return max(int64(had-left), 0), nil
}

// tokensPair reads a number of tokens; said is false where there is none. What is no such
// number is E10: nobody would notice that it is not charged.
func tokensPair(data wire.Data, key string) (n int64, said bool, err error) {
	p, ok := data.Pair(key)
	if !ok || p.Flag {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(p.Value(), 10, 64)
	if err != nil || n < 0 || n > models.MaxTokens {
		return 0, false, errorf(wire.E10, "", "%s must be a number of tokens, not %s", key, p.Value())
	}
	return n, true, nil
}

// handleQuestion takes an agent's C (§7.1): question= and, in a list, options=.
func (p *Protocol) handleQuestion(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	q := orchestrator.Question{}
	var ok bool
	if q.Text, ok = m.Data.Get("question"); !ok {
		return protocol.Reply{}, errorf(wire.E10, "", "DATA must have question, such as question=which format?;options=json,txt")
	}
	if pair, ok := m.Data.Pair("options"); ok {
		q.Options = slices.Collect(pair.List())
	}
	for n := 1; n <= maxOptions; n++ {
		if text, ok := m.Data.Get("opt" + strconv.Itoa(n)); ok {
			q.Options = append(q.Options, text)
		}
	}
	t, err = p.orchestrator.Clarify(ctx, s.agentID, t.ID, q)
	if err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	if t.ErrorCode == string(orchestrator.FailureQuestions) {
		return protocol.Reply{}, errorf(wire.E18, "", "%s has asked too often, and is given up", s.address)
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "asked", true)
}

// handleHandoff takes X (§5.3): another worker does a part of what this one has. DEPTH is that
// of the part, one deeper than its source, and BUDGET what it may use of its source's.
func (p *Protocol) handleHandoff(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if m.Depth < 1 {
		return protocol.Reply{}, errorf(wire.E16, wire.ReasonDepth, "DEPTH of a hand-off must be one more than its source's")
	}
	if m.Depth > maxRequestDepth && !has(m.Data, "justify") {
		return protocol.Reply{}, errorf(wire.E16, wire.ReasonMaxDepth, "depth %d needs justify=, a reason", m.Depth)
	}
	if m.To.Role != wire.Worker {
		return protocol.Reply{}, errorf(wire.E13, "to", "a part goes to a worker, not to %s", m.To)
	}
	target, err := p.agentByAddress(ctx, m.To)
	if err != nil {
		return protocol.Reply{}, err
	}
	source := m
	source.Depth--
	t, err := p.workerTask(ctx, s, source)
	if err != nil {
		return protocol.Reply{}, p.depthError(ctx, s, m, err)
	}
	sub := orchestrator.Submission{
		Class: Class, AgentID: target, Priority: corePriority(m.Priority), RequestID: messageKey(m, t),
	}
	if call := m.Data.Call(); call != "" {
		sub.Capabilities = []string{call}
	}
	if tokens, ok := m.Budget.Tokens(); ok && t.Budget != nil {
		if tokens == 0 {
			return protocol.Reply{}, codedError{code: wire.E17, needed: 1}
		}
		sub.Budget = new(int64(tokens))
	}
	if err = parseHandoffOptions(&sub, m.Data); err != nil {
		return protocol.Reply{}, err
	}
	if sub.Parameters, err = parseParameters(m.Data); err != nil {
		return protocol.Reply{}, err
	}
	root, err := p.rootTask(ctx, t)
	if err != nil {
		return protocol.Reply{}, err
	}
	if err := p.rejectAmbiguousHandoff(ctx, target, root, m); err != nil {
		return protocol.Reply{}, err
	}
	name, err := p.orchestrator.ShortID(ctx, root.ID, root.SessionID)
	if err != nil {
		return protocol.Reply{}, err
	}
	if sub.Parameters, err = p.resolveReferences(ctx, s, placement{session: root.SessionID, shortID: name}, sub.Parameters); err != nil {
		return protocol.Reply{}, err
	}
	if sub.Meta, err = json.Marshal(requestMeta{Data: m.Data}); err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.orchestrator.HandOff(ctx, s.Principal, s.agentID, t.ID, sub); err != nil {
		return protocol.Reply{}, p.depthError(ctx, s, m, handoffError(err, s, m))
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "approved", true)
}

// rejectAmbiguousHandoff refuses a part for a worker that has another one of the same task at the same
// depth: its answers could not be told apart.
func (p *Protocol) rejectAmbiguousHandoff(ctx context.Context, target string, root models.Task, m wire.Message) error {
	orders, err := p.orchestrator.OpenTasksOf(ctx, target)
	if err != nil {
		return err
	}
	for _, o := range orders {
		if o.Task.Depth != m.Depth {
			continue
		}
		of, err := p.rootTask(ctx, o.Task)
		if err != nil {
			return err
		}
		kept, _ := readRequestMeta(o.Input) // another dialect's has no DATA
		if of.ID == root.ID && kept.Data != m.Data {
			return errorf(wire.E15, wire.ReasonTransition, "%s has a part of %s at depth %d already", m.To, m.Task, m.Depth)
		}
	}
	return nil
}

// handoffError gives the core's refusals of a hand-off their codes.
func handoffError(err error, s sender, m wire.Message) error {
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.TaskState) {
		return reportError(err, s, m)
	}
	if most, deep := errs.From(err).Meta["max_depth"].(int); deep {
		return codedError{code: wire.E16, reason: wire.ReasonMaxDepth, desc: fmt.Sprintf("%s takes parts below depth %d", m.To, most), cause: err}
	}
	return requestError(err)
}
