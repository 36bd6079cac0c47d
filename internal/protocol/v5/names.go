package v5

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// self is the orchestrator that answers.
var self = wire.Address{Role: wire.Orchestrator, Number: 1} //nolint:gochecknoglobals // a constant

// contextName is the name of a context (PROTOCOL_V5 §6.1).
func contextName(n int64) string { return models.ContextName(n) }

// contextNumber is the number of the context with a name; ok is false for a name that
// no context has.
func contextNumber(name string) (n int64, ok bool) { return models.ContextNumber(name) }

// agentAddress is that of an agent.
func (p *Protocol) agentAddress(ctx context.Context, agentID string) (wire.Address, error) {
	n, err := p.orchestrator.AgentNumber(ctx, agentID)
	return wire.NthWorker(int(n)), err
}

// agentByAddress returns the agent that has an address. What is no worker's, and a worker that
// there is not, is E41.
func (p *Protocol) agentByAddress(ctx context.Context, a wire.Address) (string, error) {
	n, ok := a.Nth()
	if !ok {
		return "", errorf(wire.E41, "", "%s is no worker", a)
	}
	id, err := p.orchestrator.AgentByNumber(ctx, int64(n))
	return id, notFoundAs(err, wire.E41, "there is no %s", a)
}

// rootTask returns the task that one was handed off from in the end: itself, for most.
func (p *Protocol) rootTask(ctx context.Context, t models.Task) (models.Task, error) {
	for t.ParentID != nil {
		source, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return t, err
		}
		t = source
	}
	return t, nil
}

// namedTask returns the task that a message names by CTX and TID: the one at depth 0.
func (p *Protocol) namedTask(ctx context.Context, m wire.Message) (models.Task, error) {
	tid, ok := m.Task.Number()
	if !ok || tid == 0 {
		return models.Task{}, errorf(wire.E10, "", "TID must name a task, not %s", m.Task)
	}
	n, ok := contextNumber(m.Context)
	if !ok {
		return models.Task{}, unknownSession(m.Context)
	}
	if _, err := p.orchestrator.SessionOfContext(ctx, n); err != nil {
		return models.Task{}, notFoundAs(err, wire.E42, "there is no session %s", m.Context)
	}
	t, err := p.orchestrator.TaskByShortID(ctx, models.ShortID{Context: n, Task: tid})
	return t, notFoundAs(err, wire.E40, "there is no task %s in %s", m.Task, m.Context)
}

// workerTask returns the task that an agent speaks of. At a depth it is a part that was handed
// off to the agent, and at 0 the task itself, or the agent's part where several do it.
func (p *Protocol) workerTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	if s.task != nil {
		return *s.task, nil
	}
	t, err := p.namedTask(ctx, m)
	if err != nil || m.Depth == 0 && t.AgentID != "" {
		return t, err
	}
	if m.Depth == 0 {
		return p.workerSubtask(ctx, s, t)
	}
	orders, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return t, err
	}
	for _, o := range orders {
		if o.Task.Depth != m.Depth {
			continue
		}
		if root, err := p.rootTask(ctx, o.Task); err != nil || root.ID == t.ID {
			return o.Task, err
		}
	}
	// A result may be said again by somebody who did not hear that it was noted, and late by
	// somebody whose part is another's by now.
	found, err := p.subtasksAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	parts := make([]models.Task, len(found))
	for i, sub := range found {
		parts[i] = sub.Task
	}
	if sub, ok, err := p.selectSubtask(ctx, s.agentID, parts); ok || err != nil {
		return sub, err
	}
	return t, errorf(wire.E40, "", "%s has no task %s in %s at depth %d", s.address, m.Task, m.Context, m.Depth)
}

// workerSubtask is the part of a task that an agent has beside others, and the task itself where
// it has none.
func (p *Protocol) workerSubtask(ctx context.Context, s sender, t models.Task) (models.Task, error) {
	parts, err := p.orchestrator.Subtasks(ctx, t.ID)
	if err != nil {
		return t, err
	}
	parts = slices.DeleteFunc(parts, func(part models.Task) bool { return part.Depth != t.Depth })
	if part, ok, err := p.selectSubtask(ctx, s.agentID, parts); ok || err != nil {
		return part, err
	}
	return t, nil
}

