package envelope

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// tokenMember is the custom field that carries the bearer token on transports without headers
// (Chiffon §Authentication, "message field").
const tokenMember = "auth_token"

// RemoveToken removes the bearer token from the custom fields and returns it, "" if there is none.
// The other custom fields stay unchanged. The envelope must be one that Parse has returned.
func (e *Envelope) RemoveToken() string {
	if len(e.Custom) == 0 {
		return ""
	}
	token, found := "", false
	var rest bytes.Buffer
	for name, value := range members(e.Custom) {
		if string(name) != tokenMember {
			writeMember(&rest, name, value)
			continue
		}
		if found = true; kindOf(value) == '"' {
			token = string(unquote(value))
		}
	}
	if found {
		e.Custom = closeObject(&rest)
	}
	return token
}

func writeMember(b *bytes.Buffer, name, value []byte) {
	b.WriteByte(',')
	quoted, _ := jsontext.AppendQuote(nil, name) // name comes from valid JSON
	b.Write(quoted)
	b.WriteByte(':')
	b.Write(value)
}

// closeObject returns the object whose members are in b, each with a comma before it.
func closeObject(b *bytes.Buffer) []byte {
	b.WriteByte('}')
	object := b.Bytes()
	if object[0] == ',' {
		object[0] = '{'
		return object
	}
	return []byte("{}")
}

// CutToken is RemoveToken for a message as it was received. It returns the rest of the message, or
// data unchanged if there is no token or data is not an object.
func CutToken(data []byte) (token string, rest []byte) {
	if len(data) > MaxSize || !jsontext.Value(data).IsValid() || kindOf(bytes.TrimSpace(data)) != '{' {
		return "", data
	}
	var all bytes.Buffer
	found := false
	for name, value := range members(data) {
		if string(name) == "x_custom_fields" && kindOf(value) == '{' {
			e := Envelope{Custom: value}
			if t := e.RemoveToken(); len(e.Custom) != len(value) {
				token, value, found = t, e.Custom, true
			}
		}
		writeMember(&all, name, value)
	}
	if !found {
		return "", data
	}
	return token, closeObject(&all)
}
