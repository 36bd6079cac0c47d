package usage

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"comet/models"
	"comet/store"
)

// operation is one wish of one caller. It is decided on the books of a transaction,
// which may run several times, so decide sets every result anew.
type operation interface {
	// agent is whose account it is about.
	agent() string
	// reservation names the reservation it ends, "" for none.
	reservation() string
	// requestIDs are the names of the facts it records.
	requestIDs() []string
	// decide judges the wish and enters its effects into the books, or neither.
	decide(b *books)
	// failed is why it was refused, nil when it was not.
	failed() error
}

// books is what one transaction of the ledger knows and will write. Everything in
// it is locked: nobody else decides on these accounts meanwhile.
type books struct {
	tx           *store.Tx
	now          time.Time
	spenders     map[string]models.Spender
	accounts     map[string]*account
	reservations map[store.ReservationKey]models.Reservation
	recorded     map[store.FactKey]models.Fact

	facts    []models.Fact
	windows  map[store.Window]int64
	ended    map[store.ReservationKey]models.Reservation // granted or changed
	outcomes []models.OutcomeRow
	alerts   []alert
}

// noAccounts ends a transaction that met agents without an account. Creating one
// there would lock rows out of order.
type noAccounts struct{ of []models.Spender }

func (e *noAccounts) Error() string { return "agents have no account yet" }

// errOverdue ends a transaction that met more expired reservations than it frees.
var errOverdue = errors.New("expired reservations are to be freed first")

// maxOverdue is how many expired reservations one transaction frees.
const maxOverdue = 256

// openBooks locks and reads what the operations are about. Reservations that have
// expired are freed first, so that no decision is made with tokens nobody holds; it
// returns errOverdue where there are too many of them, and noAccounts.
func openBooks(tx *store.Tx, ops []operation) (*books, error) {
	b := &books{tx: tx, now: tx.Now(), windows: map[store.Window]int64{}, ended: map[store.ReservationKey]models.Reservation{}}
	if err := tx.ShareChains(); err != nil {
		return nil, err
	}
	named := reservationKeys(ops)
	before, err := tx.Reservations(named)
	if err != nil {
		return nil, err
	}
	overdue, err := tx.OverdueReservations(b.now, maxOverdue)
	if err != nil {
		return nil, err
	}
	if len(overdue) == maxOverdue && len(ops) > 0 {
		return nil, errOverdue
	}
	for _, r := range overdue {
		before[store.ReservationKey{AgentID: r.AgentID, ID: r.ID}] = r
	}
	if err := b.lock(ops, before); err != nil {
		return nil, err
	}
	// What was read before the locks may have changed since.
	if b.reservations, err = tx.Reservations(slices.Collect(maps.Keys(before))); err != nil {
		return nil, err
	}
	if b.recorded, err = tx.RecordedFacts(factKeys(ops)); err != nil {
		return nil, err
	}
	for _, r := range overdue {
		b.expire(store.ReservationKey{AgentID: r.AgentID, ID: r.ID})
	}
	return b, b.complete()
}

func reservationKeys(ops []operation) []store.ReservationKey {
	var keys []store.ReservationKey
	for _, op := range ops {
		if id := op.reservation(); id != "" {
			keys = append(keys, store.ReservationKey{AgentID: op.agent(), ID: id})
		}
	}
	return keys
}

func factKeys(ops []operation) []store.FactKey {
	var keys []store.FactKey
	for _, op := range ops {
		for _, id := range op.requestIDs() {
			keys = append(keys, store.FactKey{AgentID: op.agent(), RequestID: id})
		}
	}
	return keys
}

// lock locks the accounts of the agents and of the ancestors whose budget counts a
// subtree. It returns noAccounts where some have none.
func (b *books) lock(ops []operation, reservations map[store.ReservationKey]models.Reservation) error {
	wanted, err := b.involved(ops, reservations)
	if err != nil {
		return err
	}
	locked, err := b.tx.LockAccounts(wanted)
	if err != nil {
		return err
	}
	b.accounts = make(map[string]*account, len(locked))
	var missing []models.Spender
	for _, id := range wanted {
		a, found := locked[id]
		if !found {
			missing = append(missing, b.spenders[id])
		}
		b.accounts[id] = &account{Account: a, spender: b.spenders[id]}
	}
	if len(missing) > 0 {
		return &noAccounts{missing}
	}
	return nil
}

