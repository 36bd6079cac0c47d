package orchestrator

import (
	"context"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/orchestrator/selection"
)

// lines remembers what the tasks of each line need, so that a line is not asked for in
// the database while nobody is free for it.
type lines struct {
	// waiting is how many tasks waited when last was looked.
	waiting atomic.Int64
	needs   *lru.Cache[string, selection.Request]
}

// maxLines bounds what is remembered; of a line that is forgotten the database is asked.
const maxLines = 20_000

func newLines() *lines {
	needs, err := lru.New[string, selection.Request](maxLines)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &lines{needs: needs}
}

// serve gives the tasks that wait to agents that have a place free, each line in its
// order, until nobody is free or nobody waits. A line that fails does not hold up the
// others; the error is that of the first.
func (o *Orchestrator) serve(ctx context.Context) error {
	all, err := o.store.WaitingQueues(ctx, maxLines)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, l := range all {
		n += l.Tasks
	}
	o.lines.waiting.Store(n)
	for _, l := range all {
		if failed := o.serveLine(ctx, l.Route); err == nil {
			err = failed
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (o *Orchestrator) serveLine(ctx context.Context, route string) error {
	for more := true; more && ctx.Err() == nil; {
		if needs, known := o.lines.needs.Get(route); known && !free(o.index.Select(needs).Verdict) {
			return nil // nothing has changed for it
		}
		err := o.do(ctx, func(s *step) (err error) {
			more = true
			for n := 0; n < o.served() && more && err == nil; n++ {
				more, err = s.next(route)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// free reports whether a verdict changes something for a task that waits. One of which
// somebody is excluded is a part, and waits for another agent.
func free(v selection.Verdict) bool {
	return v != selection.Saturated && v != selection.Unavailable && v != selection.Excluded
}

// served is how many tasks of a line are given away in one transaction. Where others
// write at the same time it is one: two that hold several workers each would wait for
// each other.
func (o *Orchestrator) served() int {
	if o.store.Alone() {
		return maxServed
	}
	return 1
}
