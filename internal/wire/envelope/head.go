package envelope

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxTaskID is the longest task id that Head returns, in bytes.
const maxTaskID = 64

// Head returns the type of a message and the task id in its payload, in lower case, "" for what is
// absent or malformed. It reads only as much of raw as it needs; the rest may be malformed.
func Head(raw []byte) (kind Type, taskID string) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '{' {
		return "", ""
	}
	for kind == "" || taskID == "" {
		token, err := dec.ReadToken()
		if err != nil {
			break
		}
		depth := dec.StackDepth()
		if in, n := dec.StackIndex(depth); in != '{' || n%2 == 0 || token.Kind() != '"' {
			continue // no name
		}
		name := token.String()
		if depth == 1 && name == "payload" {
			continue // to its members
		}
		value, err := dec.ReadValue()
		if err != nil {
			break
		}
		if value.Kind() != '"' {
			continue
		}
		switch text := string(unquote(value)); {
		case depth == 1 && name == "type":
			kind = Type(text)
		case depth == 2 && name == "task_id" && len(text) <= maxTaskID: // other objects are skipped
			taskID = strings.ToLower(text)
		}
	}
	return kind, taskID
}
