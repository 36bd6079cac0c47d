package a2a

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/wire"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/webhooks"
)

// Limits of messages.
const (
	maxParts      = 100
	maxMessageID  = 128
	maxContextID  = 64
	maxInlineFile = 1 << 20 // bytes of a file in a message
	maxReply      = 16 << 10
	maxReplyJSON  = 64 << 10 // bytes of a whole message with a task
)

// message is a received message.
type message struct {
	*a2a.Message
	// digest is that of its content without its id, and of the tenant, the capability and the workflow of the request.
	digest string
	// push is the configuration of push notifications that came with it, nil for none.
	push *webhooks.TaskDraft
}

// readMessage decodes and validates a message of a client.
func readMessage(req sendRequest) (message, error) {
	raw := req.Message
	if len(raw) == 0 || string(raw) == "null" {
		return message{}, fail(a2a.ErrInvalidParams, "message is required")
	} else if raw[0] != '{' {
		return message{}, fail(a2a.ErrInvalidParams, "message must be an object")
	}
	m, err := decodeMessage(raw)
	switch {
	case err != nil:
		return message{}, err
	case m.ID == "" || len(m.ID) > maxMessageID || !isPrintable(m.ID):
		return message{}, fail(a2a.ErrInvalidParams, "message.messageId must have 1 to %d printable characters", maxMessageID)
	case m.Role != a2a.MessageRoleUser:
		return message{}, fail(a2a.ErrInvalidParams, "message.role must be ROLE_USER")
	case len(m.Parts) == 0 || len(m.Parts) > maxParts:
		return message{}, fail(a2a.ErrInvalidParams, "message.parts must have 1 to %d parts", maxParts)
	case len(m.ContextID) > maxContextID || !isPrintable(m.ContextID):
		return message{}, fail(a2a.ErrInvalidParams, "message.contextId must have at most %d printable characters", maxContextID)
	}
	for _, all := range []map[string]any{m.Metadata, req.Metadata} {
		for _, name := range []string{"capability", "workflow"} {
			if value, ok := all[name]; ok {
				if _, ok := value.(string); !ok {
					return message{}, fail(a2a.ErrInvalidParams, "metadata.%s must be a string", name)
				}
			}
		}
	}
	id := m.ID
	m.ID = ""
	text, err := json.Marshal(m)
	m.ID = id
	capability, _ := req.Metadata["capability"].(string)
	flow, _ := req.Metadata["workflow"].(string)
	if req.Tenant != "" || capability != "" || flow != "" {
		text = fmt.Appendf(text, "%q %q %q", req.Tenant, capability, flow)
	}
	sum := sha256.Sum256(text)
	return message{Message: m, digest: hex.EncodeToString(sum[:16])}, err
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// decodeMessage decodes a message of a client, or a stored one.
func decodeMessage(raw json.RawMessage) (*a2a.Message, error) {
	out := &a2a.Message{}
	err := wire.Decode(raw, out)
	if bad, ok := errors.AsType[*wire.PartError](err); ok {
		return nil, fail(a2a.ErrInvalidParams, "message.%s", bad.Error())
	}
	if err != nil {
		return nil, fail(a2a.ErrInvalidParams, "message is malformed: %s", err.Error())
	}
	return out, nil
}

// inputModes are the media types that messages may contain. Agents receive files of any type.
func inputModes() []string { return []string{"text/plain", "application/json", "*/*"} }

// parameters returns the parameters of a task: the object of the only part, or an object with the text, data and files of the
// message, and its id.
func (m message) parameters() (json.RawMessage, error) {
	for i, p := range m.Parts {
		if _, _, err := mime.ParseMediaType(p.MediaType); p.MediaType != "" && err != nil {
			return nil, fail(a2a.ErrUnsupportedContentType, "message.parts[%d] has the media type %s, which is malformed", i, input.Quote(p.MediaType))
		}
		if len(p.Raw()) > maxInlineFile {
			return nil, fail(a2a.ErrInvalidParams, "message.parts[%d] must have at most %d bytes; send a URL instead", i, maxInlineFile)
		}
	}
	out := wire.ContentOf(m.Parts)
	if len(m.Parts) == 1 && len(out.Data) > 0 && out.Data[0] == '{' {
		return out.Data, nil
	}
	out.MessageID = m.ID
	return json.Marshal(out)
}

// text returns the text of a reply, with data as JSON.
func (m message) text() (string, error) {
	for i, p := range m.Parts {
		switch p.Content.(type) {
		case a2a.Text, a2a.Data:
		default:
			return "", fail(a2a.ErrUnsupportedContentType, "message.parts[%d] must be text or data: a reply has no files", i)
		}
	}
	text := wire.Text(m.Parts)
	if strings.TrimSpace(text) == "" || len(text) > maxReply {
		return "", fail(a2a.ErrInvalidParams, "a reply must have 1 to %d bytes of text", maxReply)
	}
	return text, nil
}

// metadata returns a text of the metadata of the message or, if it has none, of the request.
func (m message) metadata(name string, request map[string]any) string {
	for _, all := range []map[string]any{m.Metadata, request} {
		if text, ok := all[name].(string); ok {
			return text
		}
	}
	return ""
}

// budget returns the tokens that metadata.budget of the message or of its request allows, nil if both lack it.
func (m message) budget(request map[string]any) (*int64, error) {
	for _, all := range []map[string]any{m.Metadata, request} {
		value, ok := all["budget"]
		if !ok {
			continue
		}
		var tokens int64
		text, err := json.Marshal(value)
		if err != nil || json.Unmarshal(text, &tokens) != nil || tokens < 1 || tokens > orchestrator.MaxBudget {
			return nil, fail(a2a.ErrInvalidParams, "metadata.budget must be a number of tokens from 1 to %d", int64(orchestrator.MaxBudget))
		}
		return &tokens, nil
	}
	return nil, nil
}

// agentText returns a message of the agent. Equal messages have equal ids.
func agentText(id, text string, about a2a.TaskInfo) *a2a.Message {
	return &a2a.Message{ID: id, Role: a2a.MessageRoleAgent, TaskID: about.TaskID, ContextID: about.ContextID, Parts: a2a.ContentParts{a2a.NewTextPart(text)}}
}

// resultParts returns the parts of a result: JSON is data and text is text. An object with text or files, such as the parameters
// of a task, is parts of these kinds.
func resultParts(output []byte) a2a.ContentParts {
	var parts a2a.ContentParts
	switch {
	case isJSON(output):
		var ok bool
		if parts, ok = wire.PartsOf(output, "message"); !ok {
			parts = a2a.ContentParts{a2a.NewDataPart(json.RawMessage(output))}
		}
	case utf8.Valid(output):
		parts = a2a.ContentParts{a2a.NewTextPart(string(output))}
	default:
		return a2a.ContentParts{{Content: a2a.Raw(output), MediaType: "application/octet-stream"}}
	}
	for _, p := range parts {
		switch p.Content.(type) {
		case a2a.Text:
			p.MediaType = "text/plain"
		case a2a.Data:
			p.MediaType = "application/json"
		}
	}
	return parts
}

// isJSON reports whether text is a JSON object or array.
func isJSON(text []byte) bool {
	t := strings.TrimLeft(string(text[:min(len(text), 64)]), " \t\r\n")
	return t != "" && (t[0] == '{' || t[0] == '[') && json.Valid(text)
}

// messageOf returns the text of a result that is an object with the single member message.
func messageOf(output []byte) (text string, ok bool) {
	var members map[string]json.RawMessage
	if !isJSON(output) || json.Unmarshal(output, &members) != nil || len(members) != 1 {
		return "", false
	}
	return input.JSONString(members["message"])
}
