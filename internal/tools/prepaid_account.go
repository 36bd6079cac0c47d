package tools

import (
	"sync"
	"time"

	"comet/models"
)

// Sizes of reservations, in tokens.
const (
	minRefill = 1000
	maxRefill = 200_000
	// scarceFor is how long nothing is reserved in advance after a refusal.
	scarceFor = 10 * time.Second
)

// prepaidAccount is what an agent may spend on tool calls without a request to the ledger. The
// ledger has reserved size tokens: spent were used, estimated is the estimated use of finished
// calls whose tokens are not counted yet, and available is neither used nor reserved for a
// running call. Estimates are never sent to the ledger, because a charge cannot be taken back. So
// a call costs no transaction: its use is settled in batches (audit_log.go), and the reservation
// is renewed.
type prepaidAccount struct {
	agentID string

	// ledgerAccess holds one while a statement of the account is sent.
	ledgerAccess chan struct{}

	mu          sync.Mutex
	reservation string // "" for none
	size        int64
	available   int64 // below zero where calls cost more than was reserved
	estimated   int64
	spent       int64
	// uncertain is the spent amount of the last statement where the ledger did not respond and
	// may have settled it.
	uncertain  *int64
	running    int   // calls in progress
	refillSize int64 // tokens to reserve next
	usedAt     time.Time
	// expiresAt is when the reservation expires.
	expiresAt time.Time
	// scarceUntil is until when nothing is reserved in advance, after a refusal.
	scarceUntil time.Time
}

func newPrepaidAccount(agentID string) *prepaidAccount {
	return &prepaidAccount{agentID: agentID, ledgerAccess: make(chan struct{}, 1), refillSize: minRefill}
}

// reserve reserves tokens for a call and reports whether the account has enough.
func (a *prepaidAccount) reserve(tokens int64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.available < tokens || !now.Before(a.expiresAt) { // an expired reservation may already be used by others
		return false
	}
	a.available, a.running, a.usedAt = a.available-tokens, a.running+1, now
	return true
}

// finishCall ends a call with its reserved tokens and its estimated use; recordUse sets the
// actual use later.
func (a *prepaidAccount) finishCall(promised, estimate int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += promised - estimate
	a.estimated += estimate
	a.running, a.usedAt = a.running-1, now
}

// recordUse replaces the estimate of a finished call by its actual use.
func (a *prepaidAccount) recordUse(estimate, used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += estimate - used
	a.estimated -= estimate
	a.spent += used
}

// statement is what an account reports to the ledger.
type statement struct {
	reservation string
	size, spent int64
	renewal     int64 // tokens to reserve; 0 for none
	minimum     int64 // the committed part of renewal, and what the waiting call needs
	// keep stays reserved when the waiting call is refused: the committed tokens.
	keep int64
	// estimated is true where some use is not counted yet and so not part of spent.
	estimated bool
}

// dueStatement returns the statement of the account, and whether it has one to send. An idle
// account releases its reservation.
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

// reportedUse returns the spent amount of the next statement. A reservation is settled once: an
// uncertain amount is repeated unchanged, and the rest is reported the next time. The caller
// holds mu.
func (a *prepaidAccount) reportedUse() int64 {
	if a.uncertain != nil {
		return *a.uncertain
	}
	return a.spent
}

// committed returns how much of the reservation is neither spent nor available: the cost of
// running and uncounted calls. The caller holds mu.
func (a *prepaidAccount) committed() int64 {
	return max(min(a.size-a.spent-a.available, a.size-a.spent), 0)
}

// markUncertain records that the ledger did not respond to a statement.
func (a *prepaidAccount) markUncertain(s statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.reservation != "" {
		a.uncertain = &s.spent
	}
}

// shortfall returns a statement that requests more tokens for a call.
func (a *prepaidAccount) shortfall(need int64) statement {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reservation != "" {
		a.refillSize = min(2*a.refillSize, maxRefill)
	}
	// Tokens of running calls stay reserved.
	least := need + max(a.size-a.spent-a.available, 0)
	return statement{reservation: a.reservation, size: a.size, spent: a.reportedUse(), renewal: max(a.refillSize, least), minimum: least, keep: a.committed(), estimated: a.estimated > 0}
}

// markScarce stops advance reservations for a while.
func (a *prepaidAccount) markScarce(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scarceUntil, a.refillSize = now.Add(scarceFor), minRefill
}

// writeOff removes a statement that the ledger rejects, and returns its spent amount.
func (a *prepaidAccount) writeOff(s statement) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.available += -(s.size - s.spent)
	a.spent -= s.spent
	a.size, a.reservation, a.uncertain = 0, "", nil
	return s.spent
}

// apply applies a settled statement and its new reservation r, nil for none.
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

// isIdle reports whether the account can be removed.
func (a *prepaidAccount) isIdle(now time.Time, after time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running == 0 && a.estimated == 0 && a.spent == 0 && a.reservation == "" && now.Sub(a.usedAt) >= after
}
