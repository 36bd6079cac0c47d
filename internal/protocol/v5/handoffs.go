package v5

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// handleHandoff handles X (PROTOCOL_V5 §5.3): another worker executes a subtask of the sender's
// task. DEPTH is that of the subtask, one more than its parent's, and BUDGET is taken out of the
// parent's.
func (p *Protocol) handleHandoff(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	if m.Depth < 1 {
		return protocol.Reply{}, errorf(codes.E16, codes.ReasonDepth, "DEPTH of a hand-off must be one more than its parent's")
	}
	if m.Depth > maxRequestDepth && !has(m.Data, "justify") {
		return protocol.Reply{}, errorf(codes.E16, codes.ReasonMaxDepth, "depth %d needs justify=, a reason", m.Depth)
	}
	if m.To.Role != wire.Worker {
		return protocol.Reply{}, errorf(codes.E13, "to", "a hand-off goes to a worker, not to %s", m.To)
	}
	target, err := p.agentByAddress(ctx, m.To)
	if err != nil {
		return protocol.Reply{}, err
	}
	aboutParent := m
	aboutParent.Depth--
	parent, err := p.workerTask(ctx, s, aboutParent)
	if err != nil {
		return protocol.Reply{}, p.depthError(ctx, s, m, err)
	}
	if repeated, err := p.repeatsHandoff(ctx, target, parent, m); err != nil {
		return protocol.Reply{}, err
	} else if repeated {
		s.incoming.setContext(m)
		return p.acknowledge(m, "approved", true)
	}
	sub, err := p.newHandoff(ctx, s, m, parent, target)
	if err != nil {
		return protocol.Reply{}, err
	}
	if _, err := p.orchestrator.HandOff(ctx, s.Principal, s.agentID, parent.ID, sub); err != nil {
		return protocol.Reply{}, p.depthError(ctx, s, m, handoffError(err, s, m))
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, "approved", true)
}

// newHandoff converts a hand-off to a submission.
func (p *Protocol) newHandoff(ctx context.Context, s sender, m wire.Message, parent models.Task, target string) (sub orchestrator.Submission, err error) {
	sub = orchestrator.Submission{
		Class: Class, AgentID: target, Priority: corePriority(m.Priority), RequestID: messageKey(m, parent),
	}
	if call := m.Data.Call(); call != "" {
		sub.Capabilities = []string{call}
	}
	if tokens, ok := m.Budget.Tokens(); ok && parent.Budget != nil {
		if tokens == 0 {
			return sub, codedError{code: codes.E17, needed: 1}
		}
		sub.Budget = new(int64(tokens))
	}
	if err = parseHandoffOptions(&sub, m.Data); err != nil {
		return sub, err
	}
	sub.Parameters = parseParameters(m.Data)
	root, err := p.rootTask(ctx, parent)
	if err != nil {
		return sub, err
	}
	if err := p.rejectAmbiguousHandoff(ctx, target, root, m); err != nil {
		return sub, err
	}
	name, err := p.shortIDs.OfTask(ctx, root.ID, root.SessionID)
	if err != nil {
		return sub, err
	}
	sub.Resolver = p.resolver(s, name.Context)
	sub.Meta, err = json.Marshal(requestMeta{Data: m.Data, Budget: m.Budget.String()})
	return sub, err
}

// parseHandoffOptions reads the options of a hand-off: how long the worker may be silent, how
// often the subtask is retried, and what happens to an unanswered question (PROTOCOL_V5 §5.3,
// §8.2). The other options of a request are E10: a hand-off goes to one worker, with the budget
// of its parent, and its parent's worker decides what follows a failure.
func parseHandoffOptions(sub *orchestrator.Submission, data wire.Data) error {
	for _, option := range []struct{ key, why string }{
		{keyParallel, "a hand-off goes to one worker"},
		{keyAggregate, "a hand-off goes to one worker"},
		{keyFallback, "the worker that hands off receives the failure and may hand off to another worker"},
		{keyExpires, "a subtask ends with the task of the worker that hands off"},
		{keyOnBudget, "the budget of a hand-off is taken out of its parent's"},
		{keyMaxBudget, "the budget of a hand-off is taken out of its parent's"},
	} {
		if has(data, option.key) {
			return errorf(codes.E10, "", "%s is for R only: %s", option.key, option.why)
		}
	}
	if err := rejectFacts(data); err != nil {
		return err
	}
	if _, err := parseAttempts(sub, data); err != nil {
		return err
	}
	return parseUnanswered(sub, data)
}

// repeatsHandoff reports whether a worker hands off again what another worker executes for it: the
// same X, whose number may differ.
func (p *Protocol) repeatsHandoff(ctx context.Context, target string, parent models.Task, m wire.Message) (bool, error) {
	if parent.Subtasks == 0 {
		return false, nil
	}
	subtasks, err := p.orchestrator.Subtasks(ctx, parent.ID)
	for _, t := range subtasks {
		if err != nil || t.State.Ended() {
			continue
		}
		var order orchestrator.TaskWithInput
		if order, err = p.orchestrator.TaskWithInput(ctx, t.ID); err != nil || order.Input.RequestedAgentID != target {
			continue
		}
		if meta, _ := readRequestMeta(order.Input); meta.Data == m.Data && meta.Budget == m.Budget.String() { // empty for another protocol
			return true, nil
		}
	}
	return false, err
}

// rejectAmbiguousHandoff rejects a subtask for a worker that has another subtask of the same task
// at the same depth: its messages about the two could not be told apart.
func (p *Protocol) rejectAmbiguousHandoff(ctx context.Context, target string, root models.Task, m wire.Message) error {
	open, err := p.openTasksBelow(ctx, target, root)
	if err != nil {
		return err
	}
	for _, o := range open {
		if o.Task.Depth == m.Depth {
			return errorf(codes.E15, codes.ReasonTransition, "%s has a subtask of %s at depth %d already", m.To, m.Task, m.Depth)
		}
	}
	return nil
}

// handoffError gives the core's errors about a hand-off their codes.
func handoffError(err error, s sender, m wire.Message) error {
	if isNotFound(err) || errs.Is(err, errs.TaskState) {
		return reportError(err, s, m)
	}
	if limit, deep := errs.From(err).Meta["max_depth"].(int); deep {
		return codedError{code: codes.E16, reason: codes.ReasonMaxDepth, desc: fmt.Sprintf("%s accepts hand-offs below depth %d", m.To, limit), cause: err}
	}
	return requestError(err)
}

// depthError returns the error of a hand-off from a task that the worker does not have. Where it
// has that task at another depth, DEPTH is wrong.
func (p *Protocol) depthError(ctx context.Context, s sender, m wire.Message, cause error) error {
	if coded, ok := errors.AsType[codedError](cause); !ok || coded.code != codes.E40 {
		return cause
	}
	t, err := p.namedTask(ctx, m)
	if err != nil {
		return cause
	}
	open, err := p.openTasksBelow(ctx, s.agentID, t)
	if err != nil {
		return err
	}
	out := cause
	for _, o := range open {
		if o.Task.Depth+1 == m.Depth { // DEPTH is right
			return cause
		}
		out = errorf(codes.E16, codes.ReasonDepth,
			"%s has %s at depth %d, so DEPTH of a hand-off must be %d, not %d", s.address, m.Task, o.Task.Depth, o.Task.Depth+1, m.Depth)
	}
	return out
}
