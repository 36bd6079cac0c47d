package tools

import (
	"sync"
	"time"

	"comet/models"
)

// What is held for an agent that calls tools, in tokens.
const (
	leastHeld = 1000
	mostHeld  = 200_000
	// scarceFor is how long nothing is reserved in advance after that was refused.
	scarceFor = 10 * time.Second
)

// account is what an agent that calls tools may still spend without asking the ledger. The
// ledger has reserved size; of that, spent has been used since, open is what calls that have
// ended are estimated to have used until somebody counts, and held is neither used nor promised
// to a call that is under way. The ledger is never told of an estimate: one that was too high
// could not be taken back. So a call costs no transaction: what was used is settled with what others used (trail.go), and as much reserved again.
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
	// doubtful is what the ledger was last told was spent of the reservation, where it did not
	// answer: it may have heard.
	doubtful *int64
	running  int   // calls under way
	want     int64 // how much to reserve
	used     time.Time
	// expires is when the ledger gives the reservation up.
	expires time.Time
	// scarce is until when nothing is reserved in advance: what was asked for was refused.
	scarce time.Time
}

func newAccount(agentID string) *account {
	return &account{agentID: agentID, asking: make(chan struct{}, 1), want: leastHeld}
}

// take promises a call so many tokens, and reports whether there are that many.
func (a *account) take(tokens int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held < tokens || !now.Before(a.expires) { // what has expired is somebody else's
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
	least       int64 // of it, what is bound and what the call that asks needs
	// keep is what stays reserved although the call that asks is refused: what is bound.
	keep int64
	// estimated is whether some of what was used was not counted yet, and so is not in spent:
	// whoever counts it meanwhile changes the account and not the statement.
	estimated bool
}

// state returns what to tell the ledger, and whether there is anything. An account that
// nobody has used for a while gives back what it holds.
func (a *account) state(now time.Time, idle time.Duration) (s statement, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = statement{reservation: a.reservation, size: a.size, spent: a.telling(), renew: a.want}
	s.least = a.bound()
	if now.Before(a.scarce) {
		s.renew = s.least
	}
	if a.running == 0 && a.open == 0 && now.Sub(a.used) >= idle {
		s.renew = 0
		return s, s.reservation != "" || s.spent > 0
	}
	late := a.running > 0 && a.expires.Sub(now) < reservedFor/2
	return s, s.spent > 0 || a.doubtful != nil || late
}

// telling is what the ledger is to be told was spent. A reservation is settled once: what may
// have been heard is told again as it was, and the rest the next time. The caller holds mu.
func (a *account) telling() int64 {
	if a.doubtful != nil {
		return *a.doubtful
	}
	return a.spent
}

// bound is how much of the reservation is neither spent nor held: what calls under way and
// calls that are not counted yet will turn out to have cost. The caller holds mu.
func (a *account) bound() int64 { return max(min(a.size-a.spent-a.held, a.size-a.spent), 0) }

// unanswered takes note that the ledger did not answer a statement.
func (a *account) unanswered(s statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.reservation != "" {
		a.doubtful = &s.spent
	}
}

// dry is state for an account that cannot promise what a call needs: it asks for more.
func (a *account) dry(need int64) statement {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reservation != "" {
		a.want = min(2*a.want, mostHeld)
	}
	// What is under way stays promised.
	least := need + max(a.size-a.spent-a.held, 0)
	return statement{reservation: a.reservation, size: a.size, spent: a.telling(), renew: max(a.want, least), least: least, keep: a.bound(), estimated: a.open > 0}
}

// lacks notes that there is too little to reserve any in advance, for a while.
func (a *account) lacks(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scarce, a.want = now.Add(scarceFor), leastHeld
}

// lost forgets what cannot be told, and returns how much that is.
func (a *account) lost(s statement) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held += -(s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation, a.doubtful = 0, "", nil
	return s.spent
}

// settled takes over what the ledger did with a statement: it knows what was spent, and
// holds r for the account, nothing where r is nil.
func (a *account) settled(s statement, r *models.Reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, id := int64(0), ""
	if r != nil {
		size, id, a.expires = r.Tokens, r.ID, r.ExpiresAt
	}
	a.held += size - (s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation, a.doubtful = size, id, nil
}

// idle reports whether the account can be forgotten.
func (a *account) idle(now time.Time, after time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running == 0 && a.open == 0 && a.spent == 0 && a.reservation == "" && now.Sub(a.used) >= after
}
