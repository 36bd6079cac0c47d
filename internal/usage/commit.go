package usage

import (
	"cmp"
	"context"
	"errors"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// commit decides operations in one transaction, in the given order.
func (l *Ledger) commit(ctx context.Context, ops []operation) error {
	return l.write(ctx, func(tx *store.Tx) error { return l.decide(tx, ops) })
}

// commitOne decides an operation in its own transaction, which also stores the response for its
// Idempotency-Key. A repeated request only returns the stored response. A refusal for a budget stores
// no response, but its event.
func (l *Ledger) commitOne(ctx context.Context, op operation, once *models.Idempotency) error {
	r := op.common()
	err := l.write(ctx, func(tx *store.Tx) error {
		r.err = nil
		err := tx.Idempotent(once, func() (any, error) {
			if err := l.decide(tx, []operation{op}); err != nil {
				return nil, err
			}
			return result(op), r.err
		})
		if errs.Is(r.err, errs.BudgetExceeded) {
			return tx.Forget(once)
		}
		return err
	})
	return cmp.Or(err, r.err)
}

// result returns what the caller of an operation receives.
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
	l.counters.after(tx, ops)
	return nil
}

// write runs a ledger transaction. It runs it again if openBatch requires that, after it has
// released expired reservations in a transaction of their own.
func (l *Ledger) write(ctx context.Context, decide func(*store.Tx) error) error {
	for {
		err := l.store.Write(ctx, decide)
		switch {
		case errors.Is(err, errAccountsCreated):
			err = ctx.Err()
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
