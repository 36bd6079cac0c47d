package usage

import (
	"context"
	"errors"
	"time"

	"comet/models"
	"comet/store"
)

// This file is for operations of other packages that spend in their own transaction, so that
// their effect commits with the ledger's. Rows are locked in one order everywhere: those of the
// operation first, the ledger's accounts last.

// Write is store.Write for a transaction that calls ReserveIn, SettleIn, ReleaseIn or ChargeIn. fn must
// return their errors, except refusals. If openBatch requires it, Write first releases expired
// reservations in a separate transaction and runs fn again.
func (l *Ledger) Write(ctx context.Context, fn func(*store.Tx) error) error {
	for {
		err := l.store.Write(ctx, fn)
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

// ReserveIn is Reserve in the caller's transaction. After errs.BudgetExceeded the transaction may
// continue; it keeps the event about the refusal. A reservation with Lasting does not expire, so the
// caller must end it in the transaction that ends the work that it pays for.
func (l *Ledger) ReserveIn(tx *store.Tx, agentID string, tokens int64, ttl time.Duration) (models.Reservation, error) {
	if ttl != Lasting {
		ttl = min(ttl, MaxReservationTTL*time.Second)
	}
	op, err := newReserve(agentID, tokens, ttl)
	if err == nil {
		err = l.decideOne(tx, op)
	}
	return op.granted, err
}

// SettleIn is Settle in the caller's transaction.
func (l *Ledger) SettleIn(tx *store.Tx, agentID, reservationID string, d Settlement) error {
	op, err := newSettle(agentID, reservationID, d)
	if err == nil {
		err = l.decideOne(tx, op)
	}
	return err
}

// ReleaseIn is Release in the caller's transaction.
func (l *Ledger) ReleaseIn(tx *store.Tx, agentID, reservationID string) error {
	return l.decideOne(tx, &release{request{agentID: agentID, reservation: reservationID}})
}

// ChargeIn records a fact in the caller's transaction.
func (l *Ledger) ChargeIn(tx *store.Tx, agentID string, d FactDraft) error {
	fact, err := newFact(agentID, *d.Tokens, d.FactLabels, d)
	if err != nil {
		return err
	}
	return l.decideOne(tx, &record{request: request{agentID: agentID}, drafts: []FactDraft{d}, facts: []models.Fact{fact}})
}

// DrawIn draws on a reservation in the caller's transaction: it charges facts to the agent and reduces the
// reservation by their tokens and by elsewhere, tokens that were charged to other agents. A fact whose request_id was
// recorded before is not charged again and does not reduce the reservation. Tokens that exceed the reservation, or all
// tokens if it has ended, are charged nevertheless. DrawIn returns the tokens that are still reserved.
func (l *Ledger) DrawIn(tx *store.Tx, agentID, reservationID string, facts []FactDraft, elsewhere int64) (left int64, err error) {
	op := &draw{record: &record{request: request{agentID: agentID}}, elsewhere: elsewhere}
	if len(facts) > 0 {
		if op.record, err = newRecord(agentID, facts); err != nil {
			return 0, err
		}
	}
	op.reservation = reservationID
	err = l.decideOne(tx, op)
	return op.left, err
}

// LockIn locks the accounts of agents and of all their ancestors until the transaction ends, in the
// ledger's lock order. Operations on several agents in one transaction call it first.
func (l *Ledger) LockIn(tx *store.Tx, agentIDs []string) error {
	ops := make([]operation, 0, len(agentIDs))
	for _, id := range agentIDs {
		if id != "" {
			ops = append(ops, &lockAccount{request{agentID: id}})
		}
	}
	_, err := openBatch(tx, ops)
	return err
}

func (l *Ledger) decideOne(tx *store.Tx, op operation) error {
	if err := l.decide(tx, []operation{op}); err != nil {
		return err
	}
	return op.common().err
}
