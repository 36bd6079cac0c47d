package usage

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"comet/internal/events"
	"comet/models"
	"comet/store"
)

// operation is one request of one caller. It is decided on the batch of a transaction, which may
// run several times, so decide sets every result again.
type operation interface {
	// common returns the request that each operation contains.
	common() *request
	// decide judges the request and adds either all of its effects to the batch or none.
	decide(b *batch)
}

// request is the common part of operations.
type request struct {
	agentID     string   // the agent whose account the request concerns
	reservation string   // the id of the reservation that it ends, "" for none
	requestIDs  []string // the request ids of the facts it records
	err         error    // why the request was refused
}

func (r *request) common() *request { return r }

// batch holds what one ledger transaction has read and will write. All of its accounts are
// locked, so no other transaction decides on them.
type batch struct {
	tx           *store.Tx
	now          time.Time
	spenders     map[string]store.Spender
	accounts     map[string]*account
	reservations map[store.LedgerKey]models.Reservation
	recorded     map[store.LedgerKey]models.Fact

	facts    []models.Fact
	ended    map[store.LedgerKey]models.Reservation // granted or changed
	outcomes []store.OutcomeRow
	alerts   []alert
	refused  int // reservations that a budget does not cover
}

// errAccountsCreated ends a transaction if another one has just created an account that it needs.
// Locking that account now could cause a deadlock, because it would be out of order.
var errAccountsCreated = errors.New("another transaction created the accounts")

// errOverdue ends a transaction that found more expired reservations than it releases at once.
var errOverdue = errors.New("expired reservations are to be freed first")

// maxOverdue is how many expired reservations one transaction releases.
const maxOverdue = 256

// openBatch locks and reads what the operations need. It releases expired reservations first, so
// that no decision counts them. It returns errOverdue for too many of them, and errAccountsCreated.
func openBatch(tx *store.Tx, ops []operation) (*batch, error) {
	b := &batch{tx: tx, now: tx.Now(), ended: map[store.LedgerKey]models.Reservation{}}
	if err := tx.Agents().ShareChains(); err != nil {
		return nil, err
	}
	named := reservationKeys(ops)
	before, err := tx.Ledger().NamedReservations(named)
	if err != nil {
		return nil, err
	}
	overdue, err := tx.Ledger().OverdueReservations(b.now, maxOverdue)
	if err != nil {
		return nil, err
	}
	if len(overdue) == maxOverdue && len(ops) > 0 {
		return nil, errOverdue
	}
	for _, r := range overdue {
		before[store.LedgerKey{AgentID: r.AgentID, ID: r.ID}] = r
	}
	if err := b.lock(ops, before); err != nil {
		return nil, err
	}
	// Reservations read before the locks may have changed.
	if b.reservations, err = tx.Ledger().NamedReservations(slices.Collect(maps.Keys(before))); err != nil {
		return nil, err
	}
	if b.recorded, err = tx.Ledger().RecordedFacts(factKeys(ops)); err != nil {
		return nil, err
	}
	for _, r := range overdue {
		b.expire(store.LedgerKey{AgentID: r.AgentID, ID: r.ID})
	}
	return b, b.complete()
}

func reservationKeys(ops []operation) []store.LedgerKey {
	var keys []store.LedgerKey
	for _, op := range ops {
		if r := op.common(); r.reservation != "" {
			keys = append(keys, store.LedgerKey{AgentID: r.agentID, ID: r.reservation})
		}
	}
	return keys
}

func factKeys(ops []operation) []store.LedgerKey {
	var keys []store.LedgerKey
	for _, op := range ops {
		for _, id := range op.common().requestIDs {
			keys = append(keys, store.LedgerKey{AgentID: op.common().agentID, ID: id})
		}
	}
	return keys
}

// lock locks the accounts of the agents and of the ancestors whose budget limits their subtree.
// It creates those that do not exist: their agents spend for the first time.
func (b *batch) lock(ops []operation, reservations map[store.LedgerKey]models.Reservation) error {
	wanted, err := b.involved(ops, reservations)
	if err != nil {
		return err
	}
	locked, err := b.tx.Ledger().LockAccounts(wanted)
	if err != nil {
		return err
	}
	var missing []store.Spender
	for _, id := range wanted {
		if _, found := locked[id]; !found {
			missing = append(missing, b.spenders[id])
		}
	}
	created, err := b.tx.Ledger().CreateAccounts(missing)
	if err != nil {
		return err
	}
	if len(created) < len(missing) {
		return errAccountsCreated
	}
	maps.Copy(locked, created)
	b.accounts = make(map[string]*account, len(locked))
	for id, a := range locked {
		b.accounts[id] = &account{Account: a, spender: b.spenders[id]}
	}
	return nil
}

// involved reads the chains of agents and reservations and returns the agents whose accounts count.
func (b *batch) involved(ops []operation, reservations map[store.LedgerKey]models.Reservation) ([]string, error) {
	ids, wanted := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		ids[op.common().agentID], wanted[op.common().agentID] = true, true
	}
	for key, r := range reservations {
		wanted[key.AgentID] = true
		for link := range strings.SplitSeq(r.Path, "/") {
			ids[link] = true
		}
	}
	var err error
	if b.spenders, err = b.tx.Ledger().Spenders(slices.Collect(maps.Keys(ids))); err != nil {
		return nil, err
	}
	for id, s := range b.spenders {
		if s.BudgetScope == models.ScopeSubtree {
			wanted[id] = true
		}
	}
	maps.DeleteFunc(wanted, func(id string, _ bool) bool {
		_, known := b.spenders[id]
		return !known
	})
	return slices.Collect(maps.Keys(wanted)), nil
}

