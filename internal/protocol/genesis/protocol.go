// Package genesis implements the Genesis protocol 1.0 (docs/genesis.md): it maps signed messages to operations
// of the orchestrator, and inbox messages to signed messages. It checks which messages a sender may send.
// Package wire/genesis is the codec; package transport carries the messages.
package genesis

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/pubsub"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// Name is the protocol name of its workers. Subprotocol is its WebSocket subprotocol, and Alias a second
// name of it.
const (
	Name        = "genesis"
	Subprotocol = "genesis.v1"
	Alias       = "a2a.v1"
)

// ContentType is the media type of its messages. On its own path the protocol also accepts application/json.
const ContentType = "application/genesis+json"

// Dependencies are the parts that the protocol uses.
type Dependencies struct {
	Work *orchestrator.Orchestrator
	// Keys are the keys of the agents.
	Keys *auth.Keys
	// ServiceKeys are the keys with which comet signs its messages.
	ServiceKeys *auth.ServiceKeys
	// Intents fulfils the intents that need no agent.
	Intents Intents
	// Events publishes events.
	Events *pubsub.PubSub
}

// Intents fulfils intents that need no agent.
type Intents interface {
	// Has reports whether the service fulfils an intent.
	Has(intent string) bool
	// Answer fulfils it. data is encoded as JSON. The errors are those of package errs.
	Answer(ctx context.Context, by models.Principal, q Query) (data any, err error)
}

// Query is a REQUEST to the service.
type Query struct {
	// ID is the id of the message. It makes a repeated request take effect once.
	ID string
	// Agent is the agent that sends the request, "" for a client.
	Agent  string
	Intent string
	// Payload is JSON. Entities are the values of the entities by type.
	Payload     json.RawMessage
	Entities    map[string]string
	Traceparent string
	// Wait is how long Answer may wait for the end of the task or workflow.
	Wait time.Duration
}

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
	Dependencies

	clock func() time.Time
	log   *slog.Logger
	// fleeting holds the content of the last events that are delivered at most once, by sender and id. They have no row.
	fleeting *lru.Cache[[2]string, string]
}

// maxFleeting is how many events are remembered.
const maxFleeting = 100_000

var _ protocol.Protocol = (*Protocol)(nil)

// New returns the protocol.
func New(d Dependencies, opts *Options) *Protocol {
	o := cmp.Or(opts, &Options{})
	fleeting, _ := lru.New[[2]string, string](maxFleeting) // New fails only for a size below 1
	p := &Protocol{Dependencies: d, fleeting: fleeting, clock: o.Clock, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	if p.clock == nil {
		p.clock = time.Now
	}
	return p
}

// Info implements protocol.Protocol.
func (p *Protocol) Info() protocol.Info {
	return protocol.Info{
		Name: Name, Subprotocols: []string{Subprotocol, Alias}, ContentTypes: []string{ContentType, "application/json"},
		Path: "/api/genesis/", Framed: true, Negotiate: negotiate, Sender: p.sender, Stream: p.stream,
	}
}

// Order implements protocol.Protocol: the key is the request to which a message belongs. The partial responses of
// a worker read nothing outside of their transaction.
func (p *Protocol) Order(raw []byte) protocol.Order {
	h := wire.ReadHead(raw)
	return protocol.Order{Key: h.CorrelationID, Atomic: h.Type == wire.TypeResponse && h.Status == wire.Partial, Blind: h.Type == wire.TypeResponse}
}

// negotiate returns the version to use with an agent. There is only one.
func negotiate(versions []string) (string, error) {
	if len(versions) == 0 {
		return wire.Version, nil
	}
	for _, v := range versions {
		if v == wire.Version || v == wire.Version+".0" {
			return wire.Version, nil
		}
	}
	return "", errs.New(errs.UnsupportedWork, "none of the offered versions is supported").With("versions", versions)
}

// Accepts implements protocol.Protocol: every agent has an address, its id.
func (p *Protocol) Accepts(models.Agent) error { return nil }

// Token implements protocol.Protocol: messages contain no token. On a message queue their signature names the sender.
func (p *Protocol) Token(raw []byte) (token string, rest []byte) { return "", raw }

// Class is the class of the tasks that this protocol submits, a key of orchestrator.Options.Classes.
const Class = Name

// Policy returns the time limits, retries and limits of the class. A retry prefers another agent, so that five attempts go
// to the three selected agents and the two alternatives (Genesis §Routing Algorithm). A worker that breaks the protocol
// counts as one that could not read its task.
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 4, Backoff: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second},
		RetryOn:         []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource, orchestrator.FailureInvalid},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureResource, orchestrator.FailureInvalid},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2, Receipts: true, Weighted: true,
	}
}

// sign signs a message from comet and returns it as JSON.
func (p *Protocol) sign(ctx context.Context, m wire.Message) ([]byte, error) {
	key, err := p.ServiceKeys.Current(ctx)
	if err != nil {
		return nil, err
	}
	m.ID = cmp.Or(m.ID, newID())
	m.From, m.Timestamp = models.RootAgentID, p.clock().UnixNano()
	return m.SignAndFormat(key.Private, wire.ProfileJCS)
}
