package usage

import (
	"context"
	"errors"

	"comet/models"
	"comet/store"
)

// commit decides operations in one transaction, in the order given.
func (l *Ledger) commit(ctx context.Context, ops []operation) error {
	return l.withAccounts(ctx, ops, func(tx *store.Tx) error { return decide(tx, ops) })
}

// alone decides an operation in a transaction of its own that also stores its
// answer. Of a repeated request the stored answer is all that happens.
func (l *Ledger) alone(ctx context.Context, op operation, once *models.Once) error {
	return l.withAccounts(ctx, []operation{op}, func(tx *store.Tx) error {
		return tx.Once(once, func() (any, error) {
			if err := decide(tx, []operation{op}); err != nil {
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

func decide(tx *store.Tx, ops []operation) error {
	b, err := openBooks(tx, ops)
	if err != nil {
		return err
	}
	if len(b.missing) > 0 {
		return errNoAccount
	}
	for _, op := range ops {
		op.decide(b)
	}
	return b.close()
}

// withAccounts writes, and where agents turn out to have no account yet, creates
// their accounts first and writes again. Only an agent's very first use comes here
// twice.
func (l *Ledger) withAccounts(ctx context.Context, ops []operation, write func(*store.Tx) error) error {
	for {
		err := l.store.Write(ctx, write)
		if !errors.Is(err, errNoAccount) {
			return err
		}
		if err := l.store.Write(ctx, func(tx *store.Tx) error { return createAccounts(tx, ops) }); err != nil {
			return err
		}
	}
}

// createAccounts makes the accounts that openBooks missed, without a lock on those
// that exist.
func createAccounts(tx *store.Tx, ops []operation) error {
	if err := tx.ShareChains(); err != nil {
		return err
	}
	named, err := tx.Reservations(reservationKeys(ops))
	if err != nil {
		return err
	}
	b := &books{tx: tx, now: tx.Now()}
	wanted, err := b.involved(ops, named)
	if err != nil {
		return err
	}
	of := make([]models.Spender, len(wanted))
	for i, id := range wanted {
		of[i] = b.spenders[id]
	}
	return tx.CreateAccounts(of)
}
