package genesis

import (
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Form is a text of a message that a signature covers.
type Form int

const (
	// AsSent is the form of the profile v1: id, type, from, to, intent, payload and timestamp in this
	// order, those that the message has, without white space and otherwise as they were sent.
	AsSent Form = iota
	// AsJavaScript is the form of the profile v1 in JavaScript: the same members as JSON.stringify
	// prints them after JSON.parse (Genesis §Signature). It lets senders that escape more than
	// JavaScript be verified, and is the form that comet signs. Numbers are doubles in it.
	AsJavaScript
	// JCS is the form of the profile jcs: all members but signature and signatureJcs, canonicalized
	// according to RFC 8785. Numbers are doubles in it.
	JCS
)

// signedV1 returns the names of the members that the profile v1 signs.
func signedV1() []string {
	return []string{"id", "type", "from", "to", "intent", "payload", "timestamp"}
}

// Signed returns a text that a signature covers, of the message as Parse received it or as Sign
// rendered it, or of its fields if it comes from neither. Only JCS can fail for a received message:
// RFC 8785 has no form for repeated names and halves of surrogate pairs.
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

// SignedPayload returns the payload of a REQUEST or an EVENT as a signature of the given form covers
// it, nil if there is none. Only this text is what the signer has signed: a message with another
// spelling of it, such as another integer with the same double, has the same forms AsJavaScript and
// JCS.
func (m Message) SignedPayload(form Form) jsontext.Value {
	payload := find(m.members, "payload")
	switch {
	case payload == nil:
		return nil
	case form == AsSent:
		return payload.received()
	}
	return payload.printed
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

// join returns the object of the members with a value of each.
func join(members []member, value func(member) jsontext.Value) []byte {
	text := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			text = append(text, ',')
		}
		text, _ = jsontext.AppendQuote(text, m.name) // valid UTF-8
		text = append(append(text, ':'), value(m)...)
	}
	return append(text, '}')
}
