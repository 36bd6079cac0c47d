package genesis

import (
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
)

// Event tells subscribers what happened (Genesis §3).
type Event struct {
	// EventType consists of words that are separated by full stops, such as workflow.completed.
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
	// OriginalFrom is the sender of an event that comet passes on, and OriginalID the id that the sender gave it, "" if they are
	// missing. The document does not have them.
	OriginalFrom string `json:"originalFrom,omitzero"`
	OriginalID   string `json:"originalId,omitzero"`
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

func isEventType(c *checker, path string, r rule, m member) {
	if text, ok := c.text(path, r, m); ok && (len(text) > maxName || !eventTypePattern.MatchString(text)) {
		c.mismatch(path, r, m, "")
	}
}

// eventRules are the rules of the members of an EVENT with the given guarantee.
func eventRules(guarantee Guarantee) []rule {
	return []rule{
		{name: "eventType", required: required, kind: '"', want: "words separated by full stops, such as workflow.completed", check: isEventType},
		name("eventName", required, maxName, "a name for people"),
		{name: "payload", required: required, want: "a JSON value, null if there is none", check: isShort, most: maxEventPayload},
		{name: "metadata", required: required, kind: '{', want: "an object with schemaVersion and contentType", check: hasFields, fields: []rule{
			name("schemaVersion", required, maxName, "the version of the payload's schema"),
			name("contentType", required, maxName, "the media type of the payload"),
			name("originalFrom", optional, maxName, "the sender of an event that was passed on"),
			name("originalId", optional, maxName, "the id that the sender gave the event"),
		}},
		word("deliveryGuarantee", string(AtMostOnce), string(AtLeastOnce), string(ExactlyOnce)),
		name("deduplicationId", guarantee == ExactlyOnce, maxName, "an id that all repetitions of the event share"),
	}
}
