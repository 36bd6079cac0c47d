package webhooks

import "time"

const (
	// jitter is the relative variation of a wait, so that deliveries that failed together are not
	// retried together.
	jitter = 0.1
	// maxFailingTime is how long a webhook may fail without a success.
	maxFailingTime = 5 * 24 * time.Hour
	// minFailures is the least number of failures in that time; otherwise two failures with days
	// between them would disable a webhook.
	minFailures = 10
)

// retryWaits returns the wait after each failure of a delivery; after one more failure it is dead.
func retryWaits() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
	}
}

// nextWait returns the wait after the failed attempt with that number, from 1; ok is false after the
// last. random is in [0, 1). A receiver may ask for a longer wait, not for a shorter one.
func nextWait(try int, random float64, retryAfter time.Duration) (wait time.Duration, ok bool) {
	all := retryWaits()
	if try > len(all) {
		return 0, false
	}
	wait = all[try-1]
	wait += time.Duration((2*random - 1) * jitter * float64(wait))
	return max(wait, retryAfter), true
}
