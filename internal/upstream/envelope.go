package upstream

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// envelope tells what a message that is too large to keep is an answer to: it looks at
// the outermost object of a JSON text as it passes by, and keeps nothing but the id.
type envelope struct {
	depth             int
	inString, escaped bool
	name, isName      bool   // a name is due; the string is one
	text              []byte // of the name, or of the value of id
	key               string
	id                []byte
	isRequest         bool
}

// maxToken is the longest name or id that is looked at.
const maxToken = 128

// feed reads the next part of the text.
func (e *envelope) feed(part []byte) {
	for _, b := range part {
		if e.inString {
			e.string(b)
			continue
		}
		e.plain(b)
	}
}

func (e *envelope) string(b byte) {
	switch {
	case e.escaped:
		e.escaped = false
	case b == '\\':
		e.escaped = true
	case b == '"':
		e.inString = false
		if e.isName {
			e.isName, e.name = false, false
			e.key, e.text = string(e.text), e.text[:0]
			e.isRequest = e.isRequest || e.key == "method"
			return
		}
	}
	e.keep(b)
}

func (e *envelope) plain(b byte) {
	switch b {
	case '{', '[':
		e.depth++
		e.name = e.depth == 1 && b == '{'
	case '}', ']':
		e.value()
		e.depth--
	case ',':
		e.value()
		e.name = e.depth == 1
	case '"':
		e.inString = true
		if e.isName = e.depth == 1 && e.name; e.isName {
			e.text = e.text[:0]
			return
		}
		e.keep(b)
	case ':', ' ', '\t', '\r', '\n':
	default:
		e.keep(b)
	}
}

// keep collects a name, or the value of id.
func (e *envelope) keep(b byte) {
	if (e.isName || e.depth == 1 && e.key == "id") && len(e.text) < maxToken {
		e.text = append(e.text, b)
	}
}

// value ends a value of the outermost object.
func (e *envelope) value() {
	if e.depth != 1 {
		return
	}
	if e.key == "id" {
		e.id = append([]byte(nil), e.text...)
	}
	e.key, e.text = "", e.text[:0]
}

// answers returns the id of the request that the message answers.
func (e *envelope) answers() (jsonrpc.ID, bool) {
	var raw any
	if e.isRequest || json.Unmarshal(e.id, &raw) != nil || raw == nil {
		return jsonrpc.ID{}, false
	}
	id, err := jsonrpc.MakeID(raw)
	return id, err == nil
}
