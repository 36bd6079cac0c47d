package genesis

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Request asks for work (Genesis §1).
type Request struct {
	// Intent is the name of a capability.
	Intent string `json:"intent"`
	// Confidence is how certain the sender is of the intent, from 0 to 1.
	Confidence float64  `json:"confidence"`
	Entities   []Entity `json:"entities"`
	// Payload is any JSON value, also null.
	Payload jsontext.Value `json:"payload"`
	// Context is an object.
	Context  jsontext.Value `json:"context"`
	Priority Priority       `json:"priority"`
	// TimeoutMS limits the total time, TTLMS the time since the timestamp. 0 means no limit.
	TimeoutMS int64   `json:"timeout,omitzero"`
	TTLMS     int64   `json:"ttl,omitzero"`
	Options   Options `json:"options"`
}

// Type implements Body.
func (Request) Type() Type { return TypeRequest }

// Entity is a value that the sender found in a text (Genesis §Extraction d'Entités).
type Entity struct {
	Type       string  `json:"type"`
	Value      string  `json:"value"`
	Confidence float64 `json:"confidence"`
	// StartOffset and EndOffset count UTF-16 code units.
	StartOffset *int64 `json:"startOffset,omitzero"`
	EndOffset   *int64 `json:"endOffset,omitzero"`
	// Metadata is an object, nil if it is missing.
	Metadata jsontext.Value `json:"metadata,omitzero"`
}

// Options are the options of a REQUEST.
type Options struct {
	RequiresAck bool `json:"requiresAck,omitzero"`
	// RequiresResponse is nil if it is missing.
	RequiresResponse     *bool `json:"requiresResponse,omitzero"`
	AllowPartialResponse bool  `json:"allowPartialResponse,omitzero"`
	// MaxResponseTimeMS is 0 for no limit.
	MaxResponseTimeMS int64 `json:"maxResponseTime,omitzero"`
	// Stream asks for partial responses (Genesis §Request-Stream Pattern).
	Stream bool `json:"stream,omitzero"`
}

// Priority is the priority of a REQUEST. Format writes its number, as the document's enumeration
// does (Genesis §Priority Levels); Parse also accepts its name.
type Priority int

// The priorities.
const (
	Low Priority = iota
	Normal
	High
	Critical
)

// String returns the name of the priority.
func (p Priority) String() string {
	if p < Low || p > Critical {
		return fmt.Sprintf("Priority(%d)", int(p))
	}
	return priorityNames()[p]
}

func priorityNames() []string { return []string{"LOW", "NORMAL", "HIGH", "CRITICAL"} }

// UnmarshalJSON implements json.Unmarshaler.
func (p *Priority) UnmarshalJSON(value []byte) error {
	text := string(appendString(nil, value))
	for i, name := range priorityNames() {
		if text == strconv.Quote(name) || text == strconv.Itoa(i) {
			*p = Priority(i)
			return nil
		}
	}
	return fmt.Errorf("there is no priority %s", describe(value))
}

func isPriority(c *checker, path string, r rule, m member) {
	if new(Priority).UnmarshalJSON(m.sent) != nil {
		c.mismatch(path, r, m, "")
	}
}

// requestRules are the rules of the members of a REQUEST.
func requestRules() []rule {
	offset := "a number of UTF-16 code units"
	entity := rule{required: required, kind: '{', want: "an object with type, value and confidence", check: hasFields, fields: []rule{
		name("type", required, maxName, "the type of the entity"),
		prose("value", "the text that was found"),
		confidence(required),
		integer("startOffset", 0, maxOffset, offset),
		integer("endOffset", 0, maxOffset, offset),
		details("metadata"),
	}}
	return []rule{
		name("intent", required, maxIntent, "the name of a capability such as analyze_data"),
		confidence(required),
		{name: "entities", required: required, kind: '[', want: "an array of entities, [] if there is none", check: hasElements, most: maxEntities, fields: []rule{entity}},
		{name: "payload", required: required, want: "a JSON value, null if there is none"},
		{name: "context", required: required, kind: '{', want: "an object, {} if there is no context", check: isShort, most: maxContext},
		{name: "priority", required: required, want: "LOW, NORMAL, HIGH or CRITICAL, or its number from 0 to 3", check: isPriority},
		milliseconds("timeout", 1),
		milliseconds("ttl", 1),
		{name: "options", required: required, kind: '{', want: "an object, {} for no option", check: hasFields, fields: []rule{
			boolean("requiresAck", optional), boolean("requiresResponse", optional), boolean("allowPartialResponse", optional),
			milliseconds("maxResponseTime", 1), boolean("stream", optional),
		}},
	}
}
