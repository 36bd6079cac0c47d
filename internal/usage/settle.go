package usage

import (
	"context"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

// Settle turns a reservation into usage: it releases what was held and records the real usage,
// which may be less or more, as a fact. The fact counts on the ancestors that granted the
// reservation, wherever the agent is now. An expired reservation can still be settled, because
// the tokens are spent.
//
// Repeating the same settlement changes nothing; a different one, or one of a released
// reservation, is errs.ReservationEnded.
func (l *Ledger) Settle(ctx context.Context, agentID, id string, d Settlement, once *models.Idempotency) (Settled, error) {
	v := input.Validate(d)
	d.check(&v)
	if err := v.Err(); err != nil {
		return Settled{}, err
	}
	op, err := newSettle(agentID, id, d)
	if err != nil {
		return Settled{}, err
	}
	return do(ctx, l, op, &op.settled, once)
}

// Release releases what a reservation held. For an expired or released reservation it does
// nothing and succeeds; a settled one is errs.ReservationEnded.
func (l *Ledger) Release(ctx context.Context, agentID, id string) error {
	return l.group.do(ctx, &release{request{agentID: agentID, reservation: id}})
}

// find returns the reservation that a request ends and the account that holds it.
func (r *request) find(b *batch) (models.Reservation, *account, error) {
	a, err := b.find(r.agentID)
	if err != nil {
		return models.Reservation{}, nil, err
	}
	held, found := b.reservations[store.LedgerKey{AgentID: r.agentID, ID: r.reservation}]
	if !found {
		return held, nil, errs.New(errs.NotFound, "%q has no reservation %q", r.agentID, r.reservation)
	}
	return held, a, nil
}

func ended(r models.Reservation) error {
	return errs.New(errs.ReservationEnded, "the reservation %q was %s before", r.ID, r.State).With("state", r.State)
}

type settle struct {
	request
	fact    models.Fact
	outcome FactOutcome
	settled Settled
}

func newSettle(agentID, reservationID string, d Settlement) (*settle, error) {
	fact, err := newFact(agentID, *d.Tokens, d.FactLabels, d)
	fact.ReservationID = reservationID
	return &settle{request: request{agentID: agentID, reservation: reservationID}, fact: fact, outcome: d.FactOutcome}, err
}

func (op *settle) decide(b *batch) {
	op.settled = Settled{}
	op.err = op.enter(b)
}

func (op *settle) enter(b *batch) error {
	r, a, err := op.find(b)
	if err != nil {
		return err
	}
	switch r.State {
	case models.ReservationReleased:
		return ended(r)
	case models.ReservationSettled:
		if r.Digest != op.fact.Digest {
			return ended(r)
		}
		op.settled = Settled{Reservation: r, Late: !r.EndedAt.Before(r.ExpiresAt), Replayed: true, Balance: a.balance()}
		return nil
	}
	late := r.State == models.ReservationExpired
	held := r.Tokens
	if late {
		held = 0
	}
	var facts []models.Fact
	if op.fact.Tokens > 0 {
		facts = append(facts, op.fact)
	}
	if err := b.charge(a, r.Path, facts, held); err != nil {
		return err
	}
	b.outcome(op.fact, b.at(a.Day), op.outcome)
	at := b.now
	if late && at.Before(r.ExpiresAt) { // the clock went back
		at = r.ExpiresAt
	}
	r.State, r.EndedAt, r.SettledTokens, r.Digest = models.ReservationSettled, &at, &op.fact.Tokens, op.fact.Digest
	b.end(r)
	op.settled = Settled{Reservation: r, Late: late, Balance: a.balance()}
	return nil
}

type release struct{ request }

func (op *release) decide(b *batch) {
	r, a, err := op.find(b)
	switch op.err = err; {
	case err != nil:
	case r.State == models.ReservationSettled:
		op.err = ended(r)
	case r.State == models.ReservationHeld:
		b.hold(a, r.Path, -r.Tokens)
		r.State = models.ReservationReleased
		b.end(r)
	}
}

// draw is the operation of DrawIn.
type draw struct {
	*record
	elsewhere, left int64
}

func (op *draw) decide(b *batch) {
	op.recorded, op.err, op.left = Recorded{}, nil, 0
	a, err := b.find(op.agentID)
	if err != nil {
		op.err = err
		return
	}
	r := b.reservations[store.LedgerKey{AgentID: op.agentID, ID: op.reservation}]
	held := r.State == models.ReservationHeld
	part := op.elsewhere
	for _, f := range op.facts {
		if _, known := b.recorded[store.LedgerKey{AgentID: op.agentID, ID: f.RequestID}]; f.RequestID == "" || !known {
			part += f.Tokens
		}
	}
	if part = min(part, r.Tokens); !held {
		part = 0
	}
	b.hold(a, r.Path, -part)
	if op.recorded.Facts, op.err = op.enter(b, a); op.err != nil {
		b.hold(a, r.Path, part)
		return
	}
	if held {
		if op.left = r.Tokens - part; op.left == 0 {
			r.State = models.ReservationReleased
		} else {
			r.Tokens = op.left
		}
		b.end(r)
	}
}