// involved reads the chains of the agents and of the reservations and returns whose
// accounts a decision rests on.
func (b *books) involved(ops []operation, reservations map[store.ReservationKey]models.Reservation) ([]string, error) {
	ids, wanted := map[string]bool{}, map[string]bool{}
	for _, op := range ops {
		ids[op.agent()], wanted[op.agent()] = true, true
	}
	for key, r := range reservations {
		wanted[key.AgentID] = true
		for link := range strings.SplitSeq(r.Path, "/") {
			ids[link] = true
		}
	}
	var err error
	if b.spenders, err = b.tx.Spenders(slices.Collect(maps.Keys(ids))); err != nil {
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

// complete brings the accounts up to date with what is not kept in them: the day,
// additional budgets that ended, a roll-up that begins to count.
func (b *books) complete() error {
	today := dayOf(b.now)
	for _, a := range b.accounts {
		if a.Day < today || a.Day > today+models.MaxDayAhead { // a new day, or one that a wrong clock has begun
			if err := b.enter(a, today); err != nil {
				return err
			}
		}
		if a.extraEnded(b.now) {
			tokens, until, err := b.tx.ActiveAdditions(a.AgentID, b.now)
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

// enter brings an account to a day, with the sums of that day's facts; there are some
// already where a clock was wrong. What is held stays held.
func (b *books) enter(a *account, day int64) (err error) {
	a.Day, a.changed = day, true
	a.WarnedDay, a.ExceededDay = min(a.WarnedDay, day-1), min(a.ExceededDay, day-1)
	if a.Used, a.Forgiven, err = b.tx.OwnUsed(a.AgentID, day); err != nil || !a.Subtree {
		return err
	}
	return b.sumSubtree(a)
}

// countSubtree begins to count the roll-up of an account whose scope has become
// subtree. Its charges wait for the account's lock from now on.
func (b *books) countSubtree(a *account) error {
	// Where the clock went back, agents below may have used something on a later day.
	latest, err := b.tx.LatestDayBelow(a.AgentID, a.Day, dayOf(b.now)+models.MaxDayAhead)
	if err != nil {
		return err
	}
	if latest > a.Day {
		if err := b.enter(a, latest); err != nil {
			return err
		}
	}
	if a.SubtreeReserved, err = b.tx.HeldBelow(a.AgentID); err != nil {
		return err
	}
	for key, r := range b.ended { // expired above and not written yet
		if r.State == models.ReservationExpired && store.OnPath(r.Path, a.AgentID) {
			a.SubtreeReserved -= b.reservations[key].Tokens
		}
	}
	a.Subtree, a.changed = true, true
	return b.sumSubtree(a)
}

// sumSubtree computes the roll-up of the account's day.
func (b *books) sumSubtree(a *account) (err error) {
	if a.SubtreeUsed, err = b.tx.SubtreeUsed(a.spender, a.Day); err != nil {
		return err
	}
	a.SubtreeForgiven, err = b.tx.SubtreeForgiven(a.AgentID, a.Day)
	return err
}

// path returns the chain of ancestors that counts what an agent uses now.
func (b *books) path(agentID string) string { return store.Path(store.Chain(b.spenders, agentID)) }

// counters returns the accounts of a path whose budget counts their subtree, the
// nearest to the agent first.
func (b *books) counters(path string) []*account {
	var out []*account
	links := strings.Split(path, "/")
	for _, link := range slices.Backward(links) {
		if a := b.accounts[link]; a != nil && a.countsSubtree() {
			out = append(out, a)
		}
	}
	return out
}

// enterDay brings an account and those that count on the path to the same day, the
// latest of any of them, and returns it.
func (b *books) enterDay(a *account, counters []*account) (int64, error) {
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
