// Package envelope gives the messages of the Chiffon agent protocol 1.0 their meaning:
// it turns envelopes into the orchestrator's verbs, and what comes of them, and what
// agents must be told, into envelopes. It knows who may say what; how a message is
// written is for wire/envelope, and how it travels for link.
package envelope

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// Name is what a worker that speaks it has as its dialect, and Subprotocol its name on a
// WebSocket.
const (
	Name        = "envelope"
	Subprotocol = "envelope.v1"
)

// maxInline is the longest output that goes into one message (Chiffon §Large Payloads).
// What is longer goes ahead in chunks, or is left to be fetched where there is only one
// message to answer with.
const maxInline = 1 << 20

// Options configures New; nil is the zero value.
type Options struct {
	// Clock tells the time of our own messages, default time.Now.
	Clock func() time.Time
	// Logger hears why somebody was refused who is not told, and of our own failures;
	// default discards.
	Logger *slog.Logger
}

// Protocol implements protocol.Protocol. It is safe for concurrent use.
type Protocol struct {
	work  *orchestrator.Orchestrator
	clock func() time.Time
	log   *slog.Logger
}

var _ protocol.Protocol = (*Protocol)(nil)

// New returns the dialect over the orchestrator.
func New(work *orchestrator.Orchestrator, opts *Options) *Protocol {
	d := &Protocol{work: work, clock: time.Now, log: slog.New(slog.DiscardHandler)}
	if opts != nil && opts.Clock != nil {
		d.clock = opts.Clock
	}
	if opts != nil && opts.Logger != nil {
		d.log = opts.Logger
	}
	return d
}

// Name implements protocol.Dialect.
func (d *Protocol) Name() string { return Name }

// Subprotocol implements protocol.Dialect.
func (d *Protocol) Subprotocol() string { return Subprotocol }

// Unframed implements protocol.Dialect.
func (d *Protocol) Unframed() bool { return false }

// OrderingKey implements protocol.Dialect: messages are about a task.
func (d *Protocol) OrderingKey(raw []byte) string { return wire.FindTaskID(raw) }

// Negotiate implements protocol.Dialect (Chiffon §Protocol Versioning).
func (d *Protocol) Negotiate(versions []string) (string, error) {
	if len(versions) == 0 {
		return wire.Version, nil
	}
	version, ok := wire.Negotiate(versions, []string{wire.Version})
	if !ok {
		return "", errs.New(errs.UnsupportedWork, "none of the versions is spoken here").With("versions", versions)
	}
	return version, nil
}

// Accepts implements protocol.Dialect: agents are addressed by their type.
func (d *Protocol) Accepts(agent models.Agent) error {
	if agent.Type == "" {
		return errs.New(errs.InvalidRequest, "the agent %q has no type, by which this protocol addresses agents; set one with PATCH /api/v1/agents/%s", agent.ID, agent.ID)
	}
	return nil
}

// Token implements protocol.Dialect (Chiffon §Authentication, “message field”).
func (d *Protocol) Token(raw []byte) (token string, rest []byte) {
	return wire.CutToken(raw)
}

// Receive implements protocol.Dialect.
func (d *Protocol) Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) protocol.Reply {
	e, err := wire.Parse(raw)
	if err != nil {
		return d.refuse(e, err)
	}
	e.RemoveToken() // it is for message queues, and nobody else's business
	s, err := d.senderOf(ctx, from, e)
	if err != nil {
		return d.refuse(e, err)
	}
	answer, err := d.receive(ctx, s, e, wait)
	if err != nil {
		return d.refuse(e, err)
	}
	answer.MessageID = e.MessageID.String()
	return answer
}

func (d *Protocol) receive(ctx context.Context, s sender, e wire.Envelope, wait time.Duration) (protocol.Reply, error) {
	switch p := e.Payload.(type) {
	case wire.WorkRequest:
		if p.WorkType == wire.WorkTypeCancel {
			return d.cancel(ctx, s, e, p)
		}
		return d.submit(ctx, s, e, p, wait)
	case wire.WorkStatus:
		return d.progress(ctx, s, e, p)
	case wire.Heartbeat:
		return d.heartbeat(ctx, s, p)
	case wire.WorkResult:
		return d.complete(ctx, s, e, p)
	case wire.Failure:
		return d.agentError(ctx, s, e, p)
	}
	return protocol.Reply{}, errors.New("an envelope without a payload was read as valid")
}

// accepted is the answer to a message whose effect is committed.
func accepted(taskID string) protocol.Reply {
	a := protocol.Reply{Status: http.StatusAccepted}
	if taskID != "" {
		a.Location = "/api/v1/tasks/" + taskID
	}
	return a
}

// newID returns the id of a message of our own.
func newID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil { // there is no randomness, which ends the program elsewhere
		return uuid.New()
	}
	return id
}

// Class is the class of the tasks that are asked for in this protocol. The orchestrator
// is told of it with orchestrator.Options.Classes.
const Class = Name

// Policy is how tasks of the class are timed, retried and given to agents (Chiffon
// §Reliability Patterns).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureUnavailable, orchestrator.FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2,
	}
}

// sender is who sends a message: an agent, or somebody who acts as the orchestrator.
type sender struct {
	models.Principal
	// agentID is the agent's id, "" for the orchestrator.
	agentID   string
	agentType string
}

// maySubmit reports whether the speaker may ask for work.
func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }

// senderOf returns who sends a message. The token names the agent, and from_agent must be
// that agent's type; a token that belongs to no agent acts as the orchestrator. What
// does not fit is errs.Unauthenticated, which says no more; the log does.
func (d *Protocol) senderOf(ctx context.Context, from models.Principal, e wire.Envelope) (sender, error) {
	s := sender{Principal: from, agentType: wire.Orchestrator}
	if from.AgentID == nil {
		if !s.maySubmit() {
			return s, d.rejectSender(ctx, s, e, "the token belongs to no agent and lacks the scope messages:send")
		}
	} else {
		kind, ok, err := d.work.AgentType(ctx, *from.AgentID)
		if err != nil {
			return s, err
		}
		if !ok || kind == "" {
			return s, d.rejectSender(ctx, s, e, "the agent has no type, or is not active")
		}
		s.agentID, s.agentType = *from.AgentID, kind
	}
	if e.From != s.agentType {
		return s, d.rejectSender(ctx, s, e, "from_agent is not the type of the token's agent")
	}
	return s, nil
}

// rejectSender refuses somebody without a hint; an operator finds the reason in the log.
func (d *Protocol) rejectSender(ctx context.Context, s sender, e wire.Envelope, why string) error {
	d.log.InfoContext(ctx, "a message was refused", "reason", why, "token_id", s.TokenID, "agent", s.agentID, "type", s.agentType, "from_agent", e.From)
	return errs.New(errs.Unauthenticated, "authentication failed")
}

// wrongField is a message that is well-formed and cannot be meant.
func wrongField(field, format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, field, "invalid", format, args...)
	return v.Err()
}
