// Package envelope implements the Chiffon agent protocol 1.0: it maps envelopes to operations of
// the orchestrator, and results and inbox messages to envelopes. It checks who may send what.
// Package wire/envelope is the codec, package transport carries the messages.
package envelope

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/envelope"
	"comet/models"
)

// Name is the protocol name of its workers. Subprotocol is its WebSocket subprotocol.
const (
	Name        = "envelope"
	Subprotocol = "envelope.v1"
)

// maxInline is the longest output in a single message (Chiffon §Large Payloads). A longer output is
// sent in chunks first, or left for the REST API if only one message can be sent.
const maxInline = 1 << 20

// Options configures New; nil is the zero value.
type Options struct {
	// Clock returns the time of outgoing messages, default time.Now.
	Clock func() time.Time
	// Logger receives the reasons of authentication failures, which senders do not learn, and
	// internal errors. By default they are discarded.
	Logger *slog.Logger
}

// Protocol implements protocol.Protocol. It is safe for concurrent use.
type Protocol struct {
	work  *orchestrator.Orchestrator
	clock func() time.Time
	log   *slog.Logger
}

var _ protocol.Protocol = (*Protocol)(nil)

// New returns the protocol for an orchestrator.
func New(work *orchestrator.Orchestrator, opts *Options) *Protocol {
	o := cmp.Or(opts, &Options{})
	p := &Protocol{work: work, clock: o.Clock, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	if p.clock == nil {
		p.clock = time.Now
	}
	return p
}

// Info implements protocol.Protocol.
func (p *Protocol) Info() protocol.Info {
	return protocol.Info{
		Name: Name, Subprotocols: []string{Subprotocol}, ContentTypes: []string{contentType}, Framed: true, Negotiate: negotiate,
	}
}

// Order implements protocol.Protocol: the key is the task id. The reports of a worker read nothing
// outside of their transaction. A result may need a second transaction, so it is not atomic.
func (p *Protocol) Order(raw []byte) protocol.Order {
	kind, taskID := wire.Head(raw)
	return protocol.Order{Key: taskID, Atomic: kind == wire.TypeWorkStatus, Blind: kind != wire.TypeWorkRequest}
}

// negotiate returns the version to use with an agent (Chiffon §Protocol Versioning).
func negotiate(versions []string) (string, error) {
	if len(versions) == 0 {
		return wire.Version, nil
	}
	version, ok := wire.Negotiate(versions, []string{wire.Version})
	if !ok {
		return "", errs.New(errs.UnsupportedWork, "none of the offered versions is supported").With("versions", versions)
	}
	return version, nil
}

// Accepts implements protocol.Protocol: agents are addressed by their type.
func (p *Protocol) Accepts(agent models.Agent) error {
	if agent.Type == "" {
		return errs.New(errs.InvalidRequest, "the agent %q has no type, which this protocol needs to address it; set one with PATCH /api/v1/agents/%s", agent.ID, agent.ID)
	}
	return nil
}

// Token implements protocol.Protocol (Chiffon §Authentication, “message field”).
func (p *Protocol) Token(raw []byte) (token string, rest []byte) {
	return wire.CutToken(raw)
}

// newID returns the id of a new message. NewV7 fails only without randomness, which Go does not survive.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// Class is the class of the tasks that this protocol submits, a key of orchestrator.Options.Classes.
const Class = Name

// Policy returns the time-outs, retries and limits of the class (Chiffon §Reliability Patterns).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 3, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2,
	}
}

// sender is the sender of a message: an agent, or a client that acts as the orchestrator.
type sender struct {
	models.Principal
	// agentID is the id of the agent, "" for a client.
	agentID   string
	agentType string
}

func (s sender) maySubmit() bool { return s.Has(models.ScopeMessagesSend) }
