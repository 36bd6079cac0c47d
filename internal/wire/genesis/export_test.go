package genesis

import "github.com/go-json-experiment/json/jsontext"

// Exported for the tests of package genesis_test.
const (
	MaxDepth        = maxDepth
	MaxMembers      = maxMembers
	MaxEntities     = maxEntities
	MaxContext      = maxContext
	MaxEventPayload = maxEventPayload
	MaxIntent       = maxIntent
	MaxMilliseconds = maxMilliseconds
)

// JavaScript returns a JSON value as JavaScript prints it.
func JavaScript(value []byte) ([]byte, error) {
	p := newPrinter(value)
	err := p.value()
	return p.out, err
}

// Canonical returns an object in the form JCS.
func Canonical(object []byte) ([]byte, error) {
	members, problem := readMessage(object)
	if problem != nil {
		return nil, invalid(*problem)
	}
	return canonical(members)
}

// Sent returns the members of a message that the profile v1 signs as they were sent, "" for missing
// ones.
func (m Message) Sent() map[string]jsontext.Value {
	sent := map[string]jsontext.Value{}
	for _, m := range m.members {
		sent[m.name] = m.sent
	}
	return sent
}

// SignedV1 is signedV1.
var SignedV1 = signedV1

// String returns the name of the form.
func (f Form) String() string {
	switch f {
	case AsSent:
		return "as sent"
	case AsJavaScript:
		return "as JavaScript prints it"
	}
	return "JCS"
}
