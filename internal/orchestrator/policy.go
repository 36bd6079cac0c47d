package orchestrator

import (
	"slices"
	"time"

	"comet/models"
)

// ClassDefault is the class of tasks submitted over REST. Protocols add theirs with Options.Classes.
const ClassDefault = "default"

// Policy defines how tasks of a class are timed, retried and assigned. Each protocol has its own; a task may change
// parts of it with an Override.
type Policy struct {
	// Timeout is how long an attempt may be silent after its assignment and after each progress
	// report for the task.
	Timeout time.Duration
	// AttemptTimeout is how long an attempt may take in total, 0 for no limit.
	AttemptTimeout time.Duration
	// ExpiresAt is when the task fails if it has not ended, the zero time for never.
	ExpiresAt time.Time
	// QueueTimeout is how long a task may wait for an agent with a free slot.
	QueueTimeout time.Duration
	// ReplyTimeout is how long a question of an agent waits for its reply.
	ReplyTimeout time.Duration
	// Retries is the number of attempts after the first.
	Retries int
	// Backoff is the delay before each further attempt; the last value repeats.
	Backoff []time.Duration
	// RetryOn lists the failures that are retried.
	RetryOn []Failure
	// RetryLimits is the number of retries after a failure if it is less than Retries.
	RetryLimits map[Failure]int
	// ReassignOn lists the failures after which another agent is preferred.
	ReassignOn []Failure
	// BreakerFailures in a row open the breaker of an agent for BreakerPause.
	BreakerFailures int
	BreakerPause    time.Duration
	// MaxDepth is the maximum depth of hand-offs, MaxQuestions the maximum number of clarifications.
	MaxDepth     int
	MaxQuestions int
	// UseFirstOption replies to an unanswered question with its first option, if it has any.
	UseFirstOption bool
	// Overrun defines what follows if a budget does not cover an attempt; nil ends the task.
	Overrun *Overrun
	// Notify sends the progress of the task to the requesting agent.
	Notify bool
	// Threshold is the minimum share of the capabilities that an agent must have, 0 for
	// selection.DefaultThreshold.
	Threshold float64
	// Receipts permits Override.Receipts, and says for a task whether it is set.
	Receipts bool
	// Weighted orders the agents by selection.ByWeight, and finds capabilities by folded names as well.
	Weighted bool
}

// Failure is the reason why an attempt, and in the end a task, failed. Each protocol maps it to its own code.
type Failure string

// The failures.
const (
	// FailureTimeout: the agent was silent, or took, too long. FailureExpired: the whole task took too
	// long. FailureLost: the agent has lost its connection and did not return.
	FailureTimeout Failure = "timeout"
	FailureExpired Failure = "expired"
	FailureLost    Failure = "lost"
	// FailureUnavailable: the agent is offline or has left.
	FailureUnavailable Failure = "unavailable"
	// FailureSaturated: the task waited too long in its queue.
	FailureSaturated Failure = "saturated"
	// FailureResource: the agent reached one of its limits.
	FailureResource Failure = "resource_limit"
	// FailureBudget: the budget does not cover the work.
	FailureBudget Failure = "budget_exceeded"
	// FailureUnsupported: the agent does not do this work.
	FailureUnsupported Failure = "unsupported"
	// FailureInvalid: the agent could not read the task.
	FailureInvalid Failure = "invalid"
	// FailureWork: the work itself failed, for example with an exit code.
	FailureWork Failure = "failed"
	// FailureQuestions: the agent asked more questions than allowed. FailureUnanswered: a
	// question got no reply in time.
	FailureQuestions  Failure = "too_many_questions"
	FailureUnanswered Failure = "unanswered"
)

// countsForBreaker reports whether the failure counts for the agent's breaker: it is one of the connection and not of
// the work.
func (f Failure) countsForBreaker() bool { return f == FailureTimeout || f == FailureUnavailable }

// classes returns the built-in policies. No document defines numbers for REST; these are of Chiffon §Reliability
// Patterns.
func classes() map[string]Policy {
	return map[string]Policy{ClassDefault: {
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []Failure{FailureTimeout, FailureLost, FailureUnavailable, FailureResource},
		ReassignOn:      []Failure{FailureLost, FailureUnavailable, FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2,
	}}
}

// Override is what one task sets differently from its class. It is stored as JSON.
type Override struct {
	// TimeoutMS replaces Policy.Timeout, in milliseconds, unless it is 0.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// AttemptTimeoutMS replaces Policy.AttemptTimeout, in milliseconds, unless it is 0.
	AttemptTimeoutMS int64 `json:"attempt_timeout_ms,omitempty"`
	// ExpiresAt is Policy.ExpiresAt.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Retries replaces Policy.Retries.
	Retries *int `json:"retries,omitempty"`
	// Fallback is the id of the agent that gets the next attempt after a failure in
	// Policy.ReassignOn, "" for the best one.
	Fallback string `json:"fallback,omitempty"`
	// UseFirstOption replaces Policy.UseFirstOption.
	UseFirstOption *bool `json:"first_option,omitempty"`
	// Notify sends a message to the inbox of the requesting agent when the task ends, and its progress
	// while the agent is connected.
	Notify bool `json:"notify,omitempty"`
	// Partials sends each partial result to the inbox of the requesting agent.
	Partials bool `json:"partials,omitempty"`
	// Receipts sends a message to the inbox of the requesting agent when a worker has received the task.
	Receipts bool `json:"receipts,omitempty"`
	// Workers is how many workers do the task at the same time, 2 to MaxParallel; 0 means one.
	Workers int `json:"workers,omitempty"`
	// Overrun replaces Policy.Overrun.
	Overrun *Overrun `json:"overrun,omitempty"`
}

// withOverride returns the policy with the overrides of a task.
func (p Policy) withOverride(o Override) Policy {
	if o.TimeoutMS > 0 {
		p.Timeout = time.Duration(o.TimeoutMS) * time.Millisecond
	}
	if o.AttemptTimeoutMS > 0 {
		p.AttemptTimeout = time.Duration(o.AttemptTimeoutMS) * time.Millisecond
	}
	p.ExpiresAt, p.Notify, p.Receipts = o.ExpiresAt, o.Notify, o.Receipts
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

// deadline returns the end of a wait of a task that begins now. It is not after the end of the task and, while an agent
// works, of the attempt.
func (p Policy) deadline(t models.Task, now time.Time, wait time.Duration) time.Time {
	at := now.Add(wait)
	if limit := t.AssignedAt.Add(p.AttemptTimeout); p.AttemptTimeout > 0 && t.WaitingFor == models.NotWaiting && limit.Before(at) {
		at = limit
	}
	if !p.ExpiresAt.IsZero() && p.ExpiresAt.Before(at) {
		at = p.ExpiresAt
	}
	return at
}

// retryDelay returns the delay after a number of attempts.
func (p Policy) retryDelay(attempts int) time.Duration {
	if len(p.Backoff) == 0 {
		return 0
	}
	return p.Backoff[min(max(attempts, 1), len(p.Backoff))-1]
}

// allowsRetry reports whether the failure of the newest attempt is retried.
func (p Policy) allowsRetry(f Failure, t models.Task) bool {
	most := p.Retries
	if limit, ok := p.RetryLimits[f]; ok {
		most = min(most, limit)
	}
	return slices.Contains(p.RetryOn, f) && t.Attempt <= most
}
