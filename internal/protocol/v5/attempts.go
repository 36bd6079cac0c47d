package v5

import (
	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
)

// The keys of DATA that say what was before an attempt, and what follows it (PROTOCOL_V5
// §8.2). O1 writes them to a worker; from an asker they are for O1.
const (
	keyRetry        = "retry"
	keyMax          = "max" // the protocol's beside retry only
	keyFallback     = "fallback"
	keyFallbackFrom = "fallback_from"
	keyReason       = "reason"
)

// maxRetries is the largest max= of a request.
const maxRetries = 10

// retriesPair is how many attempts an asker wants to follow the first, with max= beside
// retry=, nil for as many as there are otherwise.
func retriesPair(data wire.Data) (*int, error) {
	if !has(data, keyRetry) || !has(data, keyMax) {
		return nil, nil //nolint:nilnil // the policy says it
	}
	n, err := intPair(data, keyMax, 0, maxRetries, 0)
	return &n, err
}

// parseAttempts reads how long an attempt may be silent, and how many follow the first. What DATA
// says of attempts beside that is returned.
func parseAttempts(sub *orchestrator.Submission, data wire.Data) (again wire.Retry, err error) {
	seconds, err := intPair(data, keyTimeout, 1, maxTimeout, 0)
	if err != nil {
		return again, err
	}
	sub.Override.TimeoutMS = int64(seconds) * 1000
	if again, err = data.Retry(); err != nil {
		return again, err
	}
	sub.Override.Retries, err = retriesPair(data)
	return again, err
}

// isAttemptPair reports whether a pair of DATA is what its asker said of attempts. A reason
// is one where there is another to be said.
func isAttemptPair(data wire.Data, key string, again wire.Retry) bool {
	switch key {
	case keyRetry, keyFallback, keyFallbackFrom:
		return true
	case keyMax:
		return has(data, keyRetry)
	case keyReason:
		return again.Reason != ""
	}
	return false
}
