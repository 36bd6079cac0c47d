package usage

import (
	"context"
	"time"

	"comet/store"
)

// expire frees reservations whose lease has ended while nobody asks the ledger for
// anything. It only reads while none has.
func (l *Ledger) expire(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		wait, err := l.expireDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			l.log.WarnContext(ctx, "freeing expired reservations fails and is tried again", "error", err)
		case err == nil && failing:
			l.log.InfoContext(ctx, "freeing expired reservations works again")
		}
		failing = err != nil
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// expireDue frees what is overdue and returns how long to wait until it is worth
// another look.
func (l *Ledger) expireDue(ctx context.Context) (time.Duration, error) {
	for {
		due, held, err := l.store.NextReservationDue(ctx)
		if err != nil || !held {
			return l.poll, err
		}
		if early := due.Sub(l.store.Now()); early > 0 {
			return min(early, l.poll), nil
		}
		if err := l.commit(ctx, nil); err != nil {
			return l.poll, err
		}
	}
}

// Purge deletes facts, windows, outcomes, ended reservations, resets and additional
// budgets of days before the retention began, a batch a transaction. It is meant to be done again and again. A
// request_id is forgotten with its fact.
func (l *Ledger) Purge(ctx context.Context) error {
	before := dayOf(l.store.Now().Add(-l.retention))
	if err := l.store.Write(ctx, func(tx *store.Tx) error { return tx.ForgetUsageBefore(before) }); err != nil {
		return err
	}
	for {
		var n int64
		err := l.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeUsage(before, purgeBatch)
			return err
		})
		if err != nil || n == 0 {
			return err
		}
	}
}

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 1000
