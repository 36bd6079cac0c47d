package gateway

import (
	"sync"
	"time"

	"comet/models"
)

// What is held for an agent that calls tools, in tokens.
const (
	leastHeld = 1000
	mostHeld  = 200_000
)

// account is what an agent that calls tools may still spend without asking the ledger. The
// ledger has reserved size; of that, spent has been used since, open is what calls that have
// ended are estimated to have used until somebody counts, and held is neither used nor promised
// to a call that is under way. The ledger is never told of an estimate: one that was too high
// could not be taken back. So a call costs no transaction: what was used is
// settled with what others used (trail.go), and as much reserved again.
type account struct {
	agentID string

	// asking has one from who asks the ledger.
	asking chan struct{}

	mu          sync.Mutex
	reservation string // "" for none
	size        int64
	held        int64 // below zero where calls cost more than was promised
	open        int64
	spent       int64
	running     int   // calls under way
	want        int64 // how much to reserve
	used        time.Time
}

func newAccount(agentID string) *account {
	return &account{agentID: agentID, asking: make(chan struct{}, 1), want: leastHeld}
}

// take promises a call so many tokens, and reports whether there are that many.
func (a *account) take(tokens int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held < tokens {
		return false
	}
	a.held, a.running, a.used = a.held-tokens, a.running+1, now
	return true
}

// give ends a call that was promised so many tokens and is estimated to have used that many;
// count says later how many they were.
func (a *account) give(promised, estimate int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += promised - estimate
	a.open += estimate
	a.running, a.used = a.running-1, now
}

// count says what a call used of which give was told an estimate.
func (a *account) count(estimate, used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += estimate - used
	a.open -= estimate
	a.spent += used
}

// statement is what the ledger is to be told of an account.
type statement struct {
	reservation string
	size, spent int64
	renew       int64 // how much to reserve; 0 for nothing
	// keep is how much of what is reserved stays so although no more is granted: what calls
	// under way and calls that are not counted yet will turn out to have cost.
	keep int64
}

// state returns what to tell the ledger, and whether there is anything. An account that
// nobody has used for a while gives back what it holds.
func (a *account) state(now time.Time, idle time.Duration) (s statement, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = statement{reservation: a.reservation, size: a.size, spent: a.spent, renew: a.want, keep: a.bound()}
	if a.running == 0 && a.open == 0 && now.Sub(a.used) >= idle {
		s.renew = 0
		return s, s.reservation != "" || s.spent > 0
	}
	return s, s.spent > 0
}

// bound is how much of the reservation is neither spent nor held. The caller holds the lock.
func (a *account) bound() int64 {
	return max(min(a.size-a.spent-a.held, a.size-a.spent), 0)
}

// dry is state for an account that cannot promise what a call needs: it asks for more.
func (a *account) dry(need int64) statement {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reservation != "" {
		a.want = min(2*a.want, mostHeld)
	}
	// What is under way stays promised, and what is not counted yet.
	promised := a.size - a.spent - a.held
	return statement{reservation: a.reservation, size: a.size, spent: a.spent, renew: max(a.want, need+promised), keep: a.bound()}
}

// least is how much the ledger has to reserve for the account to promise need.
func (a *account) least(s statement, need int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return need + max(s.size-s.spent-a.held, 0)
}

// settled takes over what the ledger did with a statement: it knows what was spent, and
// holds r for the account, nothing where r is nil.
func (a *account) settled(s statement, r *models.Reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, id := int64(0), ""
	if r != nil {
		size, id = r.Tokens, r.ID
	}
	a.held += size - (s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation = size, id
}

// idle reports whether the account can be forgotten.
func (a *account) idle(now time.Time, after time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running == 0 && a.open == 0 && a.spent == 0 && a.reservation == "" && now.Sub(a.used) >= after
}
