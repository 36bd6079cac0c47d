package orchestrator

import (
	"slices"
	"time"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// ClassDefault is the class of tasks asked for over REST, which every orchestrator knows.
// A dialect brings its own with Options.Classes.
const ClassDefault = "default"

// Policy is how tasks of a class are timed, retried and given to agents. It is data:
// each dialect states its own, and a task may differ in what an Override names.
type Policy struct {
	// Timeout is how long an attempt may be silent: since it was assigned, or since
	// the last progress that named the task.
	Timeout time.Duration
	// QueueTimeout is how long a task may wait for an agent that has a place free.
	QueueTimeout time.Duration
	// ReplyTimeout is how long an agent's question waits for its answer.
	ReplyTimeout time.Duration
	// Retries is how many attempts follow the first.
	Retries int
	// Backoff is the wait before each further attempt; the last one repeats.
	Backoff []time.Duration
	// RetryOn lists the failures after which a further attempt is made.
	RetryOn []Failure
	// RetryLimits is how many attempts follow a failure at most, where that is less than
	// Retries.
	RetryLimits map[Failure]int
	// ReassignOn lists those after which another agent is preferred for it.
	ReassignOn []Failure
	// BreakerFailures in a row open an agent's breaker for BreakerPause.
	BreakerFailures int
	BreakerPause    time.Duration
	// MaxDepth is how many hand-offs there may be, MaxQuestions how many
	// clarifications.
	MaxDepth     int
	MaxQuestions int
	// UseFirstOption answers a question that nobody answers in time with the first of its
	// options, where it has any.
	UseFirstOption bool
	// Overrun says what follows where a budget does not cover an attempt, nil the end.
	Overrun *models.Overrun
	// Threshold is the least part of the capabilities that an agent must have, 0 for
	// selection.DefaultThreshold.
	Threshold float64
	// Rank orders the agents that could take a task; nil is selection.ByScore.
	Rank selection.Ranking
}

// Failure says why an attempt, and in the end a task, failed. It is of the core; each
// dialect has its own number for it.
type Failure string

// The failures.
const (
	// FailureTimeout is an attempt that was silent for too long (5001, E20-E22).
	FailureTimeout Failure = "timeout"
	// FailureUnavailable is an agent that is away, or left (5002, E30).
	FailureUnavailable Failure = "unavailable"
	// FailureSaturated is a line that was too long to wait in (5002, E31).
	FailureSaturated Failure = "saturated"
	// FailureResource is a limit of the agent's that was reached (5005, E32).
	FailureResource Failure = "resource_limit"
	// FailureBudget is a budget that does not cover the work (5005, E17).
	FailureBudget Failure = "budget_exceeded"
	// FailureUnsupported is work that the agent does not do after all (5006, E19).
	FailureUnsupported Failure = "unsupported"
	// FailureInvalid is work the agent could not read (5003, E10).
	FailureInvalid Failure = "invalid"
	// FailureWork is work that was done and failed: an exit code, a negative answer.
	FailureWork Failure = "failed"
	// FailureQuestions is one clarification more than allowed (E18), FailureUnanswered
	// one that nobody answered in time (E23).
	FailureQuestions  Failure = "too_many_questions"
	FailureUnanswered Failure = "unanswered"
)

// countsForBreaker reports whether the failure is one of the agent's line, which its breaker
// counts; what came of the work itself says nothing about the line.
func (f Failure) countsForBreaker() bool { return f == FailureTimeout || f == FailureUnavailable }

// classes are the policies there are before a dialect brings its own. No document has
// numbers for REST: it has those of Chiffon §Reliability Patterns.
func classes() map[string]Policy {
	return map[string]Policy{ClassDefault: {
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []Failure{FailureTimeout, FailureUnavailable, FailureResource},
		ReassignOn:      []Failure{FailureUnavailable, FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2,
	}}
}

// Override is what one task has differently from its class. It is stored as JSON.
type Override struct {
	// TimeoutMS replaces Policy.Timeout, in milliseconds; 0 does not.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Retries replaces Policy.Retries.
	Retries *int `json:"retries,omitempty"`
	// Fallback is the id of the agent that is asked next after a failure for which
	// another one is preferred, "" for the best.
	Fallback string `json:"fallback,omitempty"`
	// UseFirstOption replaces Policy.UseFirstOption.
	UseFirstOption *bool `json:"first_option,omitempty"`
	// Notify has the agent that asked told of the end, in its inbox.
	Notify bool `json:"notify,omitempty"`
	// Workers is how many workers do the task at the same time, 2 to MaxParallel; 0 is one.
	Workers int `json:"workers,omitempty"`
	// Subtask is set for the subtasks of such a task.
	Subtask bool `json:"subtask,omitempty"`
	// Overrun says what follows where its budget does not cover it, nil its end.
	Overrun *models.Overrun `json:"overrun,omitempty"`
}

// withOverride returns the policy with what a task has differently.
func (p Policy) withOverride(o Override) Policy {
	if o.TimeoutMS > 0 {
		p.Timeout = time.Duration(o.TimeoutMS) * time.Millisecond
	}
	if o.Retries != nil {
		p.Retries = *o.Retries
	}
	if o.Overrun != nil {
		p.Overrun = o.Overrun
	}
	if o.UseFirstOption != nil {
		p.UseFirstOption = *o.UseFirstOption
	}
	return p
}

// retryDelay is the wait before the attempt that follows as many as there were.
func (p Policy) retryDelay(attempts int) time.Duration {
	if len(p.Backoff) == 0 {
		return 0
	}
	return p.Backoff[min(max(attempts, 1), len(p.Backoff))-1]
}

// allowsRetry reports whether an attempt follows one that failed so.
func (p Policy) allowsRetry(f Failure, t models.Task) bool {
	most := p.Retries
	if limit, ok := p.RetryLimits[f]; ok {
		most = min(most, limit)
	}
	return slices.Contains(p.RetryOn, f) && t.Attempt <= most
}
