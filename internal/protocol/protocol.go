// Package protocol is the interface between transports and protocols, so that neither depends on
// the other: a transport carries messages without reading them, a protocol interprets messages
// without knowing how they travel. The protocols are the packages below this one.
package protocol

import (
	"context"
	"time"

	"comet/models"
)

// Protocol is a message language and its semantics. It is safe for concurrent use.
type Protocol interface {
	// Info describes the protocol. It is called once.
	Info() Info
	// Order returns how a message is ordered relative to others of its connection. raw may be malformed.
	Order(raw []byte) Order
	// Accepts returns an error for an agent that the protocol cannot address. It is called when an
	// agent connects. Its error is for Refuse.
	Accepts(agent models.Agent) error
	// Receive processes one message. It may wait up to wait for the end of the task that the message
	// submits. The effect of an accepted message is committed when Receive returns.
	Receive(ctx context.Context, from Peer, raw []byte, wait time.Duration) Reply
	// Render formats an inbox message for to.Agent. The result may have several parts, none longer
	// than limit bytes unless limit is 0. It is empty for an obsolete message, which the transport
	// then acknowledges.
	Render(ctx context.Context, to Peer, m models.InboxMessage, limit int) ([][]byte, error)
	// Refuse formats an error about a message whose token was rejected, whose sender lacks a
	// permission, or that exceeds a limit. It trusts nothing in raw; raw is nil if there is no
	// message.
	Refuse(err error, raw []byte) Reply
	// Token removes the token from a message that carries one, as on a message queue, and returns
	// the rest of the message. token is "" if there is none.
	Token(raw []byte) (token string, rest []byte)
}

// Order states how a message is ordered relative to the other messages of its connection. A message
// with the zero Order is processed alone: after all earlier messages and before all later ones. Other
// messages may overlap, but begin in their order (background.WithPlacement).
type Order struct {
	// Key identifies messages that depend on each other: messages with the same key are processed one
	// after the other.
	Key string
	// Independent states that the message depends on no other one; such a message has no key. Later
	// messages with a key wait for it, because they may refer to what it creates.
	Independent bool
	// Atomic states that the first transaction is the whole effect of the message. Blind states that
	// the message reads nothing outside of its first transaction that an atomic message with its key
	// changes. A blind message may begin while an atomic one with its key is being committed.
	Atomic, Blind bool
}

// Info describes a protocol to the transports. The functions are optional capabilities, nil if the
// protocol does not have them; their errors are for Refuse.
type Info struct {
	// Name is the value of models.Worker.Protocol, for example "example".
	Name string
	// Subprotocols are the names that select the protocol when an agent connects, the preferred one
	// first, for example "example.v1".
	Subprotocols []string
	// ContentTypes are the media types of its messages over HTTP, the preferred one first. Messages
	// of a JSON media type are JSON values, all others are text.
	ContentTypes []string
	// Path is the path below which the protocol has endpoints of its own, for example
	// "/api/example/", "" for none.
	Path string
	// Framed reports whether a connection carries control frames such as hello and ack besides
	// messages. Without them a connection and a request body carry one message per line, the agent
	// joins with a message (Reply.Joined), and Reply.Body acknowledges the message it answers.
	Framed bool
	// KeyAlgorithm is the algorithm of the agents' keys that sign messages, "hmac-sha256" or
	// "ed25519", "" if messages are not signed. Verify is required with it.
	KeyAlgorithm string
	// MaxBytes limits a message on a connection without frames, 0 for the limit of the transport.
	MaxBytes int

	// Negotiate returns the version to use with an agent that supports versions, which may be empty.
	Negotiate func(versions []string) (version string, err error)
	// Introduce returns whom the first message of a connection without a token names. The signature
	// is left to Verify.
	Introduce func(ctx context.Context, from Peer, first []byte) (Introduction, error)
	// Verify verifies the signature of a message if it has one or must have one, and records it as
	// used. It returns errs.Unauthenticated for an invalid signature.
	Verify func(ctx context.Context, from Peer, raw []byte) error
	// Sender returns the principal of a message without a token, which its signature identifies, or
	// errs.Unauthenticated.
	Sender func(ctx context.Context, raw []byte) (models.Principal, error)
	// Stream processes one message and sends the messages that answer it, until the last one. It calls idle if it
	// has sent none for a while; an error of both ends it. Unless something was sent, the reply is the response.
	Stream func(ctx context.Context, from Peer, raw []byte, send func(message []byte) error, idle func() error) (Reply, error)
	// Prompt returns a system prompt for an agent that is a language model. agentID is "" for none.
	Prompt func(ctx context.Context, name, language, agentID string) (string, error)
}

// Introduction is how the first message of a connection identifies its sender.
type Introduction struct {
	// Name is the name that the sender proposes for itself, "" for none.
	Name string
	// SignedBy is the agent whose signature the message carries, "" for a message without one.
	SignedBy string
}

// Peer is the sender or the receiver of a message, as its transport knows it.
type Peer struct {
	// Principal is the authenticated sender.
	Principal models.Principal
	// Agent is the agent of a connection. It is zero for a message that arrives without one.
	Agent models.Agent
	// Transport is the value of models.Worker.Transport, or "http" for a request.
	Transport string
	// Remote reports that the agent is on another machine, so that only signatures identify it.
	Remote bool
	// Verified reports that the signature of the message was verified during the handshake.
	Verified bool
	// Trace is the W3C traceparent of the message, "" for none.
	Trace string
}

// AgentID returns the id of the peer's agent, "" for a client that is no agent.
func (p Peer) AgentID() string {
	switch {
	case p.Agent.ID != "":
		return p.Agent.ID
	case p.Principal.AgentID != nil:
		return *p.Principal.AgentID
	}
	return ""
}

// Reply is the outcome of a received message.
type Reply struct {
	// Status is the HTTP status.
	Status int
	// Body is nil for none. ContentType is its media type.
	Body        []byte
	ContentType string
	// Location is the URL of the created resource, "" for none.
	Location string
	// MessageID is the id of the received message, "" if it is unknown.
	MessageID string
	// IsError says that Body is an error message.
	IsError bool
	// BadSignature says that the message was refused because of an invalid signature. It counts
	// like a rejected token.
	BadSignature bool
	// Unauthenticated says that the message was refused and may not come from the agent it names:
	// its arrival does not acknowledge anything.
	Unauthenticated bool
	// SendBack says that Body is sent to the sender over a connection that stays open. Over HTTP it
	// always is the response, and an error is always sent.
	SendBack bool
	// Joined says that the agent announced that it takes tasks. Over a transport without a
	// connection, this connects the agent.
	Joined bool
	// Concurrency is how many tasks the agent runs at a time from now on, 0 if it is not given.
	Concurrency int
	// MaxDepth is the hand-off depth from which on the agent takes no tasks, 0 if it is not given.
	MaxDepth int
	// Version is the protocol version to use with the agent from now on, "" for the newest.
	Version string
	// RetryAfter is when the message may be sent again, 0 if it is not given.
	RetryAfter time.Duration
}
