package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store/storetest"
)

// TestManyTogether has submitters, agents that work, fail and vanish, and cancellations
// meet on two orchestrators over one database, while time flies. What is left must be as
// if it had happened one after the other.
func TestManyTogether(t *testing.T) {
	t.Parallel()
	withDatabase(t, "EachTaskEndsOnce", func(t *testing.T, db *storetest.DB) {
		f := &concurrentRun{t: t, db: db, harnesses: []*harness{start(t, db, nil), start(t, secondReplica(t, db), nil)}, reported: map[int64]string{}, ids: map[string]bool{}}
		f.prepare()
		stopClock := f.repeat(1, func(context.Context, int) { db.Clock.Advance(20 * time.Millisecond) })
		stopAgents := f.repeat(agentsAtTheFair, f.work)
		f.submitAll()
		f.waitUntilAllEnded()
		stopAgents()
		stopClock()
		f.check()
	})
}

const (
	agentsAtTheFair = 6
	submitters      = 16
)

// concurrentRun is the place where they meet.
type concurrentRun struct {
	t         *testing.T
	db        *storetest.DB
	harnesses []*harness
	tokens    atomic.Int64 // every report has a number of its own

	mu       sync.Mutex
	reported map[int64]string // tokens → who reported them for which task
	ids      map[string]bool  // of the tasks that were taken on
}

// anyHarness is one of the orchestrators.
func (f *concurrentRun) anyHarness() *harness { return f.harnesses[rand.IntN(len(f.harnesses))] }

func (f *concurrentRun) prepare() {
	for i := range agentsAtTheFair {
		id := fmt.Sprintf("agent%d", i)
		f.harnesses[0].worker(f.t, id, 1+i%3, "work")
		require.NoError(f.t, f.harnesses[1].ReindexAgent(f.t.Context(), id))
	}
	for i := range 2 {
		_, err := f.anyHarness().OpenSession(f.t.Context(), operator(), fmt.Sprintf("s%d", i), nil)
		require.NoError(f.t, err)
	}
}

