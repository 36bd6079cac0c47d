package genesis

import (
	"crypto/ed25519"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"comet/internal/input"
)

// Parse parses a message. An error is an *Error that names every problem. With an error the message
// contains those members outside of the body that could be read, so that a reply can echo them. With
// CodeSignatureRequired only the signature or the public key is missing, and the message is otherwise
// complete, for a caller that accepts unsigned messages.
//
// Parse accepts unknown members, because the profile jcs also signs them: a receiver that removed or
// rejected them could not verify messages of later versions. It rejects unknown members whose names
// differ from a known one only in case, _ and -: other receivers may read such a member instead of the
// known one, and the profile v1 does not sign most members. It also rejects a message or an object of
// the protocol that repeats a name. In values that the protocol does not define, such as a payload, the
// last of repeated members counts, as in JavaScript.
//
// The message refers to raw, which must not be changed while it is used.
func Parse(raw []byte) (Message, error) {
	m, missing, err := check(raw)
	if err != nil {
		return m, err
	}
	if slices.ContainsFunc(m.members, func(m member) bool { return m.repeats }) {
		raw = join(m.members, member.received)
	}
	if err := m.read(raw); err != nil {
		return m, invalid(problemAt("", "cannot be read: %s", err))
	}
	if len(missing) > 0 {
		return m, &Error{Code: CodeSignatureRequired, Problems: missing}
	}
	return m, nil
}

// check reads the members of a message and those fields before the body that are valid, and checks all members. missing has
// the problems of a message that only lacks its signature or public key.
func check(raw []byte) (m Message, missing []Problem, err error) {
	members, problem := readMessage(raw)
	m = Message{Type: Type(textOf(members, "type")), members: members}
	c := &checker{}
	c.object("", members, m.rules())
	m.readHeader(c.problems)
	version := textOf(members, "version")
	switch {
	case problem != nil:
		return m, nil, invalid(*problem)
	case version != "" && version != Version && version != Version+".0":
		m.readSignature(c.problems)
		return m, nil, &Error{Code: CodeUnsupportedVersion, Problems: []Problem{
			problemAt("/version", "must be %q, not %s", Version, input.Quote(version)),
		}}
	}
	m.readSignature(c.problems)
	if slices.ContainsFunc(c.problems, m.isMistake) {
		return m, nil, invalid(c.problems...)
	}
	return m, c.problems, nil
}

// isMistake reports whether a problem is something other than a missing signature or public key.
func (m *Message) isMistake(p Problem) bool {
	return p.Pointer != "/signature" && p.Pointer != "/publicKey" || find(m.members, p.Pointer[1:]) != nil
}

// readHeader reads those members before the body that have no problem.
func (m *Message) readHeader(problems []Problem) {
	text := func(name string) string {
		if slices.ContainsFunc(problems, func(p Problem) bool { return p.Pointer == "/"+name }) {
			return ""
		}
		return textOf(m.members, name)
	}
	m.ID, m.From, m.To = text("id"), text("from"), text("to")
	if m.Type = Type(text("type")); m.Type != TypeEvent {
		m.CorrelationID = text("correlationId")
	}
}

// readSignature reads the members that verify the sender of a message, which may be invalid in other ways.
func (m *Message) readSignature(problems []Problem) {
	if slices.ContainsFunc(problems, func(p Problem) bool {
		return slices.Contains([]string{"/timestamp", "/signature", "/signatureJcs", "/publicKey"}, p.Pointer) && find(m.members, p.Pointer[1:]) != nil
	}) {
		return
	}
	if at := find(m.members, "timestamp"); at != nil {
		m.Timestamp, _ = strconv.ParseInt(string(at.sent), 10, 64)
	}
	m.Signature, _ = decodeBase64(textOf(m.members, "signature")) // nil if it is missing
	m.SignatureJCS, _ = decodeBase64(textOf(m.members, "signatureJcs"))
	m.PublicKey, _ = ParsePublicKey(textOf(m.members, "publicKey"))
}

