package envelope

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
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
	input.EachMember(e.Custom, func(name string, value []byte) bool {
		if name != tokenMember {
			writeMember(&rest, name, value)
		} else if found = true; kindOf(value) == '"' {
			token = string(unquote(value))
		}
		return true
	})
	if found {
		e.Custom = closeObject(&rest)
	}
	return token
}

func writeMember(b *bytes.Buffer, name string, value []byte) {
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
	if len(data) > MaxSize {
		return "", data
	}
	var all bytes.Buffer
	found := false
	valid := input.EachMember(data, func(name string, value []byte) bool {
		if name == "x_custom_fields" && kindOf(value) == '{' {
			e := Envelope{Custom: value}
			if t := e.RemoveToken(); len(e.Custom) != len(value) {
				token, value, found = t, e.Custom, true
			}
		}
		writeMember(&all, name, value)
		return true
	})
	if !valid || !found {
		return "", data
	}
	return token, closeObject(&all)
}