// repeat has several do something again and again, until it is stopped.
func (f *concurrentRun) repeat(n int, fn func(ctx context.Context, i int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				fn(ctx, i)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	f.t.Cleanup(stop)
	return stop
}

// requireCode fails the test for an error that is not among what may be answered.
func (f *concurrentRun) requireCode(ctx context.Context, err error, codes ...errs.Code) {
	if err != nil && ctx.Err() == nil {
		assert.Contains(f.t, codes, errs.CodeOf(err), "%v", err)
	}
}

func (f *concurrentRun) submitAll() {
	var all sync.WaitGroup
	for i := range submitters {
		all.Go(func() {
			for n := range 12 / costly {
				f.submit(i, n)
			}
		})
	}
	all.Wait()
}

func (f *concurrentRun) submit(i, n int) {
	ctx := context.Background()
	sub := orchestrator.Submission{Capabilities: []string{"work"}, Priority: rand.IntN(4), Override: orchestrator.Override{TimeoutMS: 1000 + rand.Int64N(4000)}}
	if rand.IntN(2) == 0 {
		sub.SessionID = fmt.Sprintf("s%d", rand.IntN(2))
	}
	if rand.IntN(2) == 0 {
		sub.Budget = new(100 + rand.Int64N(400))
	}
	if rand.IntN(6) == 0 {
		sub.Override.Workers = 2 + rand.IntN(3)
	}
	if i%2 == 0 { // two repeat each other
		sub = orchestrator.Submission{Capabilities: []string{"work"}, RequestID: fmt.Sprintf("r%d-%d", i/4, n), Budget: new(int64(200)), SessionID: "s0"}
	}
	out, err := f.anyHarness().Submit(ctx, operator(), sub, nil)
	f.requireCode(ctx, err)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.ids[out.Task.ID] = true
	f.mu.Unlock()
	if rand.IntN(6) == 0 {
		_, err := f.anyHarness().Cancel(ctx, out.Task.ID, "not needed", nil)
		f.requireCode(ctx, err, errs.TaskState)
	}
	if rand.IntN(6) == 0 {
		_, err := f.anyHarness().Reply(ctx, out.Task.ID, "whatever")
		f.requireCode(ctx, err, errs.TaskState)
	}
}

// work is what an agent does when it looks into its inbox.
func (f *concurrentRun) work(ctx context.Context, i int) {
	id := fmt.Sprintf("agent%d", i)
	offline, err := f.anyHarness().KeepAlive(ctx, []string{id})
	f.requireCode(ctx, err)
	if len(offline) > 0 {
		_, err := f.anyHarness().Join(ctx, id, orchestrator.JoinRequest{Protocol: "plain", Transport: "poll", Concurrency: 1 + i%3})
		f.requireCode(ctx, err)
	}
	told, err := f.anyHarness().Messages(ctx, id, 10)
	f.requireCode(ctx, err)
	for _, m := range told {
		_, err := f.anyHarness().Acknowledge(ctx, id, []string{m.ID})
		f.requireCode(ctx, err)
		if m.Kind == models.MessageAssign {
			f.runAttempt(ctx, id, m.TaskID)
		}
	}
}

// runAttempt makes an attempt, in one way or another.
func (f *concurrentRun) runAttempt(ctx context.Context, agent, task string) {
	how := rand.IntN(10)
	if how == 0 {
		return // it vanishes
	}
	_, err := f.anyHarness().Accept(ctx, agent, task)
	f.requireCode(ctx, err, errs.TaskState)
	_, err = f.anyHarness().Progress(ctx, agent, task, orchestrator.Progress{Percent: new(how), Log: []byte("x"), Chunk: &orchestrator.Chunk{Data: []byte("result")}})
	f.requireCode(ctx, err, errs.TaskState)
	r := orchestrator.Result{Tokens: f.tokens.Add(1)}
	f.mu.Lock()
	f.reported[r.Tokens] = agent + " " + task
	f.mu.Unlock()
	switch how {
	case 1:
		return // it vanishes later
	case 2:
		r.Failure = orchestrator.FailureResource
	case 3:
		r.Failure = orchestrator.FailureWork
	case 4:
		_, err := f.anyHarness().Clarify(ctx, agent, task, orchestrator.Question{Text: "?"})
		f.requireCode(ctx, err, errs.TaskState)
	case 5:
		_, err := f.anyHarness().HandOff(ctx, operator(), agent, task, orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(10))})
		f.requireCode(ctx, err, errs.TaskState, errs.LimitReached, errs.BudgetExceeded)
	}
	times := 1 + rand.IntN(2)
	if times == 2 { // some say it twice, here and there; by then they may have the next attempt
		r.MessageID = fmt.Sprint("done ", r.Tokens)
	}
	for range times {
		_, err = f.anyHarness().Complete(ctx, agent, task, r)
		f.requireCode(ctx, err, errs.TaskState)
	}
}

func (f *concurrentRun) waitUntilAllEnded() {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		open, err := f.db.OpenTasks(context.Background())
		return err == nil && len(open) == 0
	}, 3*time.Minute, 10*time.Millisecond)
}

func (f *concurrentRun) check() {
	f.t.Helper()
	h := f.harnesses[0]
	requireSound(f.t, h)
	requireLegalEvents(f.t, h)
	requireNone(f.t, h, "no place is in use", "SELECT agent_id, in_flight FROM workers WHERE in_flight <> 0")
	requireNone(f.t, h, "nothing is held", "SELECT agent_id, reserved FROM usage_accounts WHERE reserved <> 0")
	requireNone(f.t, h, "each report is charged once", "SELECT tokens FROM usage_facts GROUP BY tokens HAVING count(*) > 1")
	for _, row := range h.query(f.t, "SELECT tokens, agent_id, task_id FROM usage_facts") {
		number, who, _ := strings.Cut(row, " ")
		var tokens int64
		require.NoError(f.t, json.Unmarshal([]byte(number), &tokens))
		require.Equal(f.t, f.reported[tokens], who)
	}
	for id := range f.ids {
		task, err := h.Task(f.t.Context(), id)
		require.NoError(f.t, err)
		require.True(f.t, task.State.Ended())
	}
	if f.db.Options.DatabaseURL != "" {
		require.Equal(f.t, []string{" 0"}, h.query(f.t, "SELECT pg_stat_force_next_flush(), (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())"),
			"rows are locked in one order")
	}
}
