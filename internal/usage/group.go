package usage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// maxGroup and maxGroupFacts limit the operations of one transaction and their facts.
	maxGroup      = 256
	maxGroupFacts = 2 * MaxFacts
	// groupTimeout limits how long a group waits for the database to begin.
	groupTimeout = 30 * time.Second
)

// group collects operations that wait at the same time. One caller leads and commits them together.
// So a process has one ledger transaction at a time and needs no goroutine for it.
type group struct {
	commit func(ctx context.Context, ops []operation) error
	leader chan struct{} // has an element while a caller leads; the oldest waiting caller leads next

	mu      sync.Mutex
	waiting []*call
}

type call struct {
	ctx  context.Context
	op   operation
	err  error
	done chan struct{} // closed when decided
}

func newGroup(commit func(context.Context, []operation) error) *group {
	return &group{commit: commit, leader: make(chan struct{}, 1)}
}

// do returns the operation's own error, or why the group could not be committed.
func (g *group) do(ctx context.Context, op operation) error {
	c := &call{ctx: ctx, op: op, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	g.mu.Unlock()
	select {
	case <-c.done:
	case g.leader <- struct{}{}:
		defer func() { <-g.leader }()
		g.lead(c)
	case <-ctx.Done():
		if g.leave(c) {
			return ctx.Err()
		}
		<-c.done // a leader has taken it
	}
	return c.err
}

// leave removes a call, unless a leader has taken it.
func (g *group) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, c)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// lead commits the group of c, unless an earlier leader has decided c.
func (g *group) lead(c *call) {
	calls := g.takeGroup(c)
	// Deferred, so that a panic of the decision does not leave the others waiting.
	defer func() {
		for _, decided := range calls {
			close(decided.done)
		}
	}()
	g.decide(calls)
}

// takeGroup removes the calls of the next group, the leader's own included. Calls that do not fit
// may be overtaken once: the oldest waiting call leads next. It is empty if c is not waiting.
func (g *group) takeGroup(c *call) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.waiting, c) {
		return nil
	}
	calls, left := []*call{c}, g.waiting[:0]
	capacity := maxGroupFacts - facts(c.op)
	for _, other := range g.waiting {
		switch n := facts(other.op); {
		case other == c:
		case len(calls) < maxGroup && n <= capacity:
			calls, capacity = append(calls, other), capacity-n
		default:
			left = append(left, other)
		}
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	return calls
}

func facts(op operation) int {
	if r, many := op.(*record); many {
		return len(r.facts)
	}
	return 1
}

// decide commits the calls together. If a statement fails, each call runs alone to find the
// cause; an error with an unknown outcome is returned to all of them.
func (g *group) decide(calls []*call) {
	asked, ops := make([]*call, 0, len(calls)), make([]operation, 0, len(calls))
	for _, c := range calls {
		if c.err = c.ctx.Err(); c.err == nil {
			c.err = errUndecided
			asked, ops = append(asked, c), append(ops, c.op)
		}
	}
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(calls[0].ctx), groupTimeout)
	defer cancel()
	err := g.commit(ctx, ops)
	for _, c := range asked {
		own := err
		if err != nil && len(ops) > 1 && !slices.Contains([]errs.Code{errs.Unavailable, errs.Busy, errs.Timeout}, errs.CodeOf(err)) {
			own = g.commit(ctx, []operation{c.op})
		}
		c.err = cmp.Or(own, c.op.common().err)
	}
}

// errUndecided is returned to calls whose leader panicked.
var errUndecided = errors.New("the ledger's decision panicked")

// do decides an operation together with others that wait at the same time and returns its result
// after the commit. With an Idempotency-Key it runs in its own transaction, which also stores the
// response: a repeated request only returns the stored response. A refusal for a budget stores no
// response, but its event.
func do[T any](ctx context.Context, l *Ledger, op operation, result *T, once *models.Idempotency) (T, error) {
	if once == nil {
		err := l.group.do(ctx, op)
		return *result, err
	}
	r := op.common()
	err := l.Write(ctx, func(tx *store.Tx) error {
		r.err = nil
		err := tx.Idempotent(once, func() (any, error) {
			if err := l.decide(tx, []operation{op}); err != nil {
				return nil, err
			}
			return *result, r.err
		})
		if errs.Is(err, errs.BudgetExceeded) && errors.Is(err, r.err) {
			return tx.Forget(once)
		}
		return err
	})
	return *result, cmp.Or(err, r.err)
}

// commit decides operations in one transaction, in the given order.
func (l *Ledger) commit(ctx context.Context, ops []operation) error {
	return l.Write(ctx, func(tx *store.Tx) error { return l.decide(tx, ops) })
}

func (l *Ledger) decide(tx *store.Tx, ops []operation) error {
	b, err := openBatch(tx, ops)
	if err != nil {
		return err
	}
	for _, op := range ops {
		op.decide(b)
	}
	if err := l.save(b); err != nil {
		return err
	}
	l.counters.after(b)
	return nil
}
