package usage

import (
	"context"
	"errors"

	"comet/models"
	"comet/store"
)

// commit decides operations in one transaction, in the order given.
func (l *Ledger) commit(ctx context.Context, ops []operation) error {
	return l.write(ctx, func(tx *store.Tx) error { return l.decide(tx, ops) })
}

// alone decides an operation in a transaction of its own that also stores its
// answer. Of a repeated request the stored answer is all that happens.
func (l *Ledger) alone(ctx context.Context, op operation, once *models.Idempotency) error {
	return l.write(ctx, func(tx *store.Tx) error {
		return tx.Idempotent(once, func() (any, error) {
			if err := l.decide(tx, []operation{op}); err != nil {
				return nil, err
			}
			return result(op), op.failed()
		})
	})
}

// result is what an operation's caller gets.
func result(op operation) any {
	switch op := op.(type) {
	case *record:
		return op.recorded
	case *reserve:
		return op.granted
	case *settle:
		return op.settled
	}
	return nil
}

func (l *Ledger) decide(tx *store.Tx, ops []operation) error {
	b, err := openBooks(tx, ops)
	if err != nil {
		return err
	}
	for _, op := range ops {
		op.decide(b)
	}
	if err := b.close(); err != nil {
		return err
	}
	l.counters.after(tx, ops)
	return nil
}

// write writes, and does what openBooks found to be done first in transactions of
// their own: it creates the accounts of agents that spend for the first time, and
// frees expired reservations, many at a time.
func (l *Ledger) write(ctx context.Context, decide func(*store.Tx) error) error {
	for {
		err := l.store.Write(ctx, decide)
		var missing *noAccounts
		switch {
		case errors.As(err, &missing):
			err = l.store.Write(ctx, func(tx *store.Tx) error { return tx.CreateAccounts(missing.of) })
		case errors.Is(err, errOverdue):
			err = l.commit(ctx, nil)
		default:
			return err
		}
		if err != nil {
			return err
		}
	}
}
