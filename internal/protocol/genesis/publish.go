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
	// Without a token, every reader of a message could send it again.
	if m.agentID != "" && (body.DeliveryGuarantee != wire.AtMostOnce || auth.Speaks(m.by)) {
		content := []byte(fingerprint(m))
		d.With = func(tx *store.Tx) error {
			repeated, err := p.Keys.TakeMessage(tx, Name, m.agentID, strings.ToLower(m.ID), content)
			switch {
			case repeated:
				return errRepeated
			case errs.Is(err, errs.Conflict):
				return coded(wire.ErrorValidation, codeReplayed, http.StatusConflict, "/id", "%s", errs.From(err).Detail)
			}
			return err
		}
	}
	out, err := p.Events.Publish(ctx, m.by, d)
	switch {
	case errors.Is(err, errRepeated):
		out = pubsub.Published{Replayed: true}
	case errs.Is(err, errs.Conflict):
		return protocol.Reply{}, coded(wire.ErrorValidation, codeDeduplication, http.StatusConflict, "/deduplicationId", "%s", errs.From(err).Detail)
	case err != nil:
		return protocol.Reply{}, err
	}
	payload, err := json.Marshal(map[string]any{"originalMessageId": m.ID, "stage": stageAccepted, "eventId": out.ID, "subscribers": out.Subscribers, "replayed": out.Replayed})
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
