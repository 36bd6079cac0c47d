package tools

import (
	"sync"
	"time"

	"comet/models"
)

// What is held for an agent that calls tools, in tokens.
const (
	minRefill = 1000
	maxRefill = 200_000
	// scarceFor is how long nothing is reserved in advance after that was refused.
	scarceFor = 10 * time.Second
)

// prepaidAccount is what an agent that calls tools may still spend without asking the ledger. The
// ledger has reserved size; of that, spent has been used since, open is what calls that have
// ended are estimated to have used until somebody counts, and held is neither used nor promised
// to a call that is under way. The ledger is never told of an estimate: one that was too high
// could not be taken back. So a call costs no transaction: what was used is settled with what others used (trail.go), and as much reserved again.
type prepaidAccount struct {
	agentID string

	// ledgerAccess has one from who asks the ledger.
	ledgerAccess chan struct{}

	mu          sync.Mutex
	reservation string // "" for none
	size        int64
	available   int64 // below zero where calls cost more than was promised
	estimated   int64
	spent       int64
	// uncertain is what the ledger was last told was spent of the reservation, where it did not
	// answer: it may have heard.
	uncertain  *int64
	running    int   // calls under way
	refillSize int64 // how much to reserve
	usedAt     time.Time
	// expiresAt is when the ledger gives the reservation up.
	expiresAt time.Time
	// scarceUntil is until when nothing is reserved in advance: what was asked for was refused.
	scarceUntil time.Time
}

func newPrepaidAccount(agentID string) *prepaidAccount {
	return &prepaidAccount{agentID: agentID, ledgerAccess: make(chan struct{}, 1), refillSize: minRefill}
}

// reserve promises a call so many tokens, and reports whether there are that many.
func (a *prepaidAccount) reserve(tokens int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.available < tokens || !now.Before(a.expiresAt) { // what has expired is somebody else's
		return false
	}
	a.available, a.running, a.usedAt = a.available-tokens, a.running+1, now
	return true
}

// finishCall ends a call that was promised so many tokens and is estimated to have used that many;
// count says later how many they were.
func (a *prepaidAccount) finishCall(promised, estimate int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += promised - estimate
	a.estimated += estimate
	a.running, a.usedAt = a.running-1, now
}

// recordUse says what a call used of which give was told an estimate.
func (a *prepaidAccount) recordUse(estimate, used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += estimate - used
	a.estimated -= estimate
	a.spent += used
}

// statement is what the ledger is to be told of an account.
type statement struct {
	reservation string
	size, spent int64
	renewal     int64 // how much to reserve; 0 for nothing
	minimum     int64 // of it, what is bound and what the call that asks needs
	// keep is what stays reserved although the call that asks is refused: what is bound.
	keep int64
	// estimated is whether some of what was used was not counted yet, and so is not in spent:
	// whoever counts it meanwhile changes the account and not the statement.
	estimated bool
}

// dueStatement returns what to tell the ledger, and whether there is anything. An account that
// nobody has used for a while gives back what it holds.
func (a *prepaidAccount) dueStatement(now time.Time, idle time.Duration) (s statement, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s = statement{reservation: a.reservation, size: a.size, spent: a.reportedUse(), renewal: a.refillSize}
	s.minimum = a.committed()
	if now.Before(a.scarceUntil) {
		s.renewal = s.minimum
	}
	if a.running == 0 && a.estimated == 0 && now.Sub(a.usedAt) >= idle {
		s.renewal = 0
		return s, s.reservation != "" || s.spent > 0
	}
	late := a.running > 0 && a.expiresAt.Sub(now) < reservedFor/2
	return s, s.spent > 0 || a.uncertain != nil || late
}

// reportedUse is what the ledger is to be told was spent. A reservation is settled once: what may
// have been heard is told again as it was, and the rest the next time. The caller holds mu.
func (a *prepaidAccount) reportedUse() int64 {
	if a.uncertain != nil {
		return *a.uncertain
	}
	return a.spent
}

// committed is how much of the reservation is neither spent nor held: what calls under way and
// calls that are not counted yet will turn out to have cost. The caller holds mu.
func (a *prepaidAccount) committed() int64 {
	return max(min(a.size-a.spent-a.available, a.size-a.spent), 0)
}

// markUncertain takes note that the ledger did not answer a statement.
func (a *prepaidAccount) markUncertain(s statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.reservation != "" {
		a.uncertain = &s.spent
	}
}

// shortfall is state for an account that cannot promise what a call needs: it asks for more.
func (a *prepaidAccount) shortfall(need int64) statement {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reservation != "" {
		a.refillSize = min(2*a.refillSize, maxRefill)
	}
	// What is under way stays promised.
	least := need + max(a.size-a.spent-a.available, 0)
	return statement{reservation: a.reservation, size: a.size, spent: a.reportedUse(), renewal: max(a.refillSize, least), minimum: least, keep: a.committed(), estimated: a.estimated > 0}
}

// markScarce notes that there is too little to reserve any in advance, for a while.
func (a *prepaidAccount) markScarce(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scarceUntil, a.refillSize = now.Add(scarceFor), minRefill
}

// writeOff forgets what cannot be told, and returns how much that is.
func (a *prepaidAccount) writeOff(s statement) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += -(s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation, a.uncertain = 0, "", nil
	return s.spent
}

// apply takes over what the ledger did with a statement: it knows what was spent, and
// holds r for the account, nothing where r is nil.
func (a *prepaidAccount) apply(s statement, r *models.Reservation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, id := int64(0), ""
	if r != nil {
		size, id, a.expiresAt = r.Tokens, r.ID, r.ExpiresAt
	}
	a.available += size - (s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation, a.uncertain = size, id, nil
}

// isIdle reports whether the account can be forgotten.
func (a *prepaidAccount) isIdle(now time.Time, after time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running == 0 && a.estimated == 0 && a.spent == 0 && a.reservation == "" && now.Sub(a.usedAt) >= after
}
