package tools

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

const (
	// reservedFor is how long the ledger holds tokens without a renewal, and so how long tokens
	// of a killed process stay reserved.
	reservedFor = 2 * time.Minute
	// idleAfter is how long an account may be unused before it releases its reservation.
	idleAfter = 5 * time.Second
	// ledgerTimeout is the longest wait of a call for the ledger when its account is empty.
	ledgerTimeout = 10 * time.Second
	// factKind is the kind of tool calls in the breakdown of an agent's usage.
	factKind = "tool_calls"
)

// prepaid charges tool calls to agents through prepaid accounts. However calls interleave, an
// agent spends no more than the ledger reserved for it, except what running calls cost beyond
// their estimate: that is known when they end, and charged then.
type prepaid struct {
	ledger *usage.Ledger
	clock  func() time.Time
	// countPending counts the tokens of finished calls; nil where nothing does.
	countPending func(context.Context) error

	mu       sync.Mutex
	accounts map[string]*prepaidAccount
}

func newPrepaid(l *usage.Ledger, clock func() time.Time) *prepaid {
	return &prepaid{ledger: l, clock: clock, accounts: map[string]*prepaidAccount{}}
}

func (p *prepaid) account(agentID string) *prepaidAccount {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.accounts[agentID]
	if a == nil {
		a = newPrepaidAccount(agentID)
		p.accounts[agentID] = a
	}
	return a
}

// Reserve reserves tokens for a call; the caller ends it with finishCall of the account. The
// error is errs.BudgetExceeded, or errs.Unavailable when the ledger does not respond in time.
func (p *prepaid) Reserve(ctx context.Context, agentID string, tokens int64) (*prepaidAccount, error) {
	if a := p.account(agentID); a.reserve(tokens, p.clock()) {
		return a, nil
	}
	asking, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	a, err := p.reserveOrRefill(asking, agentID, tokens)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the token ledger does not respond; the tool was not called, try again")
	}
	return a, err
}

