package orchestrator_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// TestModel makes random steps, moves the clock to each deadline, and compares every result and
// every row with the model: from seeds that are known to cover every case, and from a new one.
func TestModel(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]uint64{"Seed1": 1, "Seed3": 3, "other seed": testkit.Seed(t)} {
		withDatabase(t, name, func(t *testing.T, db *storetest.DB) {
			r := newModelRun(t, db, s)
			if r.run(300 / costly); s <= 3 && costly == 1 {
				r.requireVaried()
			}
		})
	}
}

// requireVaried checks that the run has covered the cases.
func (r *modelRun) requireVaried() {
	r.t.Helper()
	met := map[string]bool{}
	for _, t := range r.m.tasks {
		met[string(t.state)], met[t.failure] = true, true
		for n, a := range t.attempts {
			met[string(a.state)], met["attempt "+a.failure] = true, true
			met["adopted"] = met["adopted"] || a.state == models.AttemptSucceeded && n < len(t.attempts)-1
		}
	}
	for _, what := range []string{
		"done", "failed", "cancelled", "attempt resource_limit", "attempt timeout", "attempt unavailable", "timed_out", "adopted",
	} {
		require.True(r.t, met[what], "%s was not met", what)
	}
}

// modelRun is an orchestrator and its model.
type modelRun struct {
	*harness
	t     *testing.T
	m     *model
	r     *rand.Rand
	steps []string
}

func newModelRun(t *testing.T, db *storetest.DB, s uint64) *modelRun {
	t.Helper()
	// With this poll interval no wake-up may be missing.
	r := &modelRun{harness: start(t, db, &orchestrator.Options{Poll: time.Hour}), t: t, r: rand.New(rand.NewPCG(s, 4)), m: &model{now: db.Now(), workers: map[string]*modelWorker{}}}
	for id, concurrency := range map[string]int{"a": 3, "b": 1, "c": 1} {
		r.worker(t, id, concurrency, "work")
		r.recordUsage(t, id, 1) // creates its account
		r.m.workers[id] = &modelWorker{id: id, state: models.WorkerOnline, concurrency: concurrency, used: 1}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last steps of seed %d:\n%s", s, strings.Join(r.steps[max(0, len(r.steps)-25):], "\n"))
		}
	})
	return r
}

func (r *modelRun) run(n int) {
	for i := range n {
		d := time.Duration(1+r.r.IntN(50_000)) * time.Microsecond
		if next := r.m.next().Sub(r.m.now); next <= d { // one deadline after the other
			r.advanceBy(next)
			r.due()
		} else {
			r.advanceBy(d)
			r.step()
		}
		r.requireSame(i)
	}
	requireSound(r.t, r.harness)
	requireLegalEvents(r.t, r.harness)
}

// next is the next deadline.
func (m *model) next() time.Time {
	at := m.now.Add(30 * time.Second)
	for _, t := range m.tasks {
		if !t.ended() && t.deadline.Before(at) {
			at = t.deadline
		}
	}
	return at
}

// advanceBy moves the clock.
func (r *modelRun) advanceBy(d time.Duration) {
	r.DB.Clock.Advance(d)
	r.m.now = r.DB.Now()
}

// due handles the one deadline that is due: each task has a different timeout.
func (r *modelRun) due() {
	for _, t := range r.m.tasks {
		if !t.ended() && !t.deadline.After(r.m.now) {
			r.log("due: %s", t.id)
			r.m.onDeadline(t)
		}
	}
	r.m.serve()
}

func (r *modelRun) log(format string, args ...any) {
	r.steps = append(r.steps, r.m.now.Format("04:05.000000 ")+fmt.Sprintf(format, args...))
}

