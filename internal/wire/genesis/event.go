package genesis

import (
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
)

// Event tells subscribers what happened (Genesis §3).
type Event struct {
	// EventType is words with full stops between them, such as workflow.completed.
	EventType string `json:"eventType"`
	// EventName is a name for people.
	EventName string `json:"eventName"`
	// Payload is any JSON value, also null.
	Payload           jsontext.Value `json:"payload"`
	Metadata          Metadata       `json:"metadata"`
	DeliveryGuarantee Guarantee      `json:"deliveryGuarantee"`
	// DeduplicationID is not "" if the guarantee is ExactlyOnce.
	DeduplicationID string `json:"deduplicationId,omitzero"`
}

// Type implements Body.
func (Event) Type() Type { return TypeEvent }

// Metadata describes the payload of an EVENT.
type Metadata struct {
	SchemaVersion string `json:"schemaVersion"`
	ContentType   string `json:"contentType"`
}

// Guarantee says how often an EVENT reaches a subscriber (Genesis §Delivery Guarantees).
type Guarantee string

// The guarantees.
const (
	AtMostOnce  Guarantee = "at-most-once"
	AtLeastOnce Guarantee = "at-least-once"
	ExactlyOnce Guarantee = "exactly-once"
)

var eventTypePattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)

func isEventType(text string) bool { return len(text) <= maxName && eventTypePattern.MatchString(text) }

// event reads the members of an EVENT.
func (o *object) event() Event {
	e := Event{
		EventType: o.text("eventType", required, "words with full stops between them, such as workflow.completed", isEventType),
		EventName: o.name("eventName", required, maxName, "a name for people"),
		Payload:   o.anyValue("payload", required),
	}
	if len(e.Payload) > maxEventPayload {
		o.report("payload", "is longer than %d bytes", maxEventPayload)
	}
	if in, ok := o.inner("metadata", required, "an object with schemaVersion and contentType"); ok {
		e.Metadata = Metadata{
			SchemaVersion: in.name("schemaVersion", required, maxName, "the version of the payload's schema"),
			ContentType:   in.name("contentType", required, maxName, "the media type of the payload"),
		}
		in.end()
	}
	e.DeliveryGuarantee = oneOf(o, "deliveryGuarantee", AtMostOnce, AtLeastOnce, ExactlyOnce)
	e.DeduplicationID = o.name("deduplicationId", presence(e.DeliveryGuarantee == ExactlyOnce), maxName, "an id that repetitions of the event have in common")
	return e
}
