// Package usage is the ledger: what agents have spent, what they may still spend,
// and who must hear of it (CHE·NU §5). Every use of tokens is a fact that never
// changes; every other number is a sum of facts and can be computed again (Verify).
//
// Permission to spend is asked for with a reservation, which holds tokens until it
// is settled with what was really used, is released, or expires. No interleaving of
// callers, of this process or of others on the same database, is granted more than
// the budget covers: whoever decides holds the row of the agent's account, and those
// of the ancestors whose budget counts their subtree.
//
// # Time
//
// Windows are UTC days and hours. An account belongs to a day, and its sums begin
// anew with the first decision on a later one; what is held stays held over
// midnight, and counts against the new day. When the clock goes back, or another
// replica's is behind, the account's day goes on, and a fact recorded then counts at
// that day's first moment at the earliest. Only a day that is further ahead than
// tomorrow was a wrong clock's: the account is brought back to today with the sums
// of today's facts, and may be warned of a second time. A budget that is
// lowered below what was used leaves nothing to reserve until the next day; facts
// are recorded all the same. Warnings are judged when the ledger decides, so a
// lowered budget is noticed with the agent's next charge or reservation.
package usage

import (
	"context"
	"log/slog"
	"time"

	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/models"
	"comet/store"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Poll is how often expired reservations are looked for that this process has
	// not made, default 1 s.
	Poll time.Duration
	// Retention is how long facts, windows and ended reservations are kept by
	// Purge, default 400 days, at least 2 days.
	Retention time.Duration
	// Logger hears when freeing expired reservations fails; default discards.
	Logger *slog.Logger
}

// Ledger keeps the accounts. It is safe for concurrent use. Start it to free
// expired reservations while nobody asks; everything else works without.
type Ledger struct {
	*lifecycle.Loop
	store     *store.Store
	log       *slog.Logger
	poll      time.Duration
	retention time.Duration
	group     *group
	counters  *counters
}

// New returns a ledger over the store.
func New(s *store.Store, opts *Options) *Ledger {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Poll <= 0 {
		o.Poll = time.Second
	}
	if o.Retention <= 0 {
		o.Retention = 400 * day
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{store: s, log: o.Logger, poll: o.Poll, retention: max(o.Retention, 2*day), counters: newCounters()}
	l.group = newGroup(l.commit)
	l.Loop = lifecycle.NewLoop(l.expire)
	return l
}

const day = 24 * time.Hour

// dayOf is the UTC day of a time, in days since 1970.
func dayOf(t time.Time) int64 { return t.Unix() / 86400 }

// startOf is a day's first moment.
func startOf(day int64) time.Time { return time.Unix(day*86400, 0).UTC() }

// requireOwn refuses a token that is bound to another agent.
func requireOwn(by models.Principal, agentID string) error {
	if by.AgentID == nil || *by.AgentID == agentID {
		return nil
	}
	return errs.New(errs.ForeignAgent, "this token is bound to the agent %q and writes usage for that agent only", *by.AgentID)
}

// do has an operation decided, together with others that wait at the same moment,
// and returns after the commit. With an Idempotency-Key it has a transaction of its
// own, in which the answer is stored.
func (l *Ledger) do(ctx context.Context, op operation, once *models.Idempotency) error {
	if once == nil {
		return l.group.do(ctx, op)
	}
	err := l.alone(ctx, op, once)
	if r, refused := op.(*reserve); refused && errs.Is(err, errs.BudgetExceeded) {
		// A refused request stores no answer, so its transaction was rolled back, and
		// with it the event that tells of the refusal.
		if err := l.group.do(ctx, r.refusal()); err != nil {
			return err
		}
	}
	return err
}
