package genesis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"comet/internal/protocol"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// received is a message whose sender is known.
type received struct {
	wire.Message

	raw []byte
	by  models.Principal
	// agentID is the agent that sends it, "" for a client.
	agentID string
	// form is the form that the signature covers, AsSent for an unsigned message.
	form  wire.Form
	trace string
}

// value returns a value of the message as its signature covers it. The profile v1 covers only the payload.
func (r received) value(name string, unsigned jsontext.Value) json.RawMessage {
	if signed := r.SignedValue(name, r.form); signed != nil {
		return json.RawMessage(signed)
	}
	return json.RawMessage(unsigned)
}

// accepted returns the reply to a message whose effect is committed.
func accepted(taskID string) protocol.Reply {
	reply := protocol.Reply{Status: http.StatusAccepted}
	if taskID != "" {
		reply.Location = "/api/v1/tasks/" + taskID
	}
	return reply
}

// responseTo returns an unsigned response to a received REQUEST.
func (p *Protocol) responseTo(m wire.Message, body wire.Response) wire.Message {
	body.RequestID = m.ID
	return wire.Message{To: m.From, CorrelationID: cmp.Or(m.CorrelationID, m.ID), Body: body}
}

// newID returns the id of a new message. NewV7 fails only if the system has no random numbers, and then Go ends the process.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// replyWith puts a signed message into a reply.
func (p *Protocol) replyWith(ctx context.Context, reply protocol.Reply, m wire.Message) (protocol.Reply, error) {
	body, err := p.sign(ctx, m)
	reply.Body, reply.ContentType = body, contentJSON
	return reply, err
}

const contentJSON = "application/json"

// eventAck is the type of the EVENT that acknowledges a message (docs/genesis.md “Acknowledgements”).
const eventAck = "message.ack"

// event returns an EVENT of comet.
func event(kind, name string, payload []byte) wire.Event {
	return wire.Event{EventType: kind, EventName: name, Payload: payload, Metadata: wire.Metadata{SchemaVersion: wire.Version, ContentType: contentJSON}, DeliveryGuarantee: wire.AtMostOnce}
}

// printable returns a value that a message may contain: the value, or a JSON string with its text.
func printable(value jsontext.Value) jsontext.Value {
	if wire.Fits(value) {
		return value
	}
	return resultValue(string(value), true)
}

// resultValue returns a result as a JSON value that a message can contain.
func resultValue(output string, text bool) jsontext.Value {
	if value := jsontext.Value(output); !text && value.IsValid() && wire.Fits(value) {
		return value
	}
	quoted, _ := jsontext.AppendQuote(nil, strings.ReplaceAll(strings.ToValidUTF8(output, "\uFFFD"), "\x00", "\uFFFD")) // valid UTF-8
	return quoted
}

// uuidOf returns the id of a task as a UUID.
func uuidOf(taskID string) string {
	if id, err := uuid.Parse(taskID); err == nil && len(taskID) == 36 {
		return id.String()
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("comet:task:"+taskID)).String()
}

// fingerprint returns a hash of all bytes of a message. Two messages with the same id are equal if their hashes are.
func fingerprint(m received) string {
	sum := sha256.Sum256(m.raw)
	return hex.EncodeToString(sum[:])
}

// The intents that this package handles itself.
const (
	intentCancel = "cancel_task"
	// intentClarify asks a question about a task, or answers one. The document has no message for it.
	intentClarify = "clarify"
)

// questionPrefix begins the correlationId of a question to the requester of a task. The rest is the id of the task.
const questionPrefix = "question:"
