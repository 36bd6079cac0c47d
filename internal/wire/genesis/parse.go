package genesis

import (
	"crypto/ed25519"
	"math"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"comet/internal/input"
)

// Parse parses a message. An error is an *Error that names every problem. The message then contains
// the members around the body that could be read, so that a reply can echo them; if the code is
// CodeSignatureRequired, it is complete except for the signature or the public key, for a caller
// that accepts unsigned messages.
//
// Unknown members are accepted, because the profile jcs signs them too: a receiver that removed or
// refused them could not verify the messages of later versions. Parse refuses those that differ from
// a known name only in case, _ and -, because the protocol v1 does not sign most members, and other
// receivers may read such a member instead of the known one. A message or an object of the protocol
// that repeats a name is refused, too. In values that the protocol does not define, such as a
// payload, the last one of repeated members counts, as in JavaScript.
//
// The raw parts of the message are slices of raw, which must not be changed while they are used.
func Parse(raw []byte) (Message, error) {
	members, problem := readMessage(raw)
	var problems []Problem
	o := &object{problems: &problems, members: members}
	m, version := o.header()
	switch {
	case problem != nil:
		return m, invalid(*problem)
	case version != "" && version != Version && version != Version+".0":
		return m, &Error{Code: CodeUnsupportedVersion, Problems: []Problem{
			problemAt("/version", "must be %q, not %s", Version, input.Quote(version)),
		}}
	}
	body := o.body(m.Type)
	m.Timestamp = valueOf(o.integer("timestamp", required, 1, math.MaxInt64, "nanoseconds since 1970"))
	before := len(problems)
	missing := o.signatures(&m)
	o.end()
	switch {
	case len(problems) == 0:
		m.Body, m.members = body, members
		return m, nil
	case before == 0 && missing == len(problems):
		m.Body, m.members = body, members
		return m, &Error{Code: CodeSignatureRequired, Problems: problems}
	}
	return m, invalid(problems...)
}

// header reads the members before the body. Which of them are required depends on the type.
func (o *object) header() (m Message, version string) {
	m.ID = o.uuid("id")
	m.Type = oneOf(o, "type", TypeRequest, TypeResponse, TypeEvent, TypeError)
	version = o.text("version", required, strconv.Quote(Version), func(text string) bool { return text != "" })
	if m.From = o.agent("from", required); m.From == Broadcast {
		o.report("from", "must be the id of the sender, not %s", input.Quote(Broadcast))
	}
	if m.To = o.agent("to", presence(m.Type != TypeEvent)); m.To == Broadcast && (m.Type == TypeResponse || m.Type == TypeError) {
		o.report("to", "must be the id of one agent, not %s", input.Quote(Broadcast))
	}
	if m.Type != TypeEvent {
		m.CorrelationID = o.name("correlationId", presence(m.Type == TypeResponse), maxName, "the id that a REQUEST and its RESPONSE have in common")
	}
	return m, version
}

func (o *object) agent(name string, p presence) string {
	return o.name(name, p, maxName, "the id of an agent")
}

// uuid returns a required UUID in the spelling of the sender.
func (o *object) uuid(name string) string {
	const form = "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11"
	return o.text(name, required, "a UUID such as "+form, func(text string) bool {
		id, err := uuid.Parse(text)
		return err == nil && len(text) == len(form) && id != uuid.Nil
	})
}

func (o *object) body(t Type) Body {
	switch t {
	case TypeRequest:
		return o.request()
	case TypeResponse:
		return o.response()
	case TypeEvent:
		return o.event()
	case TypeError:
		return o.failure()
	}
	return nil
}

// signatures reads the members behind the body, and returns how many of the required ones are
// missing.
func (o *object) signatures(m *Message) (missing int) {
	m.Signature = o.signature("signature", required)
	m.SignatureJCS = o.signature("signatureJcs", optional)
	key := o.text("publicKey", required, keyWant, func(text string) bool { return len(text) <= maxKey })
	if key != "" {
		var err error
		if m.PublicKey, err = ParsePublicKey(key); err != nil {
			o.report("publicKey", "must be %s: %s", keyWant, err)
		}
	}
	for _, name := range []string{"signature", "publicKey"} {
		if !slices.ContainsFunc(o.members, func(m member) bool { return m.name == name }) {
			missing++
		}
	}
	return missing
}

func (o *object) signature(name string, p presence) []byte {
	var signature []byte
	o.text(name, p, "an Ed25519 signature: 64 bytes in base64", func(text string) bool {
		raw, err := decodeBase64(text)
		if err != nil || len(raw) != ed25519.SignatureSize {
			return false
		}
		signature = raw
		return true
	})
	return signature
}
