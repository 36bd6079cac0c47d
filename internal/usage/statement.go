package usage

import (
	"errors"

	"comet/internal/errs"
	"comet/models"
)

// errUncounted is a refusal that depends on estimates.
var errUncounted = errors.New("tokens of finished work must be counted first")

// prepay is the operation behind a statement of a prepaid account: it settles the reservation, or
// charges what was used without one, and reserves tokens until the next statement.
type prepay struct {
	request // its error is why the used tokens are not charged
	settle  settle
	reserve reserve
	// held are the tokens of open holds, need those of the hold that waits, and advance those that
	// are wanted in addition.
	need, held, advance int64
	// tentative returns errUncounted instead of a refusal, which would be published.
	tentative bool

	granted models.Reservation
	refused error // why need is not granted
}

func (op *prepay) decide(b *batch) {
	op.granted, op.refused = models.Reservation{}, nil
	a, err := b.find(op.agentID)
	if err == nil {
		err = op.charge(b, a)
	}
	if op.err = err; err == nil {
		op.renew(b, a)
	}
}

// charge charges what was used. A reservation that was ended by another request does not stop it.
func (op *prepay) charge(b *batch, a *account) error {
	if op.reservation != "" {
		op.settle.decide(b)
		if !errs.Is(op.settle.err, errs.ReservationEnded) && !errs.Is(op.settle.err, errs.NotFound) {
			return op.settle.err
		}
	}
	fact := op.settle.fact
	if fact.Tokens == 0 {
		return nil
	}
	fact.ReservationID = ""
	return b.charge(a, b.path(a.AgentID), []models.Fact{fact}, 0)
}

// renew reserves tokens: what is held and needed, and in advance up to half of what the budgets
// still cover, because other accounts need some of it, too. Where need is refused, what is held
// stays reserved, because another replica would be granted it.
func (op *prepay) renew(b *batch, a *account) {
	counters := b.counters(b.path(a.AgentID))
	if _, op.err = b.enterDay(a, counters); op.err != nil {
		return
	}
	free := b.free(a, counters)
	held := min(op.held, free)
	if op.need > 0 {
		op.reserve.tokens = max(op.held+op.need, min(op.advance, free/2))
		if op.tentative && op.reserve.tokens > free {
			op.refused = errUncounted
		} else if op.granted, op.refused = op.reserve.grant(b); op.refused == nil {
			return
		}
		op.reserve.tokens = held
	} else {
		op.reserve.tokens = max(held, min(op.advance, free/2))
	}
	if op.reserve.tokens > 0 {
		op.granted, _ = op.reserve.grant(b) // an agent that is not active gets none
	}
}

func (op *reserve) grant(b *batch) (models.Reservation, error) {
	op.decide(b)
	return op.granted, op.err
}

// free returns how many tokens the budgets of an agent and of a path still cover.
func (b *batch) free(a *account, counters []*account) int64 {
	free := int64(MaxTokensADay)
	if budget, limited := a.budget(); limited {
		free = min(free, remaining(budget, a.own()))
	}
	for _, c := range counters {
		if budget, limited := c.budget(); limited {
			free = min(free, remaining(budget, c.subtree()))
		}
	}
	return free
}
