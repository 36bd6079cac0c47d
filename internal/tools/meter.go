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
	// reservedFor is for how long the ledger holds tokens that nobody renews: what a
	// process that was killed held is free again after that.
	reservedFor = 2 * time.Minute
	// idleAfter is how long an account may lie unused before it gives back what it holds.
	idleAfter = 5 * time.Second
	// ledgerTimeout is how long a call waits for the ledger, at most, where its agent's account is
	// dry: a database that is away must not hold up a caller for ever.
	ledgerTimeout = 10 * time.Second
	// factKind is what calls of tools are in the breakdown of an agent's usage.
	factKind = "tool_calls"
)

// prepaid charges calls to the agents that make them. No interleaving of calls spends more
// than the ledger reserved for an agent, but for what the calls under way cost beyond what
// they were promised: that is known only when they end, and recorded all the same.
type prepaid struct {
	ledger *usage.Ledger
	clock  func() time.Time
	// countPending has calls counted that have ended; nil where nobody does.
	countPending func(context.Context) error

	mu       sync.Mutex
	accounts map[string]*prepaidAccount
}

func newPrepaid(l *usage.Ledger, clock func() time.Time) *prepaid {
	return &prepaid{ledger: l, clock: clock, accounts: map[string]*prepaidAccount{}}
}

func (m *prepaid) account(agentID string) *prepaidAccount {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[agentID]
	if a == nil {
		a = newPrepaidAccount(agentID)
		m.accounts[agentID] = a
	}
	return a
}

// Reserve promises a call so many tokens, or returns errs.BudgetExceeded, and errs.Unavailable
// where the ledger does not answer in time. Who is admitted calls give of the account.
func (m *prepaid) Reserve(ctx context.Context, agentID string, tokens int64) (*prepaidAccount, error) {
	if a := m.account(agentID); a.reserve(tokens, m.clock()) {
		return a, nil
	}
	asking, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	a, err := m.reserveOrRefill(asking, agentID, tokens)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return nil, errs.Wrap(errs.Unavailable, err, "the token ledger does not answer; nothing was called, try again")
	}
	return a, err
}

