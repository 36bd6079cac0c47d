package genesis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/protocol"
	"comet/internal/pubsub"
	wire "comet/internal/wire/genesis"
	"comet/models"
	"comet/store"
)

// errRepeated ends the transaction of a message that has taken effect before.
var errRepeated = errors.New("the message has taken effect before")

// publish publishes an EVENT (Genesis §Publish-Subscribe Pattern). The body of the reply is an acknowledgement.
func (p *Protocol) publish(ctx context.Context, m received, body wire.Event) (protocol.Reply, error) {
	d := pubsub.Draft{
		From: m.From, To: m.To, Type: body.EventType, Name: body.EventName, Payload: m.value("payload", body.Payload),
		SchemaVersion: body.Metadata.SchemaVersion, ContentType: body.Metadata.ContentType, Guarantee: string(body.DeliveryGuarantee),
		DeduplicationID: body.DeduplicationID, MessageID: m.ID, Trace: m.trace,
	}
	if m.To == wire.Broadcast || m.To == models.RootAgentID {
		d.To = ""
	}
	content, err := fingerprint(m), error(nil)
	switch {
	case m.agentID == "":
	case body.DeliveryGuarantee == wire.AtMostOnce && !auth.SignatureOnly(m.by): // without a token, every reader of a message could send it again
		first, repeated, _ := p.fleeting.PeekOrAdd([2]string{m.agentID, strings.ToLower(m.ID)}, content)
		if repeated && first != content {
			return protocol.Reply{}, coded(wire.ErrorValidation, codeReplayed, http.StatusConflict, "/id", "another event with the id %s was received before; give each message an id of its own", m.ID)
		}
		if repeated {
			err = errRepeated
		}
	default:
		d.With = func(tx *store.Tx) error { return p.once(tx, m, content) }
	}
	var out pubsub.Published
	if err == nil {
		if out, err = p.Events.Publish(ctx, m.by, d); err != nil {
			p.fleeting.Remove([2]string{m.agentID, strings.ToLower(m.ID)}) // it may be sent again
		}
	}
	switch {
	case errors.Is(err, errRepeated):
		out = pubsub.Published{Replayed: true}
	case errs.Is(err, errs.Conflict):
		return protocol.Reply{}, coded(wire.ErrorValidation, codeDeduplication, http.StatusConflict, "/deduplicationId", "%s", errs.From(err).Detail)
	case err != nil:
		return protocol.Reply{}, input.Respell(err, "", map[string]string{
			"/type": "/eventType", "/name": "/eventName", "/metadata/schema_version": "/metadata/schemaVersion", "/metadata/content_type": "/metadata/contentType",
			"/guarantee": "/deliveryGuarantee", "/deduplication_id": "/deduplicationId",
		})
	}
	ack := map[string]any{"originalMessageId": m.ID, "stage": stageAccepted, "replayed": out.Replayed}
	if out.ID != "" { // a repeated message has none
		ack["eventId"], ack["subscribers"] = out.ID, out.Subscribers
	}
	payload, err := json.Marshal(ack)
	if err != nil {
		return protocol.Reply{}, err
	}
	return p.replyWith(ctx, accepted(""), wire.Message{To: m.From, Body: event(eventAck, "message acknowledged", payload)})
}

// published returns the EVENT of a publication. comet signs it, so that its sender is a member of the metadata.
func published(of models.Publication) wire.Message {
	return wire.Message{ID: of.ID, Body: wire.Event{
		EventType: of.Type, EventName: cmp.Or(of.Name, of.Type), Payload: printable(jsontext.Value(of.Payload)), DeliveryGuarantee: wire.Guarantee(of.Guarantee), DeduplicationID: of.DeduplicationID,
		Metadata: wire.Metadata{SchemaVersion: of.SchemaVersion, ContentType: of.ContentType, OriginalFrom: of.From, OriginalID: of.MessageID},
	}}
}

// once marks a message of an agent as accepted. It returns errRepeated for a message that was, and a refusal for another one with its id.
func (p *Protocol) once(tx *store.Tx, m received, content string) error {
	repeated, err := p.Keys.TakeMessage(tx, Name, m.agentID, strings.ToLower(m.ID), []byte(content))
	switch {
	case repeated:
		return errRepeated
	case errs.Is(err, errs.Conflict):
		return coded(wire.ErrorValidation, codeReplayed, http.StatusConflict, "/id", "%s", errs.From(err).Detail)
	}
	return err
}
