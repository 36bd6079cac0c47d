package usage

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// maxGroup and maxGroupFacts limit the operations of one transaction and the facts they
	// record.
	maxGroup      = 256
	maxGroupFacts = 2 * MaxFacts
	// groupTimeout limits how long a group waits for the database to begin.
	groupTimeout = 30 * time.Second
)

// group collects operations that wait at the same time. One of the callers leads: it commits all
// of them in one transaction and then passes the lead to a caller that arrived meanwhile. A
// process therefore has one ledger transaction at a time and needs no goroutine for it.
type group struct {
	commit func(ctx context.Context, ops []operation) error

	mu      sync.Mutex
	waiting []*call
	led     bool
}

// call is one caller's operation.
type call struct {
	ctx  context.Context
	op   operation
	err  error
	done chan bool // true when decided, false to take the lead
}

func newGroup(commit func(context.Context, []operation) error) *group { return &group{commit: commit} }

// do returns the operation's own error, or why the group could not be committed.
func (g *group) do(ctx context.Context, op operation) error {
	c := &call{ctx: ctx, op: op, done: make(chan bool, 1)}
	if !g.join(c) {
		select {
		case decided := <-c.done:
			if decided {
				return c.err
			}
		case <-ctx.Done():
			if g.leave(c) {
				return ctx.Err()
			}
			if <-c.done {
				return c.err
			}
		}
	}
	g.lead(c)
	return c.err
}

// join adds a call and reports whether it leads.
func (g *group) join(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, c)
	if g.led {
		return false
	}
	g.led = true
	return true
}

// leave removes a call that no leader has taken.
func (g *group) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == c && len(c.done) == 0 {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead commits the group of c and passes the lead on.
func (g *group) lead(c *call) {
	calls := g.takeGroup(c)
	defer g.passLead()
	// Deferred, so that a panic of the decision does not leave the others waiting.
	defer func() {
		for _, other := range calls {
			if other != c {
				other.done <- true
			}
		}
	}()
	g.decide(calls)
}

// takeGroup removes the calls of the next group, the leader's own included. Calls that do not fit
// may be overtaken once: the oldest waiting call leads next.
func (g *group) takeGroup(leader *call) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls, left := []*call{leader}, g.waiting[:0]
	capacity := maxGroupFacts - facts(leader.op)
	for _, c := range g.waiting {
		switch n := facts(c.op); {
		case c == leader:
		case len(calls) < maxGroup && n <= capacity:
			calls, capacity = append(calls, c), capacity-n
		default:
			left = append(left, c)
		}
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	return calls
}

// facts returns how many facts an operation may record.
func facts(op operation) int {
	if r, many := op.(*record); many {
		return len(r.facts)
	}
	return 1
}

// passLead makes the oldest waiting call the leader.
func (g *group) passLead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.led = len(g.waiting) > 0; g.led {
		g.waiting[0].done <- false
	}
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
		if err != nil && len(ops) > 1 && !isGeneral(err) {
			own = g.commit(ctx, []operation{c.op})
		}
		c.err = cmp.Or(own, c.op.common().err)
	}
}

// errUndecided is returned to calls whose leader panicked.
var errUndecided = errors.New("the ledger's decision panicked")

// isGeneral reports whether an error is unrelated to the operations themselves.
func isGeneral(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unavailable, errs.Busy, errs.Timeout:
		return true
	}
	return false
}

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
	if err := b.save(); err != nil {
		return err
	}
	l.counters.after(b)
	return nil
}
