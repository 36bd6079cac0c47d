package genesis

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Request asks for work (Genesis §1).
type Request struct {
	// Intent is the name of a capability.
	Intent string `json:"intent"`
	// Confidence, from 0 to 1, is that of the sender in the intent.
	Confidence float64  `json:"confidence"`
	Entities   []Entity `json:"entities"`
	// Payload is any JSON value, also null.
	Payload jsontext.Value `json:"payload"`
	// Context is an object.
	Context  jsontext.Value `json:"context"`
	Priority Priority       `json:"priority"`
	// TimeoutMS limits the total time, TTLMS the time since the timestamp, 0 for no limit.
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
// does (Genesis §Priority Levels); Parse accepts its name, too.
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

// request reads the members of a REQUEST.
func (o *object) request() Request {
	r := Request{
		Intent:     o.name("intent", required, maxIntent, "the name of a capability such as analyze_data"),
		Confidence: valueOf(o.confidence(required)),
		Entities:   o.entities(),
		Payload:    o.anyValue("payload", required),
		Context:    o.free("context", required, "an object, {} if there is no context"),
		Priority:   o.priority(),
		TimeoutMS:  o.milliseconds("timeout"),
		TTLMS:      o.milliseconds("ttl"),
	}
	if len(r.Context) > maxContext {
		o.report("context", "is longer than %d bytes", maxContext)
	}
	if in, ok := o.inner("options", required, "an object, {} for no option"); ok {
		r.Options = Options{
			RequiresAck:          valueOf(in.boolean("requiresAck", optional)),
			RequiresResponse:     in.boolean("requiresResponse", optional),
			AllowPartialResponse: valueOf(in.boolean("allowPartialResponse", optional)),
			MaxResponseTimeMS:    in.milliseconds("maxResponseTime"),
			Stream:               valueOf(in.boolean("stream", optional)),
		}
		in.end()
	}
	return r
}

func (o *object) priority() Priority {
	const want = "LOW, NORMAL, HIGH or CRITICAL, or their numbers 0 to 3"
	m := o.get("priority", required, want)
	if m == nil {
		return Low
	}
	for p, name := range priorityNames() {
		if text := string(m.printed); text == `"`+name+`"` || text == fmt.Sprint(p) {
			return Priority(p)
		}
	}
	o.mismatch("priority", required, want, m.sent)
	return Low
}

func (o *object) entities() []Entity {
	const want = "an array of entities, [] if there is none"
	array := o.array("entities", required, maxEntities, want)
	if array == nil {
		return nil
	}
	all := make([]Entity, len(array.members))
	for i := range all {
		in, ok := array.inner(array.members[i].name, required, "an object with type, value and confidence")
		if !ok {
			continue
		}
		e := Entity{
			Type:        in.name("type", required, maxName, "the type of the entity"),
			Value:       in.prose("value", "the found text"),
			Confidence:  valueOf(in.confidence(required)),
			StartOffset: in.integer("startOffset", optional, 0, maxOffset, "a number of UTF-16 code units"),
			EndOffset:   in.integer("endOffset", optional, 0, maxOffset, "a number of UTF-16 code units"),
			Metadata:    in.free("metadata", optional, "an object"),
		}
		if e.StartOffset != nil && e.EndOffset != nil && *e.StartOffset > *e.EndOffset {
			in.report("endOffset", "must not be less than startOffset, which is %d", *e.StartOffset)
		}
		in.end()
		all[i] = e
	}
	return all
}

// anyValue returns a value of any kind as it was received, nil if it is missing.
func (o *object) anyValue(name string, p presence) jsontext.Value {
	if m := o.get(name, p, "a JSON value, null if there is none"); m != nil {
		return m.received()
	}
	return nil
}