// pick returns a random element.
func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// step makes one random step on both.
func (r *modelRun) step() {
	open := 0
	for _, t := range r.m.tasks {
		if !t.ended() {
			open++
		}
	}
	agent, id := pick(r.r, "a", "b", "c"), "unknown"
	if len(r.m.tasks) > 0 && r.r.IntN(50) > 0 {
		t := r.m.tasks[max(0, len(r.m.tasks)-1-r.r.IntN(8))]
		if id = t.id; t.agent != "" && r.r.IntN(3) > 0 {
			agent = t.agent
		} else if len(t.attempts) > 0 {
			agent = cmp.Or(pick(r.r, t.attempts...).agent, agent)
		}
	}
	ctx := r.t.Context()
	var want errs.Code
	var err error
	switch n := r.r.IntN(100); {
	case n < 22 && open < 10:
		r.submitSome()
		return
	case n < 34:
		r.log("progress %s %s", agent, id)
		want = r.m.progress(agent, id)
		_, err = r.Progress(ctx, agent, id, orchestrator.Progress{Percent: new(n)})
	case n < 40:
		r.log("clarify %s %s", agent, id)
		want = r.m.clarify(agent, id)
		_, err = r.Clarify(ctx, agent, id, orchestrator.Question{Text: "?"})
	case n < 46:
		r.log("answer %s", id)
		want = r.m.reply(id)
		_, err = r.Reply(ctx, id, "!")
	case n < 74:
		result := orchestrator.Result{
			Failure: pick(r.r, "", "", orchestrator.FailureWork, orchestrator.FailureResource, orchestrator.FailureResource, orchestrator.FailureUnavailable),
			Tokens:  pick(r.r, int64(0), 5, 20, 90),
		}
		r.log("complete %s %s %q %d", agent, id, result.Failure, result.Tokens)
		want = r.m.complete(agent, id, result)
		_, err = r.Complete(ctx, agent, id, result)
	case n < 77:
		r.log("cancel %s", id)
		want = r.m.cancel(id)
		_, err = r.Cancel(ctx, id, "why", nil)
	case n < 86:
		err = r.changePresence(agent)
	default:
		r.advance()
		return
	}
	require.Equal(r.t, want, errs.CodeOf(err), "%v", err)
	r.m.serve()
}

func (r *modelRun) submitSome() {
	sub := orchestrator.Submission{Capabilities: []string{"work"}, Priority: r.r.IntN(4)}
	if retries := r.r.IntN(6); retries < 3 {
		sub.Override.Retries = &retries
	}
	if r.r.IntN(2) == 0 {
		sub.Budget = new(pick(r.r, int64(10), 50, 300))
	}
	sub.Override.TimeoutMS = 30_000 + int64(len(r.m.tasks))
	out, err := r.Submit(r.t.Context(), operator(), sub, nil)
	require.NoError(r.t, err)
	r.log("submit %s, priority %d", out.Task.ID, sub.Priority)
	t := &modelTask{id: out.Task.ID, priority: sub.Priority, budget: sub.Budget, retries: 3, timeout: time.Duration(sub.Override.TimeoutMS) * time.Millisecond}
	if sub.Override.Retries != nil {
		t.retries = *sub.Override.Retries
	}
	r.m.assignOrQueue(t, nil)
	r.m.tasks = append(r.m.tasks, t)
	r.m.serve()
}

// changePresence makes a worker join, leave, or send a heartbeat.
func (r *modelRun) changePresence(agent string) error {
	ctx, w := r.t.Context(), r.m.workers[agent]
	switch r.r.IntN(6) {
	case 0:
		gone := r.r.IntN(2) == 0 && w.inUse < 2 // one retry at a time
		r.log("leave %s %v", agent, gone)
		r.m.leave(agent, gone)
		return r.Leave(ctx, agent, gone)
	case 1:
		r.log("busy %s", agent)
		r.m.heartbeat(w, models.WorkerBusy)
		_, err := r.Heartbeat(ctx, agent, orchestrator.Heartbeat{State: models.WorkerBusy})
		return err
	}
	r.log("join %s", agent)
	r.m.heartbeat(w, models.WorkerOnline)
	_, err := r.Join(ctx, agent, orchestrator.JoinRequest{Protocol: "plain", Transport: "poll", Concurrency: w.concurrency})
	return err
}

// advance moves the clock to the next deadline, or by half a minute, and sends heartbeats of all
// workers.
func (r *modelRun) advance() {
	r.advanceBy(r.m.next().Sub(r.m.now))
	r.log("advance")
	r.due()
	r.requireSame(-1)
	// One after the other: the first worker gets the queued tasks before the next one is online.
	for _, id := range slices.Sorted(maps.Keys(r.m.workers)) {
		w := r.m.workers[id]
		if w.state == models.WorkerOffline {
			continue
		}
		r.m.heartbeat(w, w.state)
		_, err := r.KeepAlive(r.t.Context(), []string{id})
		require.NoError(r.t, err)
		r.m.serve()
		r.requireSame(-1)
	}
}

