package usage

import (
	"maps"
	"math"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// This file holds what operations add to a batch.

// at returns the time of a charge that happens now on a day: not before the day began.
func (b *batch) at(day int64) time.Time {
	if dayOf(b.now) < day {
		return startOf(day)
	}
	return b.now
}

// find returns the account of an operation, or errs.NotFound.
func (b *batch) find(agentID string) (*account, error) {
	if a := b.accounts[agentID]; a != nil {
		return a, nil
	}
	return nil, errs.New(errs.NotFound, "there is no agent %q", agentID)
}

// charge adds facts of one agent that count on one path, and releases the tokens that were held for
// them. Facts get the account's day if it is ahead of the clock. An error adds nothing.
func (b *batch) charge(a *account, path string, facts []models.Fact, held int64) error {
	counters := b.counters(path)
	var sum int64
	for _, f := range facts {
		sum += f.Tokens
	}
	today, err := b.enterDay(a, counters)
	if err != nil {
		return err
	}
	if a.Used+sum > MaxTokensADay {
		return errs.New(errs.LimitReached, "%q has used %d tokens today, and the ledger counts at most %d a day", a.AgentID, a.Used, int64(MaxTokensADay))
	}
	for _, c := range counters {
		if c.SubtreeUsed > math.MaxInt64-sum {
			return errs.New(errs.LimitReached, "%q and the agents below it have used more today than the ledger can count", c.AgentID)
		}
	}
	for i := range facts {
		facts[i].At, facts[i].Path = b.at(today), path
		if facts[i].RequestID != "" {
			b.recorded[store.LedgerKey{AgentID: a.AgentID, ID: facts[i].RequestID}] = facts[i]
		}
	}
	b.facts = append(b.facts, facts...)
	a.Used, a.changed = a.Used+sum, true
	for _, c := range counters {
		c.SubtreeUsed, c.changed = c.SubtreeUsed+sum, true
	}
	b.hold(a, path, -held)
	// All sums are final before an event describes them.
	b.warn(a, 0)
	for _, c := range counters {
		b.warn(c, 0)
	}
	return nil
}

// hold changes the reserved tokens on a path.
func (b *batch) hold(a *account, path string, tokens int64) {
	a.Reserved, a.changed = a.Reserved+tokens, true
	for _, c := range b.counters(path) {
		c.SubtreeReserved, c.changed = c.SubtreeReserved+tokens, true
	}
}

func (b *batch) end(r models.Reservation) {
	key := store.LedgerKey{AgentID: r.AgentID, ID: r.ID}
	b.reservations[key], b.ended[key] = r, r
}

// expire releases a reservation whose lease has ended, unless it was ended between the two reads.
func (b *batch) expire(key store.LedgerKey) {
	r, found := b.reservations[key]
	if !found || r.State != models.ReservationHeld {
		return
	}
	if a := b.accounts[key.AgentID]; a != nil {
		a.Reserved, a.changed = a.Reserved-r.Tokens, true
	}
	for _, c := range b.counters(r.Path) {
		if c.Subtree {
			c.SubtreeReserved, c.changed = c.SubtreeReserved-r.Tokens, true
		}
	}
	r.State = models.ReservationExpired
	b.end(r)
}

func (b *batch) save() error {
	if err := b.tx.Ledger().InsertFacts(b.facts); err != nil {
		return err
	}
	if err := b.tx.Ledger().AddToWindows(b.facts); err != nil {
		return err
	}
	if err := b.tx.Ledger().SaveReservations(slices.Collect(maps.Values(b.ended)), b.now); err != nil {
		return err
	}
	if err := b.tx.Agents().AddOutcomes(b.outcomes); err != nil {
		return err
	}
	var changed []store.Account
	for _, a := range b.accounts {
		if a.changed {
			a.Version++
			changed = append(changed, a.Account)
		}
	}
	if err := b.tx.Ledger().SaveAccounts(changed); err != nil {
		return err
	}
	for _, a := range b.alerts {
		if err := b.tx.Events().Emit(a.kind, a.data.AgentID, a.data); err != nil {
			return err
		}
	}
	return nil
}
