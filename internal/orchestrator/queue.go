package orchestrator

import (
	"context"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// queueCache remembers what the tasks of each line need, so that a line is not asked for in
// the database while nobody is free for it.
type queueCache struct {
	// queued is how many tasks waited when last was looked.
	queued   atomic.Int64
	requests *lru.Cache[string, selection.Request]
}

// maxQueues bounds what is remembered; of a line that is forgotten the database is asked.
const maxQueues = 20_000

func newQueueCache() *queueCache {
	needs, err := lru.New[string, selection.Request](maxQueues)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &queueCache{requests: needs}
}

// serveQueues gives the tasks that wait to agents that have a place free, each line in its
// order, until nobody is free or nobody waits. A line that fails does not hold up the
// others; the error is that of the first.
func (o *Orchestrator) serveQueues(ctx context.Context) error {
	all, err := o.store.WaitingQueues(ctx, maxQueues)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, l := range all {
		n += l.Tasks
	}
	o.queues.queued.Store(n)
	for _, l := range all {
		if failed := o.serveQueue(ctx, l.Route); err == nil {
			err = failed
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (o *Orchestrator) serveQueue(ctx context.Context, route string) error {
	for more := true; more && ctx.Err() == nil; {
		if needs, known := o.queues.requests.Get(route); known && !canLeaveQueue(o.index.Select(needs).Verdict) {
			return nil // nothing has changed for it
		}
		err := o.transact(ctx, func(op *operation) (err error) {
			more = true
			for n := 0; n < o.maxTogether() && more && err == nil; n++ {
				more, err = op.assignNext(route)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// canLeaveQueue reports whether a verdict changes something for a task that waits. One of which
// somebody is excluded is a part, and waits for another agent.
func canLeaveQueue(v selection.Verdict) bool {
	return v != selection.Saturated && v != selection.Unavailable && v != selection.Excluded
}

// maxTogether is how many tasks of a line are given away in one transaction. Where others
// write at the same time it is one: two that hold several workers each would wait for
// each other.
func (o *Orchestrator) maxTogether() int {
	if o.store.Alone() {
		return maxAssignedTogether
	}
	return 1
}

// maxSkipped is how many tasks that only a budget keeps from being done are passed over
// for those behind them.
const maxSkipped = 16

// assignNext gives the first task of a line to somebody; more tells whether it is worth
// looking again. One whose budget those who are free do not cover does not hold up the
// line.
func (op *operation) assignNext(route string) (more bool, err error) {
	var passed []string
	for len(passed) <= maxSkipped {
		t, found, err := op.tx.NextQueuedTask(route, passed...)
		if err != nil || !found {
			return false, err
		}
		op.overBudget = false
		more, err := op.assignQueued(route, t)
		if err != nil || more || !op.overBudget {
			return more, err
		}
		passed = append(passed, t.ID)
	}
	return false, nil
}

// assignQueued gives a task that waits to somebody, and reports whether it waits no more.
func (op *operation) assignQueued(route string, t models.Task) (bool, error) {
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return false, err
	}
	siblings, err := op.siblingAgents(t, in)
	if err != nil {
		return false, err
	}
	needs := selectionRequest(t.Depth, in, p, siblings)
	op.queues.requests.Add(route, needs)
	if !canLeaveQueue(op.index.Select(needs).Verdict) {
		return false, nil // nothing has changed for it
	}
	before := t
	exclude, err := op.agentsToAvoid(t, p)
	if err != nil {
		return false, err
	}
	failure, err := op.assignOrQueue(&t, in, p, exclude)
	if err == nil && failure == "" && t.WaitingFor == models.WaitForWorker && len(exclude) > 0 { // nobody behind it shall wait for its preference
		failure, err = op.assignOrQueue(&t, in, p, nil)
	}
	if err == nil && failure != "" {
		err = op.failTask(&t, failure, assignFailureText(failure))
	}
	if err != nil || t.WaitingFor == models.WaitForWorker {
		return false, err
	}
	return true, op.saveTask(before, &t)
}
