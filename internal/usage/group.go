package usage

import (
	"context"
	"errors"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const (
	// maxGroup and maxGroupFacts bound how many operations share one transaction, and
	// how many facts these may record.
	maxGroup      = 256
	maxGroupFacts = 2 * models.MaxFacts
	// groupTimeout bounds how long a group waits for the database to begin.
	groupTimeout = 30 * time.Second
)

// group collects the operations that wait at the same moment. One of their callers
// leads: it commits them all in one transaction, and hands the lead to one of those
// who came meanwhile. So there is one transaction of the ledger at a time in a
// process, and no goroutine that somebody must own.
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
	done chan bool // true when it was decided, false to take the lead
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

// leave takes back a call that nobody has taken up.
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

// lead commits the group that c is in and passes the lead on.
func (g *group) lead(c *call) {
	calls := g.take(c)
	defer g.pass()
	// Also where the decision panics: the others would wait for ever.
	defer func() {
		for _, other := range calls {
			if other != c {
				other.done <- true
			}
		}
	}()
	g.decide(calls)
}

// take removes as many calls as make a group, the leader's own among them. What does
// not fit may be overtaken, but not for long: who has waited longest leads next.
func (g *group) take(leader *call) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls, left := []*call{leader}, g.waiting[:0]
	room := maxGroupFacts - facts(leader.op)
	for _, c := range g.waiting {
		switch n := facts(c.op); {
		case c == leader:
		case len(calls) < maxGroup && n <= room:
			calls, room = append(calls, c), room-n
		default:

			left = append(left, c)
		}
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	return calls
}

// facts is how many facts an operation may record.
func facts(op operation) int {
	if r, many := op.(*record); many {
		return len(r.facts)
	}
	return 1
}

// pass hands the lead to the one who has waited longest.
func (g *group) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.led = len(g.waiting) > 0; g.led {
		g.waiting[0].done <- false
	}
}

// decide commits the calls together. Where a statement failed, whoever caused it is
// found by running each alone; an error that leaves the outcome open is everybody's.
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
		if err != nil && len(ops) > 1 && !open(err) {
			own = g.commit(ctx, []operation{c.op})
		}
		c.err = orElse(own, c.op.failed())
	}
}

// errUndecided is what a call hears whose leader did not come to an end.
var errUndecided = errors.New("the ledger's decision panicked")

// open reports whether an error says nothing about the operations themselves.
func open(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unavailable, errs.Busy, errs.Timeout:
		return true
	}
	return false
}

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
