package genesis

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// Profile is the set of signatures that Sign adds to a message.
type Profile string

const (
	// ProfileV1 is the document's signature. It covers only the members of the form AsSent. It does not cover the
	// context, priority, limits and options of a REQUEST, or the content of a RESPONSE or an ERROR.
	ProfileV1 Profile = "v1"
	// ProfileJCS adds a signature of the whole message as signatureJcs.
	ProfileJCS Profile = "jcs"
)

// SignAndFormat is Sign, then Format, in one step.
func (m *Message) SignAndFormat(key ed25519.PrivateKey, profile Profile) ([]byte, error) {
	if err := m.Sign(key, profile); err != nil {
		return nil, err
	}
	members := slices.Clone(m.members)
	for name, signature := range map[string][]byte{"signature": m.Signature, "signatureJcs": m.SignatureJCS} {
		value := jsontext.Value(strconv.Quote(base64.StdEncoding.EncodeToString(signature)))
		if found := find(members, name); found != nil {
			found.sent = value
		} else if signature != nil {
			members = append(members, member{name: name, sent: value, printed: value})
		}
	}
	return join(members, member.asSent), nil
}

// Sign adds the public key and the signatures of the profile to the message. It cuts the timestamp to
// microseconds, which JavaScript prints exactly until the year 2116. If the fields are invalid or the
// message has no form JCS, it returns an *Error and leaves the message unchanged.
func (m *Message) Sign(key ed25519.PrivateKey, profile Profile) error {
	signed := *m
	signed.PublicKey, _ = key.Public().(ed25519.PublicKey)
	signed.Timestamp -= signed.Timestamp % int64(time.Microsecond)
	signed.Signature, signed.SignatureJCS = make([]byte, ed25519.SignatureSize), nil // for render
	members, err := signed.render()
	if err != nil {
		return err
	}
	signed.members = members
	text, _ := signed.Signed(AsJavaScript) // only JCS can fail
	signed.Signature = ed25519.Sign(key, text)
	if profile == ProfileJCS {
		text, err := signed.Signed(JCS)
		if err != nil {
			return err
		}
		signed.SignatureJCS = ed25519.Sign(key, text)
	}
	*m = signed
	return nil
}

// Verify verifies a received message in the given forms, in their order, and returns the first one
// with a valid signature. The signature of JCS is signatureJcs, that of the other forms is signature.
// An error is an *Error with CodeSignatureRequired or CodeSignatureInvalid, and is that of the last form.
// Verify ignores the public key in the message; the caller compares it with key.
func (m Message) Verify(key ed25519.PublicKey, forms ...Form) (Form, error) {
	if len(key) != ed25519.PublicKeySize {
		return 0, signatureError(CodeSignatureInvalid, "/publicKey", "is not one of the sender's keys")
	}
	var failed error = signatureError(CodeSignatureRequired, "/signature", "is not verified, because no form was given")
	for _, form := range forms {
		name, signature := "/signature", m.Signature
		if form == JCS {
			name, signature = "/signatureJcs", m.SignatureJCS
		}
		if len(signature) == 0 {
			failed = signatureError(CodeSignatureRequired, name, "is missing; sign the message")
			continue
		}
		text, err := m.Signed(form)
		if err != nil {
			failed = signatureError(CodeSignatureInvalid, name, "cannot be verified: %s", err)
			continue
		}
		if ed25519.Verify(key, text, signature) {
			return form, nil
		}
		failed = signatureError(CodeSignatureInvalid, name, "does not match the message; the sender's key must sign the text that the profile defines")
	}
	return 0, failed
}

func signatureError(code Code, pointer, format string, args ...any) *Error {
	return &Error{Code: code, Problems: []Problem{problemAt(pointer, format, args...)}}
}

// CheckTime returns an *Error with CodeClockSkew if the timestamp differs from now by more than
// MaxSkew.
func (m Message) CheckTime(now time.Time) error {
	skew := m.Time().Sub(now)
	if skew.Abs() <= MaxSkew {
		return nil
	}
	side, rounded := "after", (skew.Abs()-1).Truncate(time.Second)+time.Second // up, so that it is more than MaxSkew
	if skew < 0 {
		side = "before"
	}
	hint := ""
	for unit, name := range map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds", time.Microsecond: "microseconds"} {
		if off := m.Timestamp - now.UnixNano()/int64(unit); max(off, -off) < int64(24*time.Hour/unit) {
			hint = "; it seems to be in " + name + ", so multiply it by " + strconv.FormatInt(int64(unit), 10)
		}
	}
	return signatureError(CodeClockSkew, "/timestamp", "must be at most %s from the current time of comet, in nanoseconds since 1970, but is %s %s it%s",
		input.Duration(MaxSkew), input.Duration(rounded), side, hint)
}

// Format returns the fields of a message that Sign has signed as JSON on one line. It prints values as
// JavaScript does, so that the signed forms are the same for every receiver. It returns an *Error for
// a message that Parse rejects. It does not write unknown members: forward the bytes of a received message
// instead.
func (m Message) Format() ([]byte, error) {
	members, err := m.render()
	if err != nil {
		return nil, err
	}
	return join(members, member.asSent), nil
}

// render returns the members with the current values of the fields. All values except the timestamp are as
// JavaScript prints them.
func (m Message) render() ([]member, error) {
	if m.Body == nil {
		return nil, invalid(problemAt("", "has no body"))
	}
	m.Type = m.Body.Type()
	// The encoder accepts all values, because Parse checks them below.
	options := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true))
	head := struct {
		Message
		Version string `json:"version"`
	}{m, Version}
	var text []byte
	for _, part := range []any{head, m.Body} {
		object, err := json.Marshal(part, options)
		if err != nil {
			return nil, invalid(problemAt("", "cannot be written: %s", err))
		}
		if len(text) > 0 {
			text[len(text)-1], object = ',', object[1:] // in place of the braces between them
		}
		text = append(text, object...)
	}
	parsed, missing, err := check(text)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, &Error{Code: CodeSignatureRequired, Problems: missing}
	}
	for i, m := range parsed.members {
		if m.name != "timestamp" {
			parsed.members[i].sent, parsed.members[i].repeats = m.printed, false
		}
	}
	return parsed.members, nil
}
