package orchestrator_test

import (
	"cmp"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// model is a simple model of the orchestrator: one operation at a time, for tasks with the same
// requirements.
type model struct {
	now     time.Time
	tasks   []*modelTask // the oldest first
	workers map[string]*modelWorker
}

type modelTask struct {
	id, agent, failure string
	priority           int
	budget             *int64
	retries            int
	timeout            time.Duration
	state              models.TaskState
	waits              models.WaitReason
	deadline           time.Time
	questions          int
	tokens             int64
	attempts           []*modelAttempt
}

type modelAttempt struct {
	agent, failure string
	state          models.AttemptState
	tokens, held   int64
}

type modelWorker struct {
	id                           string
	state                        models.WorkerState
	concurrency, inUse, failures int
	breaker, lastUsed            time.Time
	used                         int64
}

func (t *modelTask) ended() bool { return t.state.Ended() }

// newest returns the newest attempt of an agent, of any for "".
func (t *modelTask) newest(agent string) *modelAttempt {
	for _, a := range slices.Backward(t.attempts) {
		if agent == "" || a.agent == agent {
			return a
		}
	}
	return nil
}

func (m *model) task(id string) *modelTask {
	at := slices.IndexFunc(m.tasks, func(t *modelTask) bool { return t.id == id })
	if at < 0 {
		return nil
	}
	return m.tasks[at]
}

// queue returns the queued tasks in order.
func (m *model) queue() []*modelTask {
	var out []*modelTask
	for _, t := range m.tasks {
		if t.waits == models.WaitForWorker {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b *modelTask) int { return b.priority - a.priority })
	return out
}

// choose returns the worker for a task; without one, whether one is full, or all are offline.
func (m *model) choose(without []string) (w *modelWorker, full bool) {
	var free []*modelWorker
	passed := false
	for _, w := range m.workers {
		switch {
		case w.state == models.WorkerOffline || !w.breaker.IsZero():
		case slices.Contains(without, w.id):
			passed = true
		case w.state == models.WorkerBusy || w.inUse >= w.concurrency:
			full = true
		default:
			free = append(free, w)
		}
	}
	if len(free) == 0 {
		if passed && !full {
			return m.choose(nil)
		}
		return nil, full
	}
	return slices.MinFunc(free, func(a, b *modelWorker) int {
		return cmp.Or(a.inUse*100/a.concurrency-b.inUse*100/b.concurrency, a.lastUsed.Compare(b.lastUsed), cmp.Compare(a.id, b.id))
	}), false
}

// assignOrQueue assigns or queues a task without an agent.
func (m *model) assignOrQueue(t *modelTask, without []string) {
	w, full := m.choose(without)
	if w != nil && t.waits != models.WaitForWorker {
		full = slices.ContainsFunc(m.queue(), func(o *modelTask) bool { return o.priority >= t.priority })
	}
	switch {
	case w != nil && !full:
		m.dispatch(t, w)
	case full && t.waits != models.WaitForWorker:
		t.state, t.waits, t.agent, t.deadline = models.TaskNew, models.WaitForWorker, "", m.now.Add(10*time.Minute)
	case full:
	default:
		t.agent = ""
		t.attempts = append(t.attempts, &modelAttempt{state: models.AttemptFailed, failure: "unavailable"})
		m.retryOrFail(t, "unavailable")
	}
}

func (m *model) dispatch(t *modelTask, w *modelWorker) {
	a := &modelAttempt{agent: w.id, state: models.AttemptAssigned}
	if t.budget != nil {
		a.held = max(*t.budget-t.tokens, 1)
	}
	w.inUse++
	w.lastUsed = m.now
	t.attempts = append(t.attempts, a)
	t.state, t.waits, t.agent, t.deadline = models.TaskNew, models.NotWaiting, w.id, m.now.Add(t.timeout)
}

// retryOrFail follows a failed attempt.
func (m *model) retryOrFail(t *modelTask, failure string) {
	again := slices.Contains([]string{"timeout", "unavailable", "resource_limit"}, failure) && len(t.attempts) <= t.retries
	if again && (t.budget == nil || t.tokens < *t.budget) {
		t.state, t.waits = models.TaskNew, models.WaitForRetry
		t.deadline = m.now.Add([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}[min(len(t.attempts), 3)-1])
		return
	}
	t.state, t.waits, t.failure = models.TaskFailed, models.NotWaiting, failure
}

// end ends the newest attempt.
func (m *model) end(t *modelTask, state models.AttemptState, failure string, tokens int64) {
	a := t.newest("")
	a.state, a.failure, a.tokens, a.held = state, failure, tokens, 0
	t.tokens += tokens
	w := m.workers[a.agent]
	w.inUse--
	w.used += tokens
	switch {
	case failure == "" && state == models.AttemptCancelled:
	case failure != "timeout" && failure != "unavailable":
		w.failures = 0
	default:
		if w.failures++; w.failures >= 5 && w.breaker.IsZero() {
			w.breaker = m.now.Add(time.Minute)
		}
	}
}

// serve assigns queued tasks to free slots.
func (m *model) serve() {
	for _, t := range m.queue() {
		if w, _ := m.choose(nil); w == nil {
			return
		}
		if m.assignOrQueue(t, t.failedFor()); t.waits == models.WaitForWorker {
			m.assignOrQueue(t, nil)
		}
	}
}

// failedFor returns the agents that should not get a task again.
func (t *modelTask) failedFor() (out []string) {
	for _, a := range t.attempts {
		if a.agent != "" && (a.failure == "unavailable" || a.failure == "resource_limit") {
			out = append(out, a.agent)
		}
	}
	return out
}

// onDeadline handles the deadline of a task.
func (m *model) onDeadline(t *modelTask) {
	switch t.waits {
	case models.WaitForWorker:
		t.state, t.waits, t.failure = models.TaskFailed, models.NotWaiting, "saturated"
	case models.WaitForRetry:
		m.assignOrQueue(t, t.failedFor())
	case models.WaitForReply:
		m.end(t, models.AttemptTimedOut, "unanswered", 0)
		m.retryOrFail(t, "unanswered")
	default:
		m.end(t, models.AttemptTimedOut, "timeout", 0)
		m.retryOrFail(t, "timeout")
	}
}

// latestAttempt accepts and returns an agent's open attempt at a task, or returns the error code.
func (m *model) latestAttempt(agent, id string) (*modelTask, errs.Code) {
	t := m.task(id)
	if t == nil || t.newest(agent) == nil {
		return nil, errs.NotFound
	}
	a := t.newest(agent)
	if t.ended() || a.state.Ended() || a != t.newest("") {
		return nil, errs.TaskState
	}
	a.state, t.state = models.AttemptRunning, models.TaskRunning
	return t, ""
}

func (m *model) progress(agent, id string) errs.Code {
	t, refused := m.latestAttempt(agent, id)
	if refused == "" && t.waits == models.NotWaiting {
		t.deadline = m.now.Add(t.timeout)
	}
	return refused
}

func (m *model) clarify(agent, id string) errs.Code {
	t, refused := m.latestAttempt(agent, id)
	if refused != "" {
		return refused
	}
	if t.questions++; t.questions > 2 {
		m.end(t, models.AttemptFailed, "too_many_questions", 0)
		m.retryOrFail(t, "too_many_questions")
		return ""
	}
	t.waits, t.deadline = models.WaitForReply, m.now.Add(time.Minute)
	return ""
}

func (m *model) reply(id string) errs.Code {
	t := m.task(id)
	switch {
	case t == nil:
		return errs.NotFound
	case t.waits != models.WaitForReply:
		return errs.TaskState
	}
	t.waits, t.deadline = models.NotWaiting, m.now.Add(t.timeout)
	return ""
}

func (m *model) complete(agent, id string, r orchestrator.Result) errs.Code {
	t := m.task(id)
	if t == nil || t.newest(agent) == nil {
		return errs.NotFound
	}
	a := t.newest(agent)
	switch {
	case a.state == models.AttemptSucceeded || a.state == models.AttemptFailed:
		return ""
	case t.ended():
		m.charge(t, a, r.Tokens)
		return errs.TaskState
	case a.state.Ended() && r.Failure != "":
		m.charge(t, a, r.Tokens)
		return ""
	case a.state.Ended():
		if t.waits == models.NotWaiting || t.waits == models.WaitForReply {
			m.end(t, models.AttemptCancelled, "", 0)
		}
		m.charge(t, a, r.Tokens)
		a.state, a.failure = models.AttemptSucceeded, ""
	case r.Failure != "":
		m.end(t, models.AttemptFailed, string(r.Failure), r.Tokens)
		m.retryOrFail(t, string(r.Failure))
		return ""
	default:
		m.end(t, models.AttemptSucceeded, "", r.Tokens)
	}
	t.state, t.waits, t.agent = models.TaskDone, models.NotWaiting, agent
	return ""
}

// charge charges an attempt that has ended, once.
func (m *model) charge(t *modelTask, a *modelAttempt, tokens int64) {
	if a.tokens == 0 {
		a.tokens = tokens
		t.tokens += tokens
		m.workers[a.agent].used += tokens
	}
}

func (m *model) cancel(id string) errs.Code {
	t := m.task(id)
	switch {
	case t == nil:
		return errs.NotFound
	case t.state == models.TaskCancelled:
		return ""
	case t.ended():
		return errs.TaskState
	case t.waits == models.NotWaiting || t.waits == models.WaitForReply:
		m.end(t, models.AttemptCancelled, "", 0)
	}
	t.state, t.waits = models.TaskCancelled, models.NotWaiting
	return ""
}

// leave makes a worker offline; one that is gone for good loses its attempts.
func (m *model) leave(agent string, gone bool) {
	m.workers[agent].state = models.WorkerOffline
	for _, t := range m.tasks {
		if gone && t.agent == agent && !t.ended() && (t.waits == models.NotWaiting || t.waits == models.WaitForReply) {
			m.end(t, models.AttemptCancelled, "unavailable", 0)
			m.retryOrFail(t, "unavailable")
		}
	}
}

// heartbeat records a heartbeat.
func (m *model) heartbeat(w *modelWorker, state models.WorkerState) {
	w.state = state
	if !w.breaker.IsZero() && !m.now.Before(w.breaker) {
		w.breaker, w.failures = time.Time{}, 0
	}
}
