package orchestrator

import (
	"context"
	"slices"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// queueCache caches what the tasks of each queue require, so that the database is not read while
// no agent is free for them.
type queueCache struct {
	// queued is the number of queued tasks at the last look.
	queued   atomic.Int64
	requests *lru.Cache[string, selection.Request]
}

// maxQueues limits the cache. Queues that are not cached are read from the database.
const maxQueues = 20_000

func newQueueCache() *queueCache {
	needs, _ := lru.New[string, selection.Request](maxQueues) // fails only for a size below 1
	return &queueCache{requests: needs}
}

// serveQueues assigns queued tasks to agents with free slots, each queue in its order, until no task
// or no agent is left. A queue that fails does not block the others; the first error is returned.
func (o *Orchestrator) serveQueues(ctx context.Context) error {
	all, err := o.store.Tasks(ctx).WaitingQueues(maxQueues)
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
	together := 1 // two transactions of several processes that lock several accounts each could wait for each other
	if o.store.Alone() {
		together = maxAssignedTogether
	}
	var passed []string
	for more := true; more && ctx.Err() == nil; {
		if needs, known := o.queues.requests.Get(route); known && !canLeaveQueue(o.index.Select(needs).Verdict) {
			return nil
		}
		var next []string
		err := o.transact(ctx, func(op *operation) (err error) {
			next, more = passed, true
			for n := 0; n < together && more && err == nil; n++ {
				next, more, err = op.assignNext(route, next)
			}
			return err
		})
		if err != nil {
			return err
		}
		passed = next
	}
	return nil
}

// canLeaveQueue reports whether a verdict lets a queued task continue. Only a subtask has
// excluded agents, and it waits for another one.
func canLeaveQueue(v selection.Verdict) bool {
	return v != selection.Saturated && v != selection.Unavailable && v != selection.Excluded
}

// maxSkipped is how many tasks are skipped because no free agent's budget covers them.
const maxSkipped = 16

// assignNext assigns the first task of a queue, except those in passed; more reports whether the next
// one may follow. A task that no free agent's budget covers does not block the queue: it is added to
// passed, for the next transaction if other processes write as well.
func (op *operation) assignNext(route string, passed []string) (next []string, more bool, err error) {
	for len(passed) <= maxSkipped {
		t, found, err := op.tx.Tasks().NextQueued(route, passed...)
		if err != nil || !found {
			return passed, false, err
		}
		op.budgetErrors = nil
		more, err := op.assignQueued(route, t)
		if err != nil || more || len(op.budgetErrors) == 0 {
			return passed, more, err
		}
		if passed = append(slices.Clip(passed), t.ID); !op.opts.Alone {
			return passed, true, nil
		}
	}
	return passed, false, nil
}

// assignQueued tries to assign a queued task and reports whether it has left the queue.
func (op *operation) assignQueued(route string, t models.Task) (bool, error) {
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return false, err
	}
	siblings, err := op.siblingAgents(t)
	if err != nil {
		return false, err
	}
	needs := selectionRequest(t.Depth, in, p, siblings)
	op.queues.requests.Add(route, needs)
	if !canLeaveQueue(op.index.Select(needs).Verdict) {
		return false, nil
	}
	before := t
	exclude, err := op.agentsToAvoid(t, p)
	if err != nil {
		return false, err
	}
	err = op.assignOrQueue(&t, in, p, exclude)
	if err == nil && t.WaitingFor == models.WaitForWorker && len(exclude) > 0 { // its preference must not block the tasks after it
		err = op.assignOrQueue(&t, in, p, nil)
	}
	if err != nil || t.WaitingFor == models.WaitForWorker {
		return false, err
	}
	return true, op.saveTask(before, &t)
}
