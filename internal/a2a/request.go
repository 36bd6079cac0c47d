package a2a

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/input"
)

// sendRequest is the request of SendMessage and SendStreamingMessage.
type sendRequest struct {
	Tenant        string          `json:"tenant"`
	Message       json.RawMessage `json:"message"`
	Configuration struct {
		ReturnImmediately bool        `json:"returnImmediately"`
		HistoryLength     *int        `json:"historyLength"`
		Push              *pushConfig `json:"taskPushNotificationConfig"`
		// SDKPush is where the SDK for Go, and an example of the specification, have it.
		SDKPush *pushConfig `json:"pushNotificationConfig"`
	} `json:"configuration"`
	Metadata map[string]any `json:"metadata"`
}

// taskRequest is the request of GetTask, CancelTask and SubscribeToTask.
type taskRequest struct {
	Tenant        string `json:"tenant"`
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

// listRequest is the request of ListTasks.
type listRequest struct {
	Tenant               string        `json:"tenant"`
	ContextID            string        `json:"contextId"`
	Status               a2a.TaskState `json:"status"`
	PageSize             *int          `json:"pageSize"`
	PageToken            string        `json:"pageToken"`
	HistoryLength        *int          `json:"historyLength"`
	StatusTimestampAfter *time.Time    `json:"statusTimestampAfter"`
	IncludeArtifacts     bool          `json:"includeArtifacts"`
}

// cardRequest is the request of GetExtendedAgentCard.
type cardRequest struct {
	Tenant string `json:"tenant"`
}

// decode decodes the parameters of a call.
func decode[T any](params []byte) (out T, err error) {
	if len(params) == 0 {
		params = []byte("{}")
	}
	if params[0] != '{' {
		return out, fail(a2a.ErrInvalidParams, "the parameters must be an object")
	}
	if err := json.Unmarshal(params, &out); err != nil {
		return out, fail(a2a.ErrInvalidParams, "%s", shortError(err))
	}
	return out, nil
}

// checkJSON returns the error of a body that is not JSON.
func checkJSON(body []byte) error {
	var wrong *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &wrong) {
		return fail(a2a.ErrParseError, "the body is not JSON: %s at byte %d", wrong.Error(), wrong.Offset)
	}
	return nil
}

// shortError returns what is wrong with JSON, without names of types.
func shortError(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return "the value of " + strconv.Quote(wrong.Field) + " has the wrong type: " + wrong.Value
	}
	var late *time.ParseError
	if errors.As(err, &late) {
		return input.Quote(late.Value) + " must be a time such as 2026-01-10T15:30:00Z"
	}
	return err.Error()
}

// maxNesting is the depth to which names of members are converted. Deeper members have no names of A2A.
const maxNesting = 8

// camelCase converts the names of members to lowerCamelCase, because ProtoJSON also accepts the names of the fields. Members
// with content of clients keep theirs.
func camelCase(raw []byte, depth int) []byte {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || depth == maxNesting {
		return raw
	}
	var out []byte
	add := func(name string, value []byte) bool {
		if out = append(out, ','); name != "" {
			out = append(strconv.AppendQuote(out, name), ':')
		}
		out = append(out, value...)
		return true
	}
	ok, end := false, byte(0)
	switch raw[0] {
	case '{':
		end = '}'
		ok = input.EachMember(raw, func(name string, value []byte) bool {
			if !isPlainName(name) {
				return false
			}
			if name != "data" && name != "metadata" {
				value = camelCase(value, depth+1)
			}
			return add(lowerCamel(name), value)
		})
	case '[':
		end = ']'
		ok = input.EachElement(raw, func(value []byte) bool { return add("", camelCase(value, depth+1)) })
	}
	if !ok || len(out) == 0 {
		return raw
	}
	out[0] = raw[0]
	return append(out, end)
}

// isPlainName reports whether a name needs no escapes in JSON.
func isPlainName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

// lowerCamel converts snake_case.
func lowerCamel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	parts := strings.Split(name, "_")
	for i, w := range parts[1:] {
		if w != "" {
			parts[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return cmp.Or(strings.Join(parts, ""), name)
}
