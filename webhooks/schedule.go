package webhooks

import "time"

const (
	// jitter is by how much a wait varies to either side, so that what failed together
	// is not tried again together.
	jitter = 0.1
	// patience is how long a webhook may fail without a success in between.
	patience = 5 * 24 * time.Hour
	// minFailures is how often it fails in that time at least, or two failures with
	// days of silence between them would end it.
	minFailures = 10
)

// waits are those after each failure of a delivery; after one more it is dead.
func waits() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
	}
}

// next returns how long to wait after the failure of the try with that number, from 1
// on; ok is false where it was the last. random is in [0, 1). A receiver may ask for a
// longer wait, not for a shorter one.
func next(try int, random float64, retryAfter time.Duration) (wait time.Duration, ok bool) {
	all := waits()
	if try > len(all) {
		return 0, false
	}
	wait = all[try-1]
	wait += time.Duration((2*random - 1) * jitter * float64(wait))
	return max(wait, retryAfter), true
}
