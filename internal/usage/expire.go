package usage

import (
	"context"
	"time"

	"comet/store"
)

// expire releases reservations whose lease has ended while no operation does it. It only reads
// while there are none.
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

// expireDue releases overdue reservations and returns when to look again.
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

// Purge deletes facts, windows, outcomes, ended reservations, resets and additional budgets of
// days before the retention, one batch per transaction. Call it periodically. A request_id is
// forgotten with its fact.
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

// purgeBatch limits the rows of one purging transaction, so that other writers do not wait long.
const purgeBatch = 1000
