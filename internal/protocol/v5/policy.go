package v5

import (
	"time"

	"comet/internal/orchestrator"
)

// Class is the class of the tasks that are asked for in this protocol. The orchestrator
// is told of it with orchestrator.Options.Classes.
const Class = Name

// Policy is how tasks of the class are timed, retried and given to agents: two retries
// after a timeout and one after E32, the next worker after E30 and E31, two questions,
// 60 s for an answer and then its first option, depth 4 (PROTOCOL_V5 §5.4, §7, §8.2).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 2, Backoff: []time.Duration{time.Second, 2 * time.Second},
		RetryOn: []orchestrator.Failure{
			orchestrator.FailureTimeout, orchestrator.FailureUnavailable, orchestrator.FailureSaturated, orchestrator.FailureResource,
		},
		RetryLimits:     map[orchestrator.Failure]int{orchestrator.FailureResource: 1},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureUnavailable, orchestrator.FailureSaturated},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2, UseFirstOption: true,
	}
}