// reserveOrRefill is admit for as long as the context lasts.
func (m *prepaid) reserveOrRefill(ctx context.Context, agentID string, tokens int64) (*prepaidAccount, error) {
	counted := m.countPending == nil
	for {
		a := m.account(agentID)
		if a.reserve(tokens, m.clock()) {
			return a, nil
		}
		select {
		case a.ledgerAccess <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if m.account(agentID) != a { // it was forgotten meanwhile
			<-a.ledgerAccess
			continue
		}
		err := m.Refill(ctx, a, tokens, counted)
		<-a.ledgerAccess
		if errors.Is(err, errUncounted) {
			counted = true
			if err = m.countPending(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if a.reserve(tokens, m.clock()) {
			return a, nil
		}
	}
}

// errUncounted is a refusal that may be none: some of what was used is only estimated. It is
// counted first, so that the ledger, and who is refused, hear what was used.
var errUncounted = errors.New("what was used is to be counted first")

// Refill has the ledger reserve more for an account, as much as it needs at least. The
// caller is the one who asks.
func (m *prepaid) Refill(ctx context.Context, a *prepaidAccount, need int64, counted bool) error {
	now := m.clock()
	if a.reserve(need, now) { // somebody else has refilled it
		a.finishCall(need, 0, now)
		return nil
	}
	s := a.shortfall(need)
	affordable := m.affordable(ctx, a.agentID, s)
	if affordable < s.minimum && !counted && s.estimated {
		return errUncounted
	}
	s.renewal = max(affordable, s.minimum)
	granted, refused, err := m.settleAndReserve(ctx, a.agentID, s)
	if errors.Is(err, errOverReserved) { // a budget above the agent's covers less
		a.markScarce(now)
		s.renewal = s.minimum
		granted, refused, err = m.settleAndReserve(ctx, a.agentID, s)
	}
	if err != nil {
		a.markUncertain(s)
		return err
	}
	a.apply(s, granted)
	return refused
}

// errOverReserved takes a transaction back in which more was asked for than is needed: only what
// is needed may be refused, since that is told to whoever watches the budget.
var errOverReserved = errors.New("more than there is")

// settleAndReserve tells the ledger of one account.
func (m *prepaid) settleAndReserve(ctx context.Context, agentID string, s statement) (granted *models.Reservation, refused, err error) {
	err = m.ledger.Write(ctx, func(tx *store.Tx) (err error) {
		granted, refused, err = m.Settle(tx, agentID, s)
		if err == nil && refused != nil && s.renewal > s.minimum {
			err = errOverReserved
		}
		return err
	})
	return granted, refused, err
}

// affordable is how much of what a statement wants to reserve the budget covers: what is
// asked for in advance must not be refused, since a refusal is told to whoever watches.
func (m *prepaid) affordable(ctx context.Context, agentID string, s statement) int64 {
	u, err := m.ledger.Usage(ctx, agentID)
	if err != nil || u.Remaining == nil {
		return s.renewal
	}
	free := *u.Remaining - s.spent
	if s.reservation != "" {
		free += s.size
	}
	// Others may spend meanwhile, and want some of it too.
	return max(min(s.renewal, free/2), 0)
}

// Settle settles what was spent and reserves anew; where that is refused, what is to be kept
// stays reserved, or another replica would be granted it. A refusal is no error of the
// transaction.
// A reservation that somebody else has ended (its agent may) is no reason to forget what was
// spent, nor to hold up the others.
func (m *prepaid) Settle(tx *store.Tx, agentID string, s statement) (granted *models.Reservation, refused, err error) {
	gone := s.reservation == ""
	if !gone {
		err = m.ledger.SettleIn(tx, agentID, s.reservation, models.Settlement{Tokens: &s.spent, FactLabels: models.FactLabels{Kind: factKind}})
		gone = errs.Is(err, errs.ReservationEnded) || errs.Is(err, errs.NotFound)
	}
	if gone && s.spent > 0 {
		err = m.ledger.ChargeIn(tx, agentID, models.FactDraft{Tokens: &s.spent, FactLabels: models.FactLabels{Kind: factKind}})
	} else if gone {
		err = nil
	}
	if err != nil || s.renewal <= 0 {
		return nil, nil, err
	}
	r, err := m.ledger.ReserveIn(tx, agentID, s.renewal, reservedFor)
	switch errs.CodeOf(err) {
	case errs.BudgetExceeded, errs.AgentDeactivated, errs.NotFound:
		if err != nil && s.keep > 0 && s.keep < s.renewal {
			s.reservation, s.spent, s.renewal = "", 0, s.keep
			granted, _, kept := m.Settle(tx, agentID, s)
			return granted, err, kept
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

// dueAccount is an account of which the ledger is told, and what.
type dueAccount struct {
	*prepaidAccount
	statement
	granted *models.Reservation
}

// dueAccounts returns the accounts of which the ledger is to be told, in the order of their agents;
// whoever gets them releases them. all is also for those of which nothing is known but that
// they hold something.
func (m *prepaid) dueAccounts(ctx context.Context, all bool) []*dueAccount {
	out := m.changedAccounts(all)
	slices.SortFunc(out, func(a, b *dueAccount) int { return cmp.Compare(a.agentID, b.agentID) })
	for _, d := range out {
		if d.renewal > 0 {
			d.renewal = max(m.affordable(ctx, d.agentID, d.statement), d.minimum)
		}
	}
	return out
}

// changedAccounts returns the accounts whose statement says something, and forgets those that hold
// nothing. Nobody waits for a database here.
func (m *prepaid) changedAccounts(all bool) (out []*dueAccount) {
	now, idle := m.clock(), idleAfter
	if all {
		idle = -1 << 62 // everything is idle
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, a := range m.accounts {
		select {
		case a.ledgerAccess <- struct{}{}:
		default:
			continue // who asks tells the ledger
		}
		s, ok := a.dueStatement(now, idle)
		switch {
		case ok:
			out = append(out, &dueAccount{prepaidAccount: a, statement: s})
			continue
		case a.isIdle(now, idle):
			delete(m.accounts, id)
		}
		<-a.ledgerAccess
	}
	return out
}

// settleAll tells the ledger of accounts in one transaction.
func (m *prepaid) settleAll(tx *store.Tx, list []*dueAccount) (err error) {
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i] = d.agentID
	}
	if err := m.ledger.LockIn(tx, ids); err != nil {
		return err
	}
	for _, d := range list {
		var refused error
		if d.granted, refused, err = m.Settle(tx, d.agentID, d.statement); err != nil {
			return err
		}
		if refused != nil && d.renewal > 0 { // nobody has been refused anything
			return &overReserved{d}
		}
	}
	return nil
}

// overReserved is an account for which too much was asked in advance.
type overReserved struct{ *dueAccount }

func (e *overReserved) Error() string { return "too much was to be reserved for " + e.agentID }

// finishStatements ends what due began; told is whether the ledger has been told.
func finishStatements(list []*dueAccount, told bool) {
	for _, d := range list {
		if told {
			d.apply(d.statement, d.granted)
		} else {
			d.markUncertain(d.statement)
		}
		<-d.ledgerAccess
	}
}
