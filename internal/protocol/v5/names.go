package v5

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// sender is the sender of a message: an agent, or a user who requests work.
type sender struct {
	models.Principal
	// agentID and address are "" and User for a user.
	agentID string
	address wire.Address
	// traceparent is the W3C trace of the message, "" for none.
	traceparent string
	// v4 is set for a message of V4. task is the task that it is about, nil where it is about
	// none or its CTX names the task.
	v4   bool
	task *models.Task
	// incoming logs the message, nil for a message that is never logged.
	incoming *incomingMessage
	// closesSession is set for a request whose outcome closes its session, closedSession once the end
	// of the task has closed it.
	closesSession, closedSession bool
}

// identifySender returns the sender of a message. The token identifies the agent, and FROM must
// be its address; only a join may propose another one, which it does not get.
func (p *Protocol) identifySender(ctx context.Context, from models.Principal, m wire.Message) (sender, error) {
	s := sender{Principal: from, address: wire.Address{Role: wire.User}}
	if from.AgentID == nil {
		switch {
		case m.From.Role != wire.User:
			return s, errorf(codes.E13, "from", "the token belongs to no agent: FROM must be User, not %s", m.From)
		case !s.maySubmit():
			return s, errSubmitScope()
		}
		return s, nil
	}
	s.agentID = *from.AgentID
	var err error
	if s.address, err = p.agentAddress(ctx, s.agentID); err != nil {
		s.address = wire.Address{}
		return s, err
	}
	if m.From != s.address && (m.Type != wire.Join || m.From.Role != wire.Worker) {
		return s, errorf(codes.E13, "from", "FROM must be %s, the address of the sender, not %s", s.address, m.From)
	}
	return s, nil
}

// withTokenSender sets FROM of a message that could not be parsed to the agent of the token, so
// that the error is sent to that agent.
func (p *Protocol) withTokenSender(ctx context.Context, from models.Principal, m wire.Message) wire.Message {
	if from.AgentID == nil {
		return m
	}
	if own, err := p.agentAddress(ctx, *from.AgentID); err == nil {
		m.From = own
	}
	return m
}

// peer names the sender in the message log. Every user is User on the wire, so the conversation
// between a user and O1 is stored under the user's token.
func (s sender) peer() string {
	if s.agentID == "" {
		return userPeer(s.TokenID)
	}
	return s.address.String()
}

func userPeer(tokenID string) string { return "User:" + tokenID }

// maySubmit reports whether the sender may request work.
func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }

// owns reports whether the sender requested a task, or is an admin.
func (s sender) owns(t models.Task) bool { return t.Owner == s.TokenID || s.Administers() }

func (p *Protocol) agentAddress(ctx context.Context, agentID string) (wire.Address, error) {
	n, err := p.shortIDs.AgentNumber(ctx, agentID)
	return wire.WorkerAddress(int(n)), err
}

