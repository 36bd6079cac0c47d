package usage

import (
	"context"
	"time"

	"comet/store"
)

// expireDue releases reservations whose lease has ended while no operation does it, and returns when
// to look again. It only reads while there are none.
func (l *Ledger) expireDue(ctx context.Context) (time.Duration, error) {
	for {
		due, held, err := l.store.Ledger(ctx).NextReservationDue()
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
	if err := l.store.Write(ctx, func(tx *store.Tx) error { return tx.Ledger().ForgetBefore(before) }); err != nil {
		return err
	}
	_, err := l.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) { return tx.Ledger().Purge(before, limit) })
	return err
}