// read reads the body of a valid message.
func (m *Message) read(raw []byte) (err error) {
	switch m.Type {
	case TypeRequest:
		m.Body, err = decode[Request](raw)
	case TypeResponse:
		m.Body, err = decode[Response](raw)
	case TypeEvent:
		m.Body, err = decode[Event](raw)
	case TypeError:
		m.Body, err = decode[Failure](raw)
	}
	return err
}

func decode[T Body](raw []byte) (Body, error) {
	var body T
	err := json.Unmarshal(raw, &body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return body, err
}

// headerRules are the rules of the members before the body of a message of the given type.
func headerRules(t Type) []rule {
	to := name("to", t != TypeEvent, maxName, "the id of an agent, or "+Broadcast)
	if t == TypeResponse || t == TypeError {
		to = agent("to", required)
	}
	rules := []rule{
		{name: "id", required: required, kind: '"', want: uuidWant, check: isUUID},
		word("type", string(TypeRequest), string(TypeResponse), string(TypeEvent), string(TypeError)),
		{name: "version", required: required, kind: '"', want: strconv.Quote(Version), check: isName, most: maxName},
		agent("from", required),
		to,
	}
	if t == TypeEvent {
		return rules
	}
	return append(rules, name("correlationId", t == TypeResponse, maxName, "the id that a REQUEST and its RESPONSE share"))
}

// ruleSets returns the rules of all members by the type of the message and the value of a member that changes them.
var ruleSets = sync.OnceValue(func() map[[2]string][]rule { //nolint:gochecknoglobals // made once, never changed
	sets := map[[2]string][]rule{{}: nil, {string(TypeRequest)}: requestRules(), {string(TypeError)}: failureRules()}
	for _, status := range []Status{"", Succeeded, Failed} {
		sets[[2]string{string(TypeResponse), string(status)}] = responseRules(status)
	}
	for _, guarantee := range []Guarantee{"", ExactlyOnce} {
		sets[[2]string{string(TypeEvent), string(guarantee)}] = eventRules(guarantee)
	}
	for key, body := range sets {
		sets[key] = slices.Concat(headerRules(Type(key[0])), body, signatureRules())
	}
	return sets
})

// rules returns the rules of the members of a message.
func (m *Message) rules() (rules []rule) {
	key, found := [2]string{string(m.Type)}, false
	switch m.Type {
	case TypeResponse:
		key[1] = textOf(m.members, "status")
	case TypeEvent:
		key[1] = textOf(m.members, "deliveryGuarantee")
	}
	for _, k := range [][2]string{key, {key[0]}, {}} {
		if rules, found = ruleSets()[k]; found {
			break
		}
	}
	return rules
}

// signatureRules are the rules of the members after the body.
func signatureRules() []rule {
	timestamp := integer("timestamp", 1, math.MaxInt64, "nanoseconds since 1970")
	timestamp.required = true
	const signature = "an Ed25519 signature: 64 bytes in base64"
	return []rule{
		timestamp,
		{name: "signature", required: required, kind: '"', want: signature, check: isSignature},
		{name: "signatureJcs", kind: '"', want: signature, check: isSignature},
		{name: "publicKey", required: required, kind: '"', want: keyWant, check: isKey},
	}
}

const (
	uuidForm = "8f14e45f-ceea-467f-a1d0-7c1b2f0e9a11"
	uuidWant = "a UUID such as " + uuidForm
)

// isUUID accepts a UUID in the form with hyphens.
func isUUID(c *checker, path string, r rule, m member) {
	text, ok := c.text(path, r, m)
	if id, err := uuid.Parse(text); ok && (err != nil || len(text) != len(uuidForm) || id == uuid.Nil) {
		c.mismatch(path, r, m, "")
	}
}

func isSignature(c *checker, path string, r rule, m member) {
	text, ok := c.text(path, r, m)
	if raw, err := decodeBase64(text); ok && (err != nil || len(raw) != ed25519.SignatureSize) {
		c.mismatch(path, r, m, "")
	}
}

func isKey(c *checker, path string, r rule, m member) {
	text, ok := c.text(path, r, m)
	if _, err := ParsePublicKey(text); ok && err != nil {
		c.report(path, r.name, "must be %s: %s", r.want, err)
	}
}
