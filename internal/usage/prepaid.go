package usage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// prepaidTTL is how long the ledger reserves tokens for a prepaid account without a renewal, and
	// so how long tokens of a killed process stay reserved.
	prepaidTTL = 2 * time.Minute
	// releaseAfter is how long an account may be unused before it releases its reservation.
	releaseAfter = 5 * time.Second
	// holdTimeout is the longest wait of Hold for the ledger.
	holdTimeout = 10 * time.Second
	// minAdvance and maxAdvance limit the tokens that are reserved in advance. The amount doubles
	// whenever an account has too few.
	minAdvance, maxAdvance = 1000, 200_000
)

// PrepaidOptions configures NewPrepaid; nil is the zero value.
type PrepaidOptions struct {
	// Kind is the kind of the facts that are recorded.
	Kind string
	// Count charges the holds that have only an estimate. It is called before an agent is refused
	// because of estimates; nil where Estimate is not used.
	Count func(context.Context) error
	// Logger receives charges that the ledger rejects; default discards.
	Logger *slog.Logger
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
}

// Prepaid charges work that is too short for transactions of its own. It reserves tokens of an
// agent in advance; each piece of work holds some in memory, and Settle reports what was used.
// However pieces of work interleave, also on several replicas, an agent uses no more than was
// reserved, except what work in progress uses beyond its hold. It is safe for concurrent use.
type Prepaid struct {
	ledger *Ledger
	opts   PrepaidOptions

	mu       sync.Mutex // guards accounts and everything in them
	accounts map[string]*prepaidAccount
}

// prepaidAccount is what one agent may use without a request to the ledger.
type prepaidAccount struct {
	agentID string
	// reservation is the current reservation of the ledger, the zero value for none. Of its tokens,
	// spent were used and held belong to open holds.
	reservation models.Reservation
	spent, held int64
	// open is the number of holds, and estimated how many of them have only an estimate of the use.
	open, estimated int
	// unconfirmed is the spent amount of a statement to which the ledger did not respond; it may have
	// settled the reservation. The next statement repeats it, because a reservation is settled once.
	unconfirmed *int64
	advance     int64 // tokens to reserve in advance
	usedAt      time.Time
	// sending is held while the ledger decides a statement of the account.
	sending *semaphore.Weighted
}

// Hold is the part of a prepaid account that belongs to one piece of work. Charge ends it.
type Hold struct {
	prepaid   *Prepaid
	account   *prepaidAccount
	tokens    int64
	estimated bool
}

// NewPrepaid returns prepaid accounts of the ledger's agents. Call Settle periodically, several
// times in the two minutes that a reservation lasts, and Close at the end.
func NewPrepaid(l *Ledger, opts *PrepaidOptions) *Prepaid {
	p := &Prepaid{ledger: l, opts: *cmp.Or(opts, &PrepaidOptions{}), accounts: map[string]*prepaidAccount{}}
	p.opts.Logger = cmp.Or(p.opts.Logger, slog.New(slog.DiscardHandler))
	if p.opts.Clock == nil {
		p.opts.Clock = time.Now
	}
	return p
}

// Hold holds tokens of an agent. It asks the ledger only if the tokens that are reserved for the
// agent do not suffice. The error is errs.BudgetExceeded, errs.AgentDeactivated, errs.NotFound, or
// errs.Unavailable where the ledger does not respond within ten seconds.
func (p *Prepaid) Hold(ctx context.Context, agentID string, tokens int64) (*Hold, error) {
	h, a := p.hold(agentID, tokens)
	if h != nil {
		return h, nil
	}
	waiting, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	h, err := p.refillAndHold(waiting, a, tokens, p.opts.Count == nil)
	if errors.Is(err, errUncounted) {
		if err = p.opts.Count(waiting); err == nil {
			h, err = p.refillAndHold(waiting, a, tokens, true)
		}
	}
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		err = errs.Wrap(errs.Unavailable, err, "the token ledger does not respond; nothing was done, try again")
	}
	return h, err
}

// hold returns a hold, nil where the account has too few tokens.
func (p *Prepaid) hold(agentID string, tokens int64) (*Hold, *prepaidAccount) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.accounts[agentID]
	if a == nil {
		a = &prepaidAccount{agentID: agentID, advance: minAdvance, sending: semaphore.NewWeighted(1)}
		p.accounts[agentID] = a
	}
	now := p.opts.Clock()
	// Another account may use the tokens of an expired reservation.
	if a.reservation.Tokens-a.spent-a.held < tokens || !now.Before(a.reservation.ExpiresAt) {
		return nil, a
	}
	a.held, a.open, a.usedAt = a.held+tokens, a.open+1, now
	return &Hold{prepaid: p, account: a, tokens: tokens}, a
}

// refillAndHold reserves more tokens and holds some. counted reports that no use is estimated.
func (p *Prepaid) refillAndHold(ctx context.Context, a *prepaidAccount, tokens int64, counted bool) (*Hold, error) {
	for {
		if err := a.sending.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		h, current := p.hold(a.agentID, tokens) // another call may have refilled the account
		if h != nil || current != a {           // or Settle has removed it
			a.sending.Release(1)
			if a = current; h == nil {
				continue
			}
			return h, nil
		}
		err := p.refill(ctx, a, tokens, counted)
		if err == nil {
			h, _ = p.hold(a.agentID, tokens)
		}
		a.sending.Release(1)
		if h != nil || err != nil {
			return h, err
		}
	}
}

