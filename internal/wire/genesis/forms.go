package genesis

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Form says which text of a message a signature covers.
type Form int

const (
	// AsSent is the form of the profile v1. It consists of those of the members id, type, from, to, intent,
	// payload and timestamp that the message has, in this order, as they were sent but without white space.
	AsSent Form = iota
	// AsJavaScript is the form of the profile v1 in JavaScript: the same members as JSON.stringify
	// prints them after JSON.parse (Genesis §Signature). comet signs this form. It also matches
	// signatures of senders that sign this form but send more escapes than JavaScript. Its numbers are doubles.
	AsJavaScript
	// JCS is the form of the profile jcs: all members except signature and signatureJcs, canonicalized
	// according to RFC 8785. Its numbers are doubles.
	JCS
)

// signedV1 returns the names of the members that the profile v1 signs.
func signedV1() []string {
	return []string{"id", "type", "from", "to", "intent", "payload", "timestamp"}
}

// Signed returns the text that a signature of the given form covers. For a
// message from Parse or Sign, it is the text that Parse received or Sign rendered; for another message it
// is rendered from the fields. For a received message only JCS can fail: RFC 8785 has no form for repeated
// names and halves of surrogate pairs.
func (m Message) Signed(form Form) ([]byte, error) {
	members := m.members
	if members == nil {
		var err error
		if members, err = m.render(); err != nil {
			return nil, err
		}
	}
	if form == JCS {
		return canonical(members)
	}
	var signed []member
	for _, name := range signedV1() {
		if m := find(members, name); m != nil {
			signed = append(signed, *m)
		}
	}
	if form == AsJavaScript {
		return join(signed, member.javaScript), nil
	}
	text := jsontext.Value(join(signed, member.asSent))
	_ = text.Compact() // the values are valid
	return text, nil
}

// SignedValue returns the value of a member, such as payload or data, as a signature of the given form
// covers it, nil if the form does not cover it. Use it instead of the value in the body if only what the
// sender has signed may count: if someone replaces an integer by another one with the same double, the
// body changes, but the forms AsJavaScript and JCS do not.
func (m Message) SignedValue(name string, form Form) jsontext.Value {
	found := find(m.members, name)
	switch {
	case found == nil, form != JCS && !slices.Contains(signedV1(), name):
		return nil
	case form == AsSent:
		return found.received()
	}
	return found.printed
}

// canonical returns the form JCS.
func canonical(members []member) ([]byte, error) {
	signed := slices.DeleteFunc(slices.Clone(members), func(m member) bool {
		return m.name == "signature" || m.name == "signatureJcs"
	})
	text := jsontext.Value(join(signed, member.asSent))
	if err := text.Canonicalize(); err != nil {
		pointer := ""
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			pointer, err = string(syntactic.JSONPointer), syntactic.Err
		}
		return nil, invalid(problemAt(pointer, "has no canonical form (RFC 8785): %s", err))
	}
	return text, nil
}

// join returns an object with the given value of each member.
func join(members []member, value func(member) jsontext.Value) []byte {
	size := 2
	for _, m := range members {
		size += len(m.name) + len(value(m)) + len(`"":,`)
	}
	text := append(make([]byte, 0, size), '{')
	for i, m := range members {
		if i > 0 {
			text = append(text, ',')
		}
		text, _ = jsontext.AppendQuote(text, m.name) // valid UTF-8
		text = append(append(text, ':'), value(m)...)
	}
	return append(text, '}')
}
