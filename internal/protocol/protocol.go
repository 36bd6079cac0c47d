// Package protocol is what links and dialects have in common, so that neither has to
// know the other: a link holds a line and knows no message, a dialect knows the messages
// and no line. The dialects themselves are the packages below this one.
package protocol

import (
	"context"
	"time"

	"comet/models"
)

// Protocol is what is spoken on a line. It is used by many goroutines at once.
type Protocol interface {
	// Name is what a worker's Dialect says, e.g. "envelope".
	Name() string
	// Subprotocol names it to WebSocket, e.g. "envelope.v1".
	Subprotocol() string
	// Unframed reports whether a line holds nothing but messages. Then there are no words of
	// the line itself, such as a greeting and acknowledgements: the agent is on the line
	// once it has said so (Answer.Present), and what Answer.Body says acknowledges what it
	// answers.
	Unframed() bool
	// OrderingKey names what a message is about, "" for everything: those about the same are
	// taken one after the other, in their order. It need not be a message.
	OrderingKey(raw []byte) string
	// Negotiate returns the version that is spoken with somebody who knows the versions,
	// none for whoever did not say. Its error is for Refuse.
	Negotiate(versions []string) (version string, err error)
	// Accepts returns why an agent cannot be spoken to in the dialect, nil where it can. It
	// is asked when an agent comes, before work is given to it. Its error is for Refuse.
	Accepts(agent models.Agent) error
	// Receive takes one message of whoever speaks. wait is how long it may wait for the
	// end of the work that the message asks for. The effect of a message that is not
	// refused is committed when it returns.
	Receive(ctx context.Context, from models.Principal, raw []byte, wait time.Duration) Reply
	// Render writes what an agent is told. It may be more than one message, none of them
	// longer than limit bytes where limit is not 0, and none at all where it is not true
	// any more: then the link acknowledges it.
	Render(ctx context.Context, agent models.Agent, m models.InboxMessage, limit int) ([][]byte, error)
	// Refuse is the answer to somebody whose token is not accepted, who may not do what
	// was asked, or who sends too much. Nothing of the message is trusted; raw is nil
	// where there is none.
	Refuse(err error, raw []byte) Reply
	// Token takes the token out of a message that carries it, which is how it comes over
	// a message queue, and returns the message without it. It is "" where there is none.
	Token(raw []byte) (token string, rest []byte)
}

// Reply is what becomes of a message.
type Reply struct {
	// Status is that of HTTP.
	Status int
	// Body is nil for none, ContentType what it is written in.
	Body        []byte
	ContentType string
	// Location is where to find what was made, "" for none.
	Location string
	// MessageID is that of the message that is answered, "" where it could not be read.
	MessageID string
	// IsError says that Body is an error.
	IsError bool
	// BadSignature says that the message is refused because its signature is not that of whom it
	// names, which counts like a token that is wrong.
	BadSignature bool
	// Unauthenticated says that the message, which is refused, is not known to come from whom it
	// names: not even what it says by having come counts.
	Unauthenticated bool
	// SendBack says that whoever sent the message over a line that stays open is to get
	// Body; over HTTP it always is the response. A refusal is sent in any case.
	SendBack bool
	// Joined says that an agent has said that it is there to take work. Where it speaks
	// over a link that holds no connection, that puts it on the line.
	Joined bool
	// Concurrency is how many tasks the agent then takes at a time, 0 for not said.
	Concurrency int
	// MaxDepth is the depth from which on the agent takes nothing that was handed off, 0
	// for not said.
	MaxDepth int
	// Version is the version that is spoken with the agent from then on, "" for the
	// newest.
	Version string
	// RetryAfter is when the same may be sent again, 0 for not said.
	RetryAfter time.Duration
}
