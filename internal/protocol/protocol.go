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
	// Name is the value of models.Worker.Protocol, for example "envelope".
	Name() string
	// Subprotocol is its WebSocket subprotocol, for example "envelope.v1".
	Subprotocol() string
	// Unframed reports whether a connection carries protocol messages only, without control frames
	// such as hello and ack. The agent then joins with a message (Reply.Joined), and Reply.Body
	// acknowledges the message it answers.
	Unframed() bool
	// OrderingKey returns the key of a message, "" to order it with all messages. Messages with the
	// same key are processed in order. raw may be malformed.
	OrderingKey(raw []byte) string
	// Negotiate returns the version to use with an agent that supports versions, an empty list if
	// the agent named none. Its error is for Refuse.
	Negotiate(versions []string) (version string, err error)
	// Accepts returns an error for an agent that the protocol cannot address. It is called when an
	// agent connects. Its error is for Refuse.
	Accepts(agent models.Agent) error
	// Receive processes one message from a principal. It may wait up to wait for the end of the
	// task that the message submits. The effect of an accepted message is committed when Receive
	// returns.
	Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) Reply
	// Render formats an inbox message for an agent. The result may have several parts, none longer
	// than limit bytes unless limit is 0. It is empty for an obsolete message, which the transport
	// then acknowledges.
	Render(ctx context.Context, agent models.Agent, m models.InboxMessage, limit int) ([][]byte, error)
	// Refuse formats an error about a message whose token was rejected, whose sender lacks a
	// permission, or that exceeds a limit. It trusts nothing in raw; raw is nil if there is no
	// message.
	Refuse(err error, raw []byte) Reply
	// Token removes the token from a message that carries one, as on a message queue, and returns
	// the rest of the message. token is "" if there is none.
	Token(raw []byte) (token string, rest []byte)
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