// requireSame waits until timers and queues are served, and compares all rows with the model.
func (r *modelRun) requireSame(step int) {
	r.t.Helper()
	var want []string
	same := func() bool {
		r.startedBefore()
		want = r.m.rows()
		return slices.Equal(want, r.rows()) && r.indexIsCurrent()
	}
	look := time.NewTicker(500 * time.Microsecond)
	defer look.Stop()
	for deadline := time.Now().Add(time.Minute); !same(); {
		if at := <-look.C; at.After(deadline) {
			require.Equal(r.t, strings.Join(want, "\n"), strings.Join(r.rows(), "\n"), "after step %d", step)
			require.True(r.t, r.indexIsCurrent(), "the index is not current")
		}
	}
	for id := range r.m.workers {
		require.NoError(r.t, r.ReindexAgent(r.t.Context(), id))
	}
}

// startedBefore adopts the deadlines that a transaction has set that began just before the clock
// moved.
func (r *modelRun) startedBefore() {
	for _, row := range r.query(r.t, "SELECT id, deadline FROM tasks WHERE state < 2 AND waiting_for = 0") {
		id, at, _ := strings.Cut(row, " ")
		us, err := strconv.ParseInt(at, 10, 64)
		require.NoError(r.t, err)
		if t := r.m.task(id); t != nil && t.deadline.Sub(time.UnixMicro(us)) <= 60*time.Millisecond && us < t.deadline.UnixMicro() {
			t.deadline = time.UnixMicro(us).UTC()
		}
	}
}

// indexIsCurrent reports whether this process has indexed all commits.
func (r *modelRun) indexIsCurrent() bool {
	for id, w := range r.m.workers {
		known := r.CachedWorker(id)
		if known.State != w.state || known.InFlight != w.inUse || known.BreakerUntil.IsZero() != w.breaker.IsZero() {
			return false
		}
	}
	return true
}

// rows returns the rows of the database in the form of the model.
func (r *modelRun) rows() []string {
	out := r.query(r.t, "SELECT id, state, waiting_for, agent_id, tokens, questions, error_code, CASE WHEN state < 2 THEN deadline ELSE 0 END FROM tasks ORDER BY created_at, id")
	out = append(out, r.query(r.t, "SELECT task_id, attempt, agent_id, state, error_code, tokens FROM all_attempts AS a ORDER BY task_id, attempt")...)
	out = append(out, r.query(r.t, "SELECT agent_id, state, concurrency, in_flight, failures, breaker_until FROM workers ORDER BY agent_id")...)
	return append(out, r.query(r.t, "SELECT agent_id, used, reserved FROM usage_accounts ORDER BY agent_id")...)
}

func (m *model) rows() (out []string) {
	number := func(v string, all ...string) int { return slices.Index(all, v) }
	var attempts []string
	held := map[string]int64{}
	for _, t := range m.tasks {
		deadline := int64(0)
		if !t.ended() {
			deadline = t.deadline.UnixMicro()
		}
		out = append(out, fmt.Sprintf("%s %d %d %s %d %d %s %d", t.id, number(string(t.state), "new", "running", "done", "failed", "cancelled"),
			number(string(t.waits), "", "worker", "retry", "reply"), t.agent, t.tokens, t.questions, t.failure, deadline))
		for n, a := range t.attempts {
			held[a.agent] += a.held
			attempts = append(attempts, fmt.Sprintf("%s %d %s %d %s %d", t.id, n+1, a.agent,
				number(string(a.state), "assigned", "running", "succeeded", "failed", "timed_out", "cancelled"), a.failure, a.tokens))
		}
	}
	out = append(out, attempts...)
	var accounts []string
	for _, id := range slices.Sorted(maps.Keys(m.workers)) {
		w, until := m.workers[id], int64(0)
		if !w.breaker.IsZero() {
			until = w.breaker.UnixMicro()
		}
		out = append(out, fmt.Sprintf("%s %d %d %d %d %d", id, number(string(w.state), "offline", "online", "busy"), w.concurrency, w.inUse, w.failures, until))
		accounts = append(accounts, fmt.Sprintf("%s %d %d", id, w.used, held[id]))
	}
	return append(out, accounts...)
}
