package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// Reserve holds tokens of an agent's budget, and of every budget above it with scope subtree,
// until the reservation is settled, released or expires.
//
// It returns errs.BudgetExceeded if one of them does not cover the tokens (its Meta contains the
// agent, what remains, and when the budget resets), and holds nothing then; also
// errs.AgentDeactivated, errs.InvalidRequest and errs.NotFound.
func (l *Ledger) Reserve(ctx context.Context, agentID string, d ReservationDraft, once *models.Idempotency) (models.Reservation, error) {
	v := input.Validate(d)
	if err := v.Err(); err != nil {
		return models.Reservation{}, err
	}
	ttl := DefaultReservationTTL * time.Second
	if d.TTLSeconds != nil {
		ttl = time.Duration(*d.TTLSeconds) * time.Second
	}
	op, err := newReserve(agentID, *d.Tokens, ttl)
	if err != nil {
		return models.Reservation{}, err
	}
	return do(ctx, l, op, &op.granted, once)
}

type reserve struct {
	request
	id      string
	tokens  int64
	earlier int64 // the part of tokens that belongs to earlier requests, 0 unless it renews their holds
	ttl     time.Duration
	granted models.Reservation
}

func newReserve(agentID string, tokens int64, ttl time.Duration) (*reserve, error) {
	id, err := uuid.NewV7()
	return &reserve{request: request{agentID: agentID}, id: id.String(), tokens: tokens, ttl: ttl}, err
}

func (op *reserve) decide(b *batch) {
	op.granted, op.err = models.Reservation{}, op.judge(b)
	if op.err != nil {
		return
	}
	op.granted = models.Reservation{
		ID: op.id, AgentID: op.agentID, Tokens: op.tokens, State: models.ReservationHeld,
		CreatedAt: b.now, ExpiresAt: b.now.Add(op.ttl), Path: b.path(op.agentID),
	}
	b.hold(b.accounts[op.agentID], op.granted.Path, op.tokens)
	b.end(op.granted)
}

// judge returns why the tokens cannot be reserved, nil if they can.
func (op *reserve) judge(b *batch) error {
	a, err := b.find(op.agentID)
	if err != nil {
		return err
	}
	if !a.spender.IsActive {
		return errs.New(errs.AgentDeactivated, "the agent %q is deactivated and may not spend", op.agentID)
	}
	counters := b.counters(b.path(op.agentID))
	if _, err := b.enterDay(a, counters); err != nil {
		return err
	}
	if a.Used+a.Reserved+op.tokens > MaxTokensADay { // it could not be settled
		return errs.New(errs.LimitReached, "%q has used %d tokens today and holds %d, and the ledger counts at most %d a day",
			op.agentID, a.Used, a.Reserved, int64(MaxTokensADay))
	}
	b.warn(a, op.tokens)
	limits := append([]*account{a}, counters...)
	if !a.covers(a.own(), op.tokens) {
		return op.refuse(b, a, a.own(), limits)
	}
	for _, c := range counters {
		if !c.covers(c.subtree(), op.tokens) {
			return op.refuse(b, c, c.subtree(), limits)
		}
	}
	return nil
}

// refuse adds the event and returns the error. It is permanent if the whole daily budget of one of
// the limits is less than what was requested; it has "retry_after" if reserved tokens would cover it.
func (op *reserve) refuse(b *batch, a *account, u use, limits []*account) error {
	b.refused++
	budget, _ := a.budget()
	if op.tokens-op.earlier <= budget || u.used+u.reserved > budget {
		b.exceed(a, u, op.tokens)
	}
	by, hint, permanent := "", "", false
	if u.scope == models.ScopeSubtree {
		by = " by its subtree"
	}
	released := true // whether the budgets cover it without reserved tokens
	for i, l := range limits {
		counted := l.subtree()
		if i == 0 {
			counted = l.own()
		}
		counted.reserved = 0
		released = released && l.covers(counted, op.tokens)
	}
	if released {
		hint = "; other reservations may end and release their tokens before the next day"
	}
	for _, l := range limits {
		if whole, limited := l.budget(); limited && op.tokens-op.earlier > whole {
			permanent = true
			hint = fmt.Sprintf("; the amount is larger than the whole daily budget of %s, %d tokens: reserve less or raise the budget", input.Quote(l.AgentID), whole)
			break
		}
	}
	e := errs.New(errs.BudgetExceeded, "the budget of %s does not cover %d tokens: %d of %d are left today, %d are used%s and %d reserved%s",
		input.Quote(a.AgentID), op.tokens, remaining(budget, u), budget, u.used, by, u.reserved, hint).
		With("agent_id", a.AgentID).With("scope", u.scope).With("budget", budget).With("used", u.used).
		With("reserved", u.reserved).With("remaining", remaining(budget, u)).With("requested", op.tokens).
		With("reset_at", startOf(a.Day+1))
	if e.Permanent = permanent; released {
		e = e.With("retry_after", releaseWait)
	}
	return e
}

// releaseWait is the "retry_after", in seconds, of a request that a budget does not cover because of
// reserved tokens.
const releaseWait = 5

// MaxReservationTTL is the maximum lifetime of a reservation in seconds.
const MaxReservationTTL = 86_400

// Lasting is the lifetime of reservations that practically do not expire: a hundred years.
const Lasting = 100 * 365 * day