// refill reserves at least need tokens more for an account. The caller holds a.sending.
func (p *Prepaid) refill(ctx context.Context, a *prepaidAccount, need int64, counted bool) error {
	p.mu.Lock()
	if a.reservation.ID != "" {
		a.advance = min(2*a.advance, maxAdvance)
	}
	op, err := a.statement(p.opts.Kind, need, a.advance)
	if err == nil {
		op.tentative = !counted && a.estimated > 0
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	err = p.ledger.commit(ctx, []operation{op})
	p.apply(a, op, err)
	return cmp.Or(err, op.err, op.refused)
}

// statement returns a statement with all use of the account. The caller holds the mutex.
func (a *prepaidAccount) statement(kind string, need, advance int64) (*prepay, error) {
	spent := a.spent
	if a.unconfirmed != nil {
		spent = *a.unconfirmed
	}
	s, err := newSettle(a.agentID, a.reservation.ID, Settlement{Tokens: &spent, FactLabels: models.FactLabels{Kind: kind}})
	if err != nil {
		return nil, err
	}
	r, err := newReserve(a.agentID, 0, prepaidTTL)
	r.earlier = a.held
	return &prepay{request: s.request, settle: *s, reserve: *r, need: need, held: a.held, advance: advance}, err
}

// apply changes an account by the outcome of its statement; failed is the error of the commit. A
// charge that the ledger rejects, for an unknown agent for example, is logged and dropped.
func (p *Prepaid) apply(a *prepaidAccount, op *prepay, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spent := op.settle.fact.Tokens
	if failed != nil {
		if a.reservation.ID != "" {
			a.unconfirmed = &spent
		}
		return
	}
	if op.err != nil && spent > 0 {
		p.opts.Logger.Error("used tokens were not charged", "agent", a.agentID, "tokens", spent, "error", op.err)
	}
	a.reservation, a.spent, a.unconfirmed = op.granted, a.spent-spent, nil
}

// Estimate replaces the tokens of the hold by an estimate of the use, which may be more.
func (h *Hold) Estimate(tokens int64) {
	h.prepaid.mu.Lock()
	defer h.prepaid.mu.Unlock()
	h.account.held += tokens - h.tokens
	h.account.usedAt = h.prepaid.opts.Clock()
	if h.tokens = tokens; !h.estimated {
		h.estimated = true
		h.account.estimated++
	}
}

// Charge ends the hold and charges what was used. Call it once.
func (h *Hold) Charge(tokens int64) {
	h.prepaid.mu.Lock()
	defer h.prepaid.mu.Unlock()
	h.account.held -= h.tokens
	h.account.spent += tokens
	h.account.open--
	if h.estimated {
		h.account.estimated--
	}
}

// Settle charges the tokens used since the last call and renews the reservations. with, unless it is
// nil, writes rows in the same transaction. After an error the next call charges the same tokens.
func (p *Prepaid) Settle(ctx context.Context, with func(*store.Tx) error) error {
	return p.settle(ctx, releaseAfter, with)
}

// Close is Settle, and also releases all reservations without holds.
func (p *Prepaid) Close(ctx context.Context, with func(*store.Tx) error) error {
	return p.settle(ctx, 0, with)
}

func (p *Prepaid) settle(ctx context.Context, idle time.Duration, with func(*store.Tx) error) error {
	due, ops, err := p.due(ctx, idle)
	if err == nil && (len(due) > 0 || with != nil) {
		err = p.ledger.Write(ctx, func(tx *store.Tx) error {
			if with != nil {
				if err := with(tx); err != nil {
					return err
				}
			}
			if len(ops) == 0 {
				return nil
			}
			return p.ledger.decide(tx, ops)
		})
	}
	for i, a := range due {
		p.apply(a, ops[i].(*prepay), err)
		a.sending.Release(1)
	}
	return err
}

// due returns the accounts with something to report, with their statements, and removes unused
// ones. It waits for statements in progress, so that it reports everything that was charged before.
// The caller releases sending of each account, also after an error.
func (p *Prepaid) due(ctx context.Context, idle time.Duration) (due []*prepaidAccount, ops []operation, err error) {
	p.mu.Lock()
	accounts := slices.Collect(maps.Values(p.accounts))
	p.mu.Unlock()
	slices.SortFunc(accounts, func(a, b *prepaidAccount) int { return strings.Compare(a.agentID, b.agentID) }) // the order of locks
	for _, a := range accounts {
		if err := a.sending.Acquire(ctx, 1); err != nil {
			return due, ops, err
		}
		op, err := p.dueStatement(a, idle)
		if op == nil {
			a.sending.Release(1)
		} else {
			due, ops = append(due, a), append(ops, op)
		}
		if err != nil {
			return due, ops, err
		}
	}
	return due, ops, nil
}

// dueStatement returns an account's statement, nil for none, and removes an unused account.
func (p *Prepaid) dueStatement(a *prepaidAccount, idle time.Duration) (*prepay, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, advance := p.opts.Clock(), a.advance
	unused := a.open == 0 && now.Sub(a.usedAt) >= idle
	if unused {
		advance = 0
	}
	late := a.open > 0 && a.reservation.ExpiresAt.Sub(now) < prepaidTTL/2
	switch {
	case a.spent > 0 || a.unconfirmed != nil || late || unused && a.reservation.ID != "":
		return a.statement(p.opts.Kind, 0, advance)
	case unused && p.accounts[a.agentID] == a:
		delete(p.accounts, a.agentID)
	}
	return nil, nil
}