// selectSubtask is the part that an agent speaks of, among some that one line could mean: what it
// does now, and otherwise what it was given last, whoever has that by now. A late result is
// one of the latter. ok is false where it never had any.
func (p *Protocol) selectSubtask(ctx context.Context, agent string, parts []models.Task) (found models.Task, ok bool, err error) {
	for _, part := range parts {
		if part.AgentID == agent && !part.State.Ended() {
			return part, true, nil
		}
	}
	var last time.Time
	for _, part := range parts {
		attempts, err := p.orchestrator.Attempts(ctx, part.ID)
		if err != nil {
			return found, false, err
		}
		for _, a := range attempts {
			newer := a.AssignedAt.After(last) || a.AssignedAt.Equal(last) && found.State.Ended()
			if a.AgentID == agent && (!ok || newer) {
				found, ok, last = part, true, a.AssignedAt
			}
		}
	}
	return found, ok, nil
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// newMessage is what a line about a task says beside its type and data. from and to are set by
// the caller.
func (p *Protocol) newMessage(ctx context.Context, t models.Task) (wire.Message, error) {
	root, err := p.rootTask(ctx, t)
	if err != nil {
		return wire.Message{}, err
	}
	h, err := p.orchestrator.ShortID(ctx, root.ID, root.SessionID)
	if err != nil {
		return wire.Message{}, err
	}
	m := wire.Message{
		From: self, Task: wire.TaskOf(h.Task), Context: contextName(h.Context), Depth: min(t.Depth, wire.MaxDepth),
		Priority: wirePriority(t.Priority), State: wireState(t),
	}
	if t.Budget != nil {
		m.Budget = wire.BudgetOf(*t.Budget - t.Tokens)
	}
	m.Number = p.numbers.next(m.Context)
	return m, nil
}

// wireState is the letter of a task's state (PROTOCOL_V5 §4.1).
func wireState(t models.Task) wire.State {
	switch t.State {
	case models.TaskNew:
		return wire.New
	case models.TaskRunning:
		return wire.Running
	case models.TaskDone:
		return wire.Done
	case models.TaskFailed:
		return wire.Failed
	}
	return wire.Cancelled
}

// The priorities of the core and of the protocol (decisions: “P0→priority 2”).
func wirePriority(p int) wire.Priority {
	switch {
	case p >= 2:
		return wire.P0
	case p == 1:
		return wire.P1
	}
	return wire.P2
}

func corePriority(p wire.Priority) int {
	switch p.OrDefault() {
	case wire.P0:
		return 2
	case wire.P2:
		return 0
	}
	return models.DefaultPriority
}

// messageNumbers counts our messages in each context (decisions: “Message numbers are per (CTX,
// FROM), gaps allowed, and wrap at 9999”). A context that was not spoken in for long
// begins anew, anywhere.
type messageNumbers struct {
	start int

	mu   sync.Mutex
	last *lru.Cache[string, int]
}

// maxNumberedContexts is how many contexts are counted at a time.
const maxNumberedContexts = 100_000

func newMessageNumbers(now time.Time) *messageNumbers {
	last, _ := lru.New[string, int](maxNumberedContexts) // fails only for a size that is not positive
	return &messageNumbers{start: int(now.Unix() % wire.MaxNumber), last: last}
}

// next is the number of the next message; in system traffic it is counted as well.
func (n *messageNumbers) next(of string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.last.Get(of)
	if !ok {
		last = n.start
	}
	next := last%wire.MaxNumber + 1
	n.last.Add(strings.Clone(of), next) // of is part of a line
	return next
}

// isNotFound reports whether a task is not kept any more.
func isNotFound(err error) bool { return errs.Is(err, errs.NotFound) }
