package envelope

import (
	"time"

	"comet/internal/orchestrator"
)

// Class is the class of the tasks that are asked for in this protocol. The orchestrator
// is told of it with orchestrator.Options.Classes.
const Class = Name

// Policy is how tasks of the class are timed, retried and given to agents (Chiffon
// §Reliability Patterns).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, Line: 10 * time.Minute, Answer: time.Minute,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		Retry:           []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		Elsewhere:       []orchestrator.Failure{orchestrator.FailureUnavailable, orchestrator.FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2,
	}
}