// complete brings the accounts up to date with what is not stored in them: the day, expired
// additional budgets, a subtree that begins to count.
func (b *batch) complete() error {
	today := dayOf(b.now)
	for _, a := range b.accounts {
		if a.Day < today || a.Day > today+store.MaxDayAhead { // a new day, or a day written by a wrong clock
			if err := b.enter(a, today); err != nil {
				return err
			}
		}
		if a.extraEnded(b.now) {
			tokens, until, err := b.tx.Ledger().ActiveAdditions(a.AgentID, b.now)
			if err != nil {
				return err
			}
			a.Extra, a.ExtraUntil, a.changed = tokens, until, true
		}
		if a.countsSubtree() && !a.Subtree {
			if err := b.countSubtree(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// enter moves an account to a day, with the sums of that day's facts; there are some if a clock
// was wrong. Reserved tokens stay reserved.
func (b *batch) enter(a *account, day int64) (err error) {
	a.Day, a.changed = day, true
	a.WarnedDay, a.ExceededDay = min(a.WarnedDay, day-1), min(a.ExceededDay, day-1)
	if a.Used, a.Forgiven, err = b.tx.Ledger().OwnUsed(a.AgentID, day); err != nil || !a.Subtree {
		return err
	}
	return b.sumSubtree(a)
}

// countSubtree begins to sum the subtree of an account whose scope has become subtree. From now
// on charges below it wait for the account's lock.
func (b *batch) countSubtree(a *account) error {
	// If the clock went back, agents below may have used tokens on a later day.
	latest, err := b.tx.Ledger().LatestDayBelow(a.AgentID, a.Day, dayOf(b.now)+store.MaxDayAhead)
	if err != nil {
		return err
	}
	if latest > a.Day {
		if err := b.enter(a, latest); err != nil {
			return err
		}
	}
	if a.SubtreeReserved, err = b.tx.Ledger().HeldBelow(a.AgentID); err != nil {
		return err
	}
	for key, r := range b.ended { // expired above and not written yet
		if r.State == models.ReservationExpired && slices.Contains(strings.Split(r.Path, "/"), a.AgentID) {
			a.SubtreeReserved -= b.reservations[key].Tokens
		}
	}
	a.Subtree, a.changed = true, true
	return b.sumSubtree(a)
}

// sumSubtree computes the subtree's usage of the account's day.
func (b *batch) sumSubtree(a *account) (err error) {
	if a.SubtreeUsed, err = b.tx.Ledger().SubtreeUsed(a.spender, a.Day); err != nil {
		return err
	}
	a.SubtreeForgiven, err = b.tx.Ledger().SubtreeForgiven(a.AgentID, a.Day)
	return err
}

// path returns the chain of ancestors on which an agent's usage counts now.
func (b *batch) path(agentID string) string { return store.Path(b.spenders, agentID) }

// counters returns the accounts of a path whose budget limits their subtree, the nearest first.
func (b *batch) counters(path string) []*account {
	var out []*account
	links := strings.Split(path, "/")
	for _, link := range slices.Backward(links) {
		if a := b.accounts[link]; a != nil && a.countsSubtree() {
			out = append(out, a)
		}
	}
	return out
}

// enterDay moves an account and the path's counters to their latest day, and returns that day.
func (b *batch) enterDay(a *account, counters []*account) (int64, error) {
	today := a.Day
	for _, c := range counters {
		today = max(today, c.Day)
	}
	for _, one := range append(counters, a) {
		if one.Day < today {
			if err := b.enter(one, today); err != nil {
				return today, err
			}
		}
	}
	return today, nil
}

// warnPercent is the share of a budget at which its warning is sent (CHE·NU §9).
const warnPercent = 80

type alert struct {
	kind models.EventType
	data BudgetAlert
}

// warn adds the events of an account that takes part in a decision: agent.budget_warning at 80%
// of the budget, agent.budget_exceeded above 100%, each once per day. requested is the
// reservation that is about to be refused, 0 for a charge.
func (b *batch) warn(a *account, requested int64) {
	budget, limited := a.budget()
	if !limited {
		return
	}
	for _, u := range a.uses() {
		if percent(u.used, budget) >= warnPercent && a.WarnedDay < a.Day {
			a.WarnedDay, a.changed = a.Day, true
			b.alert(events.BudgetWarning, a, u, 0)
		}
		if u.used > budget {
			b.exceed(a, u, requested)
		}
	}
}

// exceed adds agent.budget_exceeded, once per day. requested is the refused reservation, 0 if a
// fact exceeded the budget.
func (b *batch) exceed(a *account, u use, requested int64) {
	if a.ExceededDay < a.Day {
		a.ExceededDay, a.changed = a.Day, true
		b.alert(events.BudgetExceeded, a, u, requested)
	}
}

func (b *batch) alert(kind models.EventType, a *account, u use, requested int64) {
	budget, _ := a.budget()
	counted := u.used
	if kind == events.BudgetExceeded {
		counted += u.reserved
	}
	b.alerts = append(b.alerts, alert{kind, BudgetAlert{
		AgentID: a.AgentID, Day: startOf(a.Day).Format(time.DateOnly), Budget: budget, Scope: u.scope,
		Used: u.used, Reserved: u.reserved, Remaining: remaining(budget, u), Percent: percent(counted, budget),
		Requested: requested, ResetAt: startOf(a.Day + 1),
	}})
}

// percent rounds down; a budget is at least 1,000 tokens.
func percent(used, budget int64) int64 {
	if budget <= 0 {
		return 0
	}
	return used/budget*100 + used%budget*100/budget
}
