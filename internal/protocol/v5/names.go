package v5

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// self is the address of this orchestrator, O1.
var self = wire.Address{Role: wire.Orchestrator, Number: 1} //nolint:gochecknoglobals // a constant

// agentAddress returns the address of an agent.
func (p *Protocol) agentAddress(ctx context.Context, agentID string) (wire.Address, error) {
	n, err := p.orchestrator.AgentNumber(ctx, agentID)
	return wire.WorkerAddress(int(n)), err
}

// agentByAddress returns the agent with an address, or E41.
func (p *Protocol) agentByAddress(ctx context.Context, a wire.Address) (string, error) {
	n, ok := a.WorkerNumber()
	if !ok {
		return "", errorf(codes.E41, "", "%s is no worker", a)
	}
	id, err := p.orchestrator.AgentByNumber(ctx, int64(n))
	return id, notFoundAs(err, codes.E41, "there is no %s", a)
}

// rootTask returns the task at the top of a task's hierarchy: the task itself, for most.
func (p *Protocol) rootTask(ctx context.Context, t models.Task) (models.Task, error) {
	for t.ParentID != nil {
		parent, err := p.orchestrator.Task(ctx, *t.ParentID)
		if err != nil {
			return t, err
		}
		t = parent
	}
	return t, nil
}

// shortID returns the short id of a task's root.
func (p *Protocol) shortID(ctx context.Context, t models.Task) (models.ShortID, error) {
	root, err := p.rootTask(ctx, t)
	if err != nil {
		return models.ShortID{}, err
	}
	return p.orchestrator.ShortID(ctx, root.ID, root.SessionID)
}

// namedTask returns the task at depth 0 that a message names by CTX and TID.
func (p *Protocol) namedTask(ctx context.Context, m wire.Message) (models.Task, error) {
	tid, ok := m.Task.Number()
	if !ok || tid == 0 {
		return models.Task{}, errorf(codes.E10, "", "TID must name a task, not %s", m.Task)
	}
	n, ok := models.ContextNumber(m.Context)
	if !ok {
		return models.Task{}, unknownSession(m.Context)
	}
	if _, err := p.orchestrator.SessionOfContext(ctx, n); err != nil {
		return models.Task{}, notFoundAs(err, codes.E42, "there is no session %s", m.Context)
	}
	t, err := p.orchestrator.TaskByShortID(ctx, models.ShortID{Context: n, Task: tid})
	return t, notFoundAs(err, codes.E40, "there is no task %s in %s", m.Task, m.Context)
}

// workerTask returns the task that a worker's message is about: at a depth above 0 a subtask
// that was handed off to the worker, and at 0 the task itself, or the worker's copy of it where
// several workers execute it.
func (p *Protocol) workerTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	if s.task != nil {
		return *s.task, nil
	}
	t, err := p.namedTask(ctx, m)
	if err != nil || m.Depth == 0 && t.AgentID != "" {
		return t, err
	}
	if m.Depth == 0 {
		return p.workerCopy(ctx, s, t)
	}
	open, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return t, err
	}
	for _, o := range open {
		if o.Task.Depth != m.Depth {
			continue
		}
		if root, err := p.rootTask(ctx, o.Task); err != nil || root.ID == t.ID {
			return o.Task, err
		}
	}
	// A worker sends a result again when it has not received the A, and late when its subtask
	// has been assigned to another worker meanwhile.
	found, err := p.subtasksAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	tasks := make([]models.Task, len(found))
	for i, sub := range found {
		tasks[i] = sub.Task
	}
	if sub, ok, err := p.selectTask(ctx, s.agentID, tasks); ok || err != nil {
		return sub, err
	}
	return t, errorf(codes.E40, "", "%s has no task %s in %s at depth %d", s.address, m.Task, m.Context, m.Depth)
}

// workerCopy returns the worker's copy of a task that several workers execute, and the task
// itself where the worker has none.
func (p *Protocol) workerCopy(ctx context.Context, s sender, t models.Task) (models.Task, error) {
	copies, err := p.orchestrator.Subtasks(ctx, t.ID)
	if err != nil {
		return t, err
	}
	copies = slices.DeleteFunc(copies, func(c models.Task) bool { return c.Depth != t.Depth })
	if found, ok, err := p.selectTask(ctx, s.agentID, copies); ok || err != nil {
		return found, err
	}
	return t, nil
}

// selectTask returns, of tasks with the same name, the one that a worker executes, and otherwise
// the one that was assigned to it last: a late result belongs to that one. ok is false where
// none was ever assigned to the worker.
func (p *Protocol) selectTask(ctx context.Context, agentID string, tasks []models.Task) (found models.Task, ok bool, err error) {
	for _, t := range tasks {
		if t.AgentID == agentID && !t.State.Ended() {
			return t, true, nil
		}
	}
	var last time.Time
	for _, t := range tasks {
		attempts, err := p.orchestrator.Attempts(ctx, t.ID)
		if err != nil {
			return found, false, err
		}
		for _, a := range attempts {
			newer := a.AssignedAt.After(last) || a.AssignedAt.Equal(last) && found.State.Ended()
			if a.AgentID == agentID && (!ok || newer) {
				found, ok, last = t, true, a.AssignedAt
			}
		}
	}
	return found, ok, nil
}

// newMessage returns a message about a task, without type, receiver and DATA.
func (p *Protocol) newMessage(ctx context.Context, t models.Task) (wire.Message, error) {
	name, err := p.shortID(ctx, t)
	if err != nil {
		return wire.Message{}, err
	}
	m := wire.Message{
		From: self, Task: wire.NewTask(name.Task), Context: models.ContextName(name.Context), Depth: min(t.Depth, wire.MaxDepth),
		Priority: wirePriority(t.Priority), State: wireState(t),
	}
	if t.Budget != nil {
		m.Budget = wire.NewBudget(*t.Budget - t.Tokens)
	}
	m.Number = p.numbers.next(m.Context)
	return m, nil
}

// wireState returns the letter of a task's state (PROTOCOL_V5 §4.1).
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

// wirePriority and corePriority convert priorities (decisions: “P0→priority 2, P1→1, P2→0”).
func wirePriority(priority int) wire.Priority {
	switch {
	case priority >= 2:
		return wire.P0
	case priority == 1:
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

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// messageNumbers counts our messages in each context (decisions: “Message numbers are per (CTX,
// FROM), gaps allowed, and wrap at 9999”). A context without messages for long starts again at
// any number.
type messageNumbers struct {
	start int

	mu   sync.Mutex
	last *lru.Cache[string, int]
}

// maxNumberedContexts is the number of contexts whose last number is remembered.
const maxNumberedContexts = 100_000

func newMessageNumbers(now time.Time) *messageNumbers {
	last, _ := lru.New[string, int](maxNumberedContexts) // fails only for a size that is not positive
	return &messageNumbers{start: int(now.Unix() % wire.MaxNumber), last: last}
}

// next returns the number of the next message in a context, or of the next system message ("").
func (n *messageNumbers) next(contextName string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, ok := n.last.Get(contextName)
	if !ok {
		last = n.start
	}
	next := last%wire.MaxNumber + 1
	n.last.Add(strings.Clone(contextName), next) // it is a part of a received message
	return next
}