// reserveOrRefill is Reserve without the time limit.
func (p *prepaid) reserveOrRefill(ctx context.Context, agentID string, tokens int64) (*prepaidAccount, error) {
	counted := p.countPending == nil
	for {
		a := p.account(agentID)
		if a.reserve(tokens, p.clock()) {
			return a, nil
		}
		select {
		case a.ledgerAccess <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if p.account(agentID) != a { // the account was removed meanwhile
			<-a.ledgerAccess
			continue
		}
		err := p.Refill(ctx, a, tokens, counted)
		<-a.ledgerAccess
		if errors.Is(err, errUncounted) {
			counted = true
			if err = p.countPending(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if a.reserve(tokens, p.clock()) {
			return a, nil
		}
	}
}

// errUncounted is a refusal that depends on estimates. The tokens of finished calls are counted
// first, so that the ledger decides on actual use.
var errUncounted = errors.New("tokens of finished calls must be counted first")

// Refill reserves at least need tokens more for an account, whose ledgerAccess the caller holds.
func (p *prepaid) Refill(ctx context.Context, a *prepaidAccount, need int64, counted bool) error {
	now := p.clock()
	if a.reserve(need, now) { // another call has refilled the account
		a.finishCall(need, 0, now)
		return nil
	}
	s := a.shortfall(need)
	affordable := p.affordable(ctx, a.agentID, s)
	if affordable < s.minimum && !counted && s.estimated {
		return errUncounted
	}
	s.renewal = max(affordable, s.minimum)
	granted, refused, err := p.settleAndReserve(ctx, a.agentID, s)
	if errors.Is(err, errOverReserved) { // a budget above the agent's covers less
		a.markScarce(now)
		s.renewal = s.minimum
		granted, refused, err = p.settleAndReserve(ctx, a.agentID, s)
	}
	if err != nil {
		a.markUncertain(s)
		return err
	}
	a.apply(s, granted)
	return refused
}

// errOverReserved rolls back a transaction that reserved more than the minimum and was refused:
// only a refusal of the minimum is published to watchers of the budget.
var errOverReserved = errors.New("the advance reservation exceeds the budget")

// settleAndReserve sends the statement of one account to the ledger.
func (p *prepaid) settleAndReserve(ctx context.Context, agentID string, s statement) (granted *models.Reservation, refused, err error) {
	err = p.ledger.Write(ctx, func(tx *store.Tx) (err error) {
		granted, refused, err = p.Settle(tx, agentID, s)
		if err == nil && refused != nil && s.renewal > s.minimum {
			err = errOverReserved
		}
		return err
	})
	return granted, refused, err
}

// affordable returns how much of a renewal the budget covers. An advance reservation must not be
// refused, because refusals are published.
func (p *prepaid) affordable(ctx context.Context, agentID string, s statement) int64 {
	u, err := p.ledger.Usage(ctx, agentID)
	if err != nil || u.Remaining == nil {
		return s.renewal
	}
	free := *u.Remaining - s.spent
	if s.reservation != "" {
		free += s.size
	}
	// Other accounts and charges need some of it too.
	return max(min(s.renewal, free/2), 0)
}

// Settle settles spent tokens and reserves new ones. When that is refused, statement.keep stays
// reserved, because another replica would be granted it. A refusal does not fail the transaction.
// A reservation that has already ended, with its agent for example, does not stop the charge of
// spent tokens.
func (p *prepaid) Settle(tx *store.Tx, agentID string, s statement) (granted *models.Reservation, refused, err error) {
	gone := s.reservation == ""
	if !gone {
		err = p.ledger.SettleIn(tx, agentID, s.reservation, models.Settlement{Tokens: &s.spent, FactLabels: models.FactLabels{Kind: factKind}})
		gone = errs.Is(err, errs.ReservationEnded) || errs.Is(err, errs.NotFound)
	}
	if gone && s.spent > 0 {
		err = p.ledger.ChargeIn(tx, agentID, models.FactDraft{Tokens: &s.spent, FactLabels: models.FactLabels{Kind: factKind}})
	} else if gone {
		err = nil
	}
	if err != nil || s.renewal <= 0 {
		return nil, nil, err
	}
	r, err := p.ledger.ReserveIn(tx, agentID, s.renewal, reservedFor)
	switch errs.CodeOf(err) {
	case errs.BudgetExceeded, errs.AgentDeactivated, errs.NotFound:
		if err != nil && s.keep > 0 && s.keep < s.renewal {
			s.reservation, s.spent, s.renewal = "", 0, s.keep
			granted, _, settleErr := p.Settle(tx, agentID, s)
			return granted, err, settleErr
		}
		if err != nil {
			return nil, err, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return &r, nil, nil
}

// dueAccount is an account whose statement is sent to the ledger.
type dueAccount struct {
	*prepaidAccount
	statement
	granted *models.Reservation
}

// dueAccounts returns the accounts with a statement for the ledger, sorted by agent; the caller
// passes them to finishStatements. With all, it includes accounts that only hold a reservation.
func (p *prepaid) dueAccounts(ctx context.Context, all bool) []*dueAccount {
	out := p.changedAccounts(all)
	slices.SortFunc(out, func(a, b *dueAccount) int { return cmp.Compare(a.agentID, b.agentID) })
	for _, d := range out {
		if d.renewal > 0 {
			d.renewal = max(p.affordable(ctx, d.agentID, d.statement), d.minimum)
		}
	}
	return out
}

// changedAccounts returns the accounts with a statement and removes unused ones. It does not use
// the database.
func (p *prepaid) changedAccounts(all bool) (out []*dueAccount) {
	now, idle := p.clock(), idleAfter
	if all {
		idle = -1 << 62 // every account is idle
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.accounts {
		select {
		case a.ledgerAccess <- struct{}{}:
		default:
			continue // a call is using the ledger for this account
		}
		s, ok := a.dueStatement(now, idle)
		switch {
		case ok:
			out = append(out, &dueAccount{prepaidAccount: a, statement: s})
			continue
		case a.isIdle(now, idle):
			delete(p.accounts, id)
		}
		<-a.ledgerAccess
	}
	return out
}

// settleAll sends the statements of accounts to the ledger in one transaction.
func (p *prepaid) settleAll(tx *store.Tx, list []*dueAccount) (err error) {
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i] = d.agentID
	}
	if err := p.ledger.LockIn(tx, ids); err != nil {
		return err
	}
	for _, d := range list {
		var refused error
		if d.granted, refused, err = p.Settle(tx, d.agentID, d.statement); err != nil {
			return err
		}
		if refused != nil && d.renewal > 0 { // a refused renewal is retried, not published
			return &overReserved{d}
		}
	}
	return nil
}

// overReserved is the error of an account whose advance reservation was refused.
type overReserved struct{ *dueAccount }

func (e *overReserved) Error() string {
	return "the ledger refused an advance reservation for " + e.agentID
}

// finishStatements ends what dueAccounts began; settled reports whether the ledger has the
// statements.
func finishStatements(list []*dueAccount, settled bool) {
	for _, d := range list {
		if settled {
			d.apply(d.statement, d.granted)
		} else {
			d.markUncertain(d.statement)
		}
		<-d.ledgerAccess
	}
}
