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
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// TestConcurrentOperations runs submitters, agents that work, fail and disappear, and
// cancellations on two orchestrators over one database, while time passes quickly. The result
// must be as if the operations had run one after the other.
func TestConcurrentOperations(t *testing.T) {
	t.Parallel()
	withDatabase(t, "every task ends once", func(t *testing.T, db *storetest.DB) {
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

// TestConcurrentBudgets checks that submissions that several agents' budgets refuse end, at two replicas,
// without waiting for each other's accounts in a circle.
func TestConcurrentBudgets(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		harnesses := []*harness{start(t, db, nil), start(t, secondReplica(t, db), nil)}
		for i := range 4 {
			id := fmt.Sprint("agent", i)
			harnesses[0].worker(t, id, 100, "work")
			require.NoError(t, harnesses[1].ReindexAgent(t.Context(), id))
			harnesses[0].recordUsage(t, id, 49_900-int64(i)) // of 50,000
			require.Eventually(t, func() bool {              // otherwise tasks could wait for a worker that a replica finds while it submits
				return harnesses[1].CachedWorker(id).State == models.WorkerOnline
			}, testkit.Timeout, 5*time.Millisecond)
		}
		var submitters sync.WaitGroup
		for n := range 8 {
			submitters.Go(func() {
				for i := range 20 {
					budget := []int64{1, 200}[(n+i)%2]
					out, err := harnesses[n%2].Submit(context.Background(), operator(), orchestrator.Submission{Capabilities: []string{"work"}, Budget: &budget}, nil)
					if budget == 200 {
						assert.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
						continue
					}
					if err == nil {
						_, err = harnesses[i%2].Complete(context.Background(), out.Task.AgentID, out.Task.ID, orchestrator.Result{})
					}
					assert.NoError(t, err)
				}
			})
		}
		submitters.Wait()
		requireSound(t, harnesses[0])
		requireNoDeadlocks(t, db, harnesses[0])
	})
}

func requireNoDeadlocks(t *testing.T, db *storetest.DB, h *harness) {
	t.Helper()
	if db.Database() == "postgres" {
		require.Equal(t, []string{" 0"}, h.query(t, "SELECT pg_stat_force_next_flush(), (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())"),
			"there are no deadlocks")
	}
}

const (
	agentsAtTheFair = 6
	submitters      = 16
)

// concurrentRun is the state of one run.
type concurrentRun struct {
	t         *testing.T
	db        *storetest.DB
	harnesses []*harness
	tokens    atomic.Int64 // each report has another number

	mu       sync.Mutex
	reported map[int64]string // tokens → agent and task of the report
	ids      map[string]bool  // of the accepted tasks
}

// anyHarness returns one of the orchestrators.
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

// repeat runs fn repeatedly in n goroutines until stop is called.
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

// requireCode fails the test for an error with another code.
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
	if i%2 == 0 { // two submitters repeat each other
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
		_, err := f.anyHarness().Reply(ctx, out.Task.ID, "any reply")
		f.requireCode(ctx, err, errs.TaskState)
	}
}

// work handles the messages in the inbox of an agent.
func (f *concurrentRun) work(ctx context.Context, i int) {
	id := fmt.Sprintf("agent%d", i)
	offline, err := f.anyHarness().KeepAlive(ctx, []string{id})
	f.requireCode(ctx, err)
	if len(offline) > 0 {
		_, err := f.anyHarness().Join(ctx, id, orchestrator.JoinRequest{Protocol: "plain", Transport: "poll", Concurrency: 1 + i%3})
		f.requireCode(ctx, err)
	}
	messages, err := f.anyHarness().Messages(ctx, id, 10)
	f.requireCode(ctx, err)
	for _, m := range messages {
		_, err := f.anyHarness().Acknowledge(ctx, id, []string{m.ID})
		f.requireCode(ctx, err)
		if m.Kind == models.MessageAssign {
			f.runAttempt(ctx, id, m.TaskID)
		}
	}
}

// runAttempt executes an attempt in a random way.
func (f *concurrentRun) runAttempt(ctx context.Context, agent, task string) {
	how := rand.IntN(10)
	if how == 0 {
		return // the agent disappears
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
		return // the agent disappears later
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
	if times == 2 { // some repeat the message on another replica; they may have the next attempt by then
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
		open, err := f.db.Tasks(context.Background()).CountOpen()
		return err == nil && len(open) == 0
	}, 3*time.Minute, 10*time.Millisecond)
}

func (f *concurrentRun) check() {
	f.t.Helper()
	h := f.harnesses[0]
	requireSound(f.t, h)
	requireLegalEvents(f.t, h)
	requireNone(f.t, h, "no slot is in use", "SELECT agent_id, in_flight FROM workers WHERE in_flight <> 0")
	requireNone(f.t, h, "nothing is reserved", "SELECT agent_id, reserved FROM usage_accounts WHERE reserved <> 0")
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
	requireNoDeadlocks(f.t, f.db, h)
}
