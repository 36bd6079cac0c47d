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
	onFresh(t, "EachTaskEndsOnce", func(t *testing.T, db *storetest.DB) {
		f := &fair{t: t, db: db, houses: []*house{open(t, db, nil), open(t, other(t, db), nil)}, reported: map[int64]string{}, ids: map[string]bool{}}
		f.prepare()
		stopClock := f.goOn(1, func(context.Context, int) { db.Clock.Advance(20 * time.Millisecond) })
		stopAgents := f.goOn(agentsAtTheFair, f.work)
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

// fair is the place where they meet.
type fair struct {
	t      *testing.T
	db     *storetest.DB
	houses []*house
	tokens atomic.Int64 // every report has a number of its own

	mu       sync.Mutex
	reported map[int64]string // tokens → who reported them for which task
	ids      map[string]bool  // of the tasks that were taken on
}

// at is one of the orchestrators.
func (f *fair) at() *house { return f.houses[rand.IntN(len(f.houses))] }

func (f *fair) prepare() {
	for i := range agentsAtTheFair {
		id := fmt.Sprintf("agent%d", i)
		f.houses[0].worker(f.t, id, 1+i%3, "work")
		require.NoError(f.t, f.houses[1].ReindexAgent(f.t.Context(), id))
	}
	for i := range 2 {
		_, err := f.at().OpenSession(f.t.Context(), ops(), fmt.Sprintf("s%d", i), nil)
		require.NoError(f.t, err)
	}
}

// goOn has several do something again and again, until it is stopped.
func (f *fair) goOn(n int, fn func(ctx context.Context, i int)) (stop func()) {
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

// allowed fails the test for an error that is not among what may be answered.
func (f *fair) allowed(ctx context.Context, err error, codes ...errs.Code) {
	if err != nil && ctx.Err() == nil {
		assert.Contains(f.t, codes, errs.CodeOf(err), "%v", err)
	}
}

func (f *fair) submitAll() {
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

func (f *fair) submit(i, n int) {
	ctx := context.Background()
	sub := orchestrator.Submission{Capabilities: []string{"work"}, Priority: rand.IntN(4), Override: orchestrator.Override{TimeoutMS: 1000 + rand.Int64N(4000)}}
	if rand.IntN(2) == 0 {
		sub.Session = fmt.Sprintf("s%d", rand.IntN(2))
	}
	if rand.IntN(2) == 0 {
		sub.Budget = new(100 + rand.Int64N(400))
	}
	if rand.IntN(6) == 0 {
		sub.Override.Workers = 2 + rand.IntN(3)
	}
	if i%2 == 0 { // two repeat each other
		sub = orchestrator.Submission{Capabilities: []string{"work"}, RequestID: fmt.Sprintf("r%d-%d", i/4, n), Budget: new(int64(200)), Session: "s0"}
	}
	out, err := f.at().Submit(ctx, ops(), sub, nil)
	f.allowed(ctx, err)
	if err != nil {
		return
	}
	f.mu.Lock()
	f.ids[out.Task.ID] = true
	f.mu.Unlock()
	if rand.IntN(6) == 0 {
		_, err := f.at().Cancel(ctx, out.Task.ID, "not needed", nil)
		f.allowed(ctx, err, errs.TaskState)
	}
	if rand.IntN(6) == 0 {
		_, err := f.at().Reply(ctx, out.Task.ID, "whatever")
		f.allowed(ctx, err, errs.TaskState)
	}
}

// work is what an agent does when it looks into its inbox.
func (f *fair) work(ctx context.Context, i int) {
	id := fmt.Sprintf("agent%d", i)
	offline, err := f.at().Alive(ctx, []string{id})
	f.allowed(ctx, err)
	if len(offline) > 0 {
		_, err := f.at().Join(ctx, id, orchestrator.JoinRequest{Dialect: "plain", Link: "poll", Places: 1 + i%3})
		f.allowed(ctx, err)
	}
	told, err := f.at().Messages(ctx, id, 10)
	f.allowed(ctx, err)
	for _, m := range told {
		_, err := f.at().Acknowledge(ctx, id, []string{m.ID})
		f.allowed(ctx, err)
		if m.Kind == models.MessageAssign {
			f.make(ctx, id, m.TaskID)
		}
	}
}

// make makes an attempt, in one way or another.
func (f *fair) make(ctx context.Context, agent, task string) {
	how := rand.IntN(10)
	if how == 0 {
		return // it vanishes
	}
	_, err := f.at().Accept(ctx, agent, task)
	f.allowed(ctx, err, errs.TaskState)
	_, err = f.at().Progress(ctx, agent, task, orchestrator.Progress{Percent: new(how), Log: []byte("x"), Chunk: &orchestrator.Chunk{Data: []byte("result")}})
	f.allowed(ctx, err, errs.TaskState)
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
		_, err := f.at().Clarify(ctx, agent, task, orchestrator.Question{Text: "?"})
		f.allowed(ctx, err, errs.TaskState)
	case 5:
		_, err := f.at().HandOff(ctx, ops(), agent, task, orchestrator.Submission{Capabilities: []string{"work"}, Budget: new(int64(10))})
		f.allowed(ctx, err, errs.TaskState, errs.LimitReached, errs.BudgetExceeded)
	}
	times := 1 + rand.IntN(2)
	if times == 2 { // some say it twice, here and there; by then they may have the next attempt
		r.MessageID = fmt.Sprint("done ", r.Tokens)
	}
	for range times {
		_, err = f.at().Complete(ctx, agent, task, r)
		f.allowed(ctx, err, errs.TaskState)
	}
}

func (f *fair) waitUntilAllEnded() {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		open, err := f.db.OpenTasks(context.Background())
		return err == nil && len(open) == 0
	}, 3*time.Minute, 10*time.Millisecond)
}

func (f *fair) check() {
	f.t.Helper()
	h := f.houses[0]
	requireSound(f.t, h)
	requireLegalEvents(f.t, h)
	requireNone(f.t, h, "no place is in use", "SELECT agent_id, in_flight FROM workers WHERE in_flight <> 0")
	requireNone(f.t, h, "nothing is held", "SELECT agent_id, reserved FROM usage_accounts WHERE reserved <> 0")
	requireNone(f.t, h, "each report is charged once", "SELECT tokens FROM usage_facts GROUP BY tokens HAVING count(*) > 1")
	for _, row := range h.look(f.t, "SELECT tokens, agent_id, task_id FROM usage_facts") {
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
		require.Equal(f.t, []string{" 0"}, h.look(f.t, "SELECT pg_stat_force_next_flush(), (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())"),
			"rows are locked in one order")
	}
}