// agentByAddress returns the agent with an address, or E41.
func (p *Protocol) agentByAddress(ctx context.Context, a wire.Address) (string, error) {
	n, ok := a.WorkerNumber()
	if !ok {
		return "", errorf(codes.E41, "", "%s is no worker", a)
	}
	id, err := p.shortIDs.AgentID(ctx, int64(n))
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

// openTasksBelow returns the open tasks of an agent that have a task at the top of their hierarchy.
func (p *Protocol) openTasksBelow(ctx context.Context, agentID string, top models.Task) (found []orchestrator.TaskWithInput, err error) {
	open, err := p.orchestrator.OpenTasksOf(ctx, agentID)
	if err != nil {
		return nil, err
	}
	for _, o := range open {
		root, err := p.rootTask(ctx, o.Task)
		if err != nil {
			return nil, err
		}
		if root.ID == top.ID {
			found = append(found, o)
		}
	}
	return found, nil
}

// shortID returns the short id of a task's root.
func (p *Protocol) shortID(ctx context.Context, t models.Task) (shortid.ID, error) {
	root, err := p.rootTask(ctx, t)
	if err != nil {
		return shortid.ID{}, err
	}
	return p.shortIDs.OfTask(ctx, root.ID, root.SessionID)
}

// namedTask returns the task at depth 0 that a message names by CTX and TID.
func (p *Protocol) namedTask(ctx context.Context, m wire.Message) (models.Task, error) {
	tid, ok := m.Task.Number()
	if !ok || tid == 0 {
		return models.Task{}, errorf(codes.E10, "", "TID must name a task, not %s", m.Task)
	}
	n, ok := shortid.ContextNumber(m.Context)
	if !ok {
		return models.Task{}, unknownSession(m.Context)
	}
	t, err := p.taskByShortID(ctx, shortid.ID{Context: n, Task: tid})
	if isNotFound(err) {
		if _, missing := shortid.SessionID(ctx, p.store, n); missing != nil {
			return t, notFoundAs(missing, codes.E42, "there is no session %s", m.Context)
		}
	}
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
	open, err := p.openTasksBelow(ctx, s.agentID, t)
	if err != nil {
		return t, err
	}
	for _, o := range open {
		if o.Task.Depth == m.Depth {
			return o.Task, nil
		}
	}
	// A worker sends a result again when it has not received the A, and late when its subtask
	// has been assigned to another worker meanwhile.
	subtasks, err := p.subtasksAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	if sub, ok, err := p.selectTask(ctx, s.agentID, subtasks); ok || err != nil {
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

// queriedTask returns the task that a Q is about: at DEPTH 0 the task that it names, and deeper a
// subtask of that one, because a subtask has the TID of its parent (§5.3). Of several at one
// depth it is the one that the sender executes or has handed off, and for the requester of the
// task the newest. Where there is none it is E40.
func (p *Protocol) queriedTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	t, err := p.namedTask(ctx, m)
	if err != nil || m.Depth == 0 {
		return t, err
	}
	subtasks, err := p.subtasksAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	for _, sub := range subtasks {
		for _, id := range []string{sub.ID, *sub.ParentID} {
			if own, err := p.worksOn(ctx, s.agentID, id); err != nil || own {
				return sub, err
			}
		}
	}
	if len(subtasks) > 0 && s.owns(t) {
		return subtasks[0], nil
	}
	return t, errorf(codes.E40, "", "%s has no subtask of %s in %s at depth %d", s.address, m.Task, m.Context, m.Depth)
}

// maxSearched is the number of subtasks that a search looks through.
const maxSearched = 1000

// subtasksAt returns the subtasks of a task at a depth, the newest first, of the first maxSearched
// subtasks at any depth.
func (p *Protocol) subtasksAt(ctx context.Context, root models.Task, depth int) (found []models.Task, err error) {
	level, searched := []models.Task{root}, 0
	for len(level) > 0 && searched < maxSearched {
		var next []models.Task
		for _, t := range level {
			children, err := p.orchestrator.Subtasks(ctx, t.ID)
			if err != nil {
				return nil, err
			}
			for _, child := range children {
				switch {
				case child.Depth < depth:
					next = append(next, child)
				case child.Depth == depth:
					found = append(found, child)
				}
			}
			searched += len(children) + 1
		}
		level = next
	}
	slices.SortStableFunc(found, func(a, b models.Task) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return found, nil
}

// worksOn reports whether an agent executes a task, or did. For a user ("") it is false.
func (p *Protocol) worksOn(ctx context.Context, agentID, taskID string) (bool, error) {
	if agentID == "" {
		return false, nil
	}
	attempts, err := p.orchestrator.Attempts(ctx, taskID)
	return slices.ContainsFunc(attempts, func(a models.Attempt) bool { return a.AgentID == agentID }), err
}

// newMessage returns a message about a task, without type, receiver and DATA.
func (p *Protocol) newMessage(ctx context.Context, t models.Task) (wire.Message, error) {
	name, err := p.shortID(ctx, t)
	if err != nil {
		return wire.Message{}, err
	}
	m := wire.Message{
		From: self, Task: wire.NewTask(name.Task), Context: shortid.ContextName(name.Context), Depth: min(t.Depth, wire.MaxDepth),
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
	return orchestrator.DefaultPriority
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
