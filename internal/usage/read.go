package usage

import (
	"context"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
)

// Usage returns today's use and what remains (CHE·NU §5.2) as one snapshot, or errs.NotFound.
func (l *Ledger) Usage(ctx context.Context, agentID string) (AgentUsage, error) {
	now := l.store.Now()
	s, err := l.store.Ledger(ctx).Spending(agentID, now)
	if err != nil {
		return AgentUsage{}, err
	}
	a := account{Account: s.Account, spender: s.Spender}
	if a.extraEnded(now) {
		a.Extra = s.Extra
	}
	a.Reserved -= s.Overdue
	b := a.balance()
	out := AgentUsage{
		AgentID: agentID, Budget: b.Budget, UsedToday: b.UsedToday, UsedThisHour: s.UsedThisHour, Remaining: b.Remaining, ResetAt: b.ResetAt,
		Reserved: b.Reserved, AdditionalBudget: a.Extra, ForgivenToday: a.Forgiven, BudgetScope: s.Spender.BudgetScope, SubtreeUsedToday: s.SubtreeUsed,
	}
	if budget, limited := a.budget(); limited && a.countsSubtree() {
		out.SubtreeReserved, out.SubtreeForgivenToday = &s.SubtreeHeld, &s.SubtreeExempt
		out.SubtreeRemaining = new(remaining(budget, use{models.ScopeSubtree, s.SubtreeUsed - s.SubtreeExempt, s.SubtreeHeld}))
		out.Remaining = new(min(*out.Remaining, *out.SubtreeRemaining))
	}
	return out, nil
}

// TreeUsage is what agents used today: their own usage without what resets wrote off, and the
// usage of their subtrees at the time of spending. Agents without usage are missing. Additional
// holds the active additional budgets.
type TreeUsage struct {
	Used        map[string]int64
	SubtreeUsed map[string]int64
	Additional  map[string]int64
}

// Tree returns today's usage of every agent.
func (l *Ledger) Tree(ctx context.Context) (TreeUsage, error) {
	t := TreeUsage{Used: map[string]int64{}, SubtreeUsed: map[string]int64{}}
	forgiven, err := l.store.Ledger(ctx).UsageByPath(dayOf(l.store.Now()), func(agentID, path string, tokens int64) {
		t.Used[agentID] += tokens
		for link := range strings.SplitSeq(path, "/") {
			t.SubtreeUsed[link] += tokens
		}
	})
	if err != nil {
		return t, err
	}
	for id, tokens := range forgiven {
		t.Used[id] -= tokens
	}
	t.Additional, err = l.store.Ledger(ctx).AdditionsByAgent()
	return t, err
}

// History returns the windows of a usage history in order, including empty ones. The bounds are
// rounded to windows. It returns errs.NotFound, and errs.InvalidParameter for an invalid query.
func (l *Ledger) History(ctx context.Context, agentID string, q HistoryQuery) ([]HistoryBucket, error) {
	if _, err := l.store.Agents(ctx).Get(agentID); err != nil {
		return nil, err
	}
	width := time.Hour
	if q.Window == WindowDay {
		width = day
	}
	from, to := q.From.UTC().Truncate(width), q.To.UTC()
	if from.Before(q.From) {
		from = from.Add(width)
	}
	if to.Sub(from) > maxBuckets*width {
		return nil, errs.New(errs.InvalidParameter, "a history has at most %d windows", maxBuckets)
	}
	buckets := []HistoryBucket{}
	for at := from; at.Before(to); at = at.Add(width) {
		buckets = append(buckets, HistoryBucket{Start: at})
	}
	if len(buckets) == 0 {
		return buckets, nil
	}
	end := from.Add(time.Duration(len(buckets)) * width)
	hours, ledger := int64(width/time.Hour), l.store.Ledger(ctx)
	var rows []store.HistoryRow
	var err error
	if q.By == ByNothing {
		rows, err = ledger.History(agentID, from, end, hours)
	} else {
		rows, err = ledger.Breakdown(agentID, string(q.By), from, end, hours, q.Top)
	}
	for _, r := range rows {
		b := &buckets[(r.Hour-from.Unix()/3600)/hours]
		b.Tokens += r.Tokens
		switch {
		case q.By == ByNothing:
		case !r.Other:
			b.Breakdown = append(b.Breakdown, HistoryGroup{Value: r.Label, Tokens: r.Tokens, Facts: r.Facts})
		default:
			b.OtherTokens += r.Tokens
		}
	}
	return buckets, err
}

// maxBuckets is the largest number of windows in a history.
const maxBuckets = 1000

// Reservation returns a reservation, or errs.NotFound. One whose lease has ended is expired,
// whether or not its tokens were released yet.
func (l *Ledger) Reservation(ctx context.Context, agentID, id string) (models.Reservation, error) {
	r, err := l.store.Ledger(ctx).Reservation(agentID, id)
	return l.shown(r), err
}

// Reservations returns up to limit reservations of an agent, newest first, after the one with the
// id before ("" for none), in a state or all (""). It returns errs.NotFound.
func (l *Ledger) Reservations(ctx context.Context, agentID string, state models.ReservationState, before string, limit int) ([]models.Reservation, error) {
	if _, err := l.store.Agents(ctx).Get(agentID); err != nil {
		return nil, err
	}
	list, err := l.store.Ledger(ctx).Reservations(agentID, state, before, limit)
	for i := range list {
		list[i] = l.shown(list[i])
	}
	return list, err
}

func (l *Ledger) shown(r models.Reservation) models.Reservation {
	if r.State == models.ReservationHeld && !r.ExpiresAt.After(l.store.Now()) {
		r.State = models.ReservationExpired
	}
	return r
}

// Verify computes every sum of the ledger from facts, reservations and resets in one snapshot and
// reports the stored sums that differ. It changes nothing.
func (l *Ledger) Verify(ctx context.Context) (ledgercheck.Verification, error) {
	return ledgercheck.Verify(ctx, l.store)
}
