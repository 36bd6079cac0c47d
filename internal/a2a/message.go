package a2a

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"

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
	// digest is that of its content without its id, and of the tenant and the capability of the request.
	digest string
	// push is the configuration of push notifications that came with it, nil for none.
	push *webhooks.TaskDraft
}

// wirePart is a part in JSON. Data keeps its text: numbers would lose digits otherwise.
type wirePart struct {
	Text      *string         `json:"text"`
	Raw       *string         `json:"raw"`
	Data      json.RawMessage `json:"data"`
	URL       *string         `json:"url"`
	Filename  string          `json:"filename"`
	MediaType string          `json:"mediaType"`
	Metadata  map[string]any  `json:"metadata"`
}

// wireMessage is a message in JSON.
type wireMessage struct {
	ID             string         `json:"messageId"`
	ContextID      string         `json:"contextId"`
	TaskID         a2a.TaskID     `json:"taskId"`
	Role           string         `json:"role"`
	Parts          []wirePart     `json:"parts"`
	Metadata       map[string]any `json:"metadata"`
	Extensions     []string       `json:"extensions"`
	ReferenceTasks []a2a.TaskID   `json:"referenceTaskIds"`
}

// readMessage decodes and validates a message of a client.
func readMessage(req sendRequest) (message, error) {
	raw := req.Message
	if len(raw) == 0 || string(raw) == "null" {
		return message{}, fail(a2a.ErrInvalidParams, "message is required")
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
	id := m.ID
	m.ID = ""
	text, err := json.Marshal(m)
	m.ID = id
	if capability, _ := req.Metadata["capability"].(string); req.Tenant != "" || capability != "" {
		text = fmt.Appendf(text, "%q %q", req.Tenant, capability)
	}
	sum := sha256.Sum256(text)
	return message{Message: m, digest: hex.EncodeToString(sum[:16])}, err
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// decodeMessage decodes a message of a client, or a stored one.
func decodeMessage(raw json.RawMessage) (*a2a.Message, error) {
	var in wireMessage
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fail(a2a.ErrInvalidParams, "message is malformed: %s", shortError(err))
	}
	out := &a2a.Message{ID: in.ID, ContextID: in.ContextID, TaskID: in.TaskID, Role: a2a.MessageRole(in.Role), Metadata: in.Metadata, Extensions: in.Extensions, ReferenceTasks: in.ReferenceTasks}
	for i, p := range in.Parts {
		part, err := p.part()
		if err != nil {
			return nil, fail(a2a.ErrInvalidParams, "message.parts[%d] %s", i, err.Error())
		}
		out.Parts = append(out.Parts, part)
	}
	return out, nil
}

// part returns the part, which must have exactly one content.
func (p wirePart) part() (*a2a.Part, error) {
	out, contents := &a2a.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata}, 0
	if p.Text != nil {
		out.Content = a2a.Text(*p.Text)
		contents++
	}
	if p.Raw != nil {
		data, err := decodeBase64(*p.Raw)
		if err != nil {
			return nil, fail(a2a.ErrInvalidParams, "has raw bytes that are not base64")
		}
		out.Content = a2a.Raw(data)
		contents++
	}
	if p.URL != nil {
		out.Content = a2a.URL(*p.URL)
		contents++
	}
	if p.Data != nil {
		out.Content = a2a.Data{Value: p.Data}
		contents++
	}
	if contents != 1 {
		return nil, fail(a2a.ErrInvalidParams, "must have one of text, raw, url and data")
	}
	return out, nil
}

// decodeBase64 accepts both alphabets, with and without padding, as ProtoJSON does.
func decodeBase64(text string) ([]byte, error) {
	text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	return base64.RawStdEncoding.DecodeString(text)
}

// inputModes are the media types that messages may contain. Agents receive files of any type.
func inputModes() []string { return []string{"text/plain", "application/json", "*/*"} }

// file is a file in the parameters or the result of a task.
type file struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Bytes     []byte `json:"bytes,omitempty"`
	URL       string `json:"url,omitempty"`
}

// parameters returns the parameters of a task: the object of the only part, or an object with the text, data and files of the
// message, and its id.
func (m message) parameters() (json.RawMessage, error) {
	var out struct {
		Text      *string         `json:"text,omitempty"`
		Data      json.RawMessage `json:"data,omitempty"`
		Files     []file          `json:"files,omitempty"`
		MessageID string          `json:"message_id"`
	}
	var texts []string
	var data []json.RawMessage
	for i, p := range m.Parts {
		if _, _, err := mime.ParseMediaType(p.MediaType); p.MediaType != "" && err != nil {
			return nil, fail(a2a.ErrUnsupportedContentType, "message.parts[%d] has the media type %s, which is malformed", i, input.Quote(p.MediaType))
		}
		switch c := p.Content.(type) {
		case a2a.Text:
			texts = append(texts, string(c))
		case a2a.Data:
			raw, _ := c.Value.(json.RawMessage) // decodeMessage has set it
			data = append(data, raw)
		case a2a.Raw:
			if len(c) > maxInlineFile {
				return nil, fail(a2a.ErrInvalidParams, "message.parts[%d] must have at most %d bytes; send a URL instead", i, maxInlineFile)
			}
			out.Files = append(out.Files, file{Name: p.Filename, MediaType: p.MediaType, Bytes: c})
		case a2a.URL:
			out.Files = append(out.Files, file{Name: p.Filename, MediaType: p.MediaType, URL: string(c)})
		}
	}
	if len(m.Parts) == 1 && len(data) == 1 && data[0][0] == '{' {
		return data[0], nil
	}
	if texts != nil {
		out.Text = new(strings.Join(texts, "\n"))
	}
	var err error
	switch len(data) {
	case 0:
	case 1:
		out.Data = data[0]
	default:
		out.Data, err = json.Marshal(data)
	}
	if err != nil {
		return nil, err
	}
	out.MessageID = m.ID
	return json.Marshal(out)
}

// text returns the text of a reply, with data as JSON.
func (m message) text() (string, error) {
	var texts []string
	for i, p := range m.Parts {
		switch c := p.Content.(type) {
		case a2a.Text:
			texts = append(texts, string(c))
		case a2a.Data:
			raw, _ := c.Value.(json.RawMessage) // decodeMessage has set it
			texts = append(texts, string(raw))
		default:
			return "", fail(a2a.ErrUnsupportedContentType, "message.parts[%d] must be text or data: a reply has no files", i)
		}
	}
	text := strings.Join(texts, "\n")
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
	if isJSON(output) {
		if parts, ok := filesAndText(output); ok {
			return parts
		}
		return a2a.ContentParts{{Content: a2a.Data{Value: json.RawMessage(output)}, MediaType: "application/json"}}
	}
	if utf8.Valid(output) {
		return a2a.ContentParts{{Content: a2a.Text(output), MediaType: "text/plain"}}
	}
	return a2a.ContentParts{{Content: a2a.Raw(output), MediaType: "application/octet-stream"}}
}

// isJSON reports whether text is a JSON object or array.
func isJSON(text []byte) bool {
	t := strings.TrimLeft(string(text[:min(len(text), 64)]), " \t\r\n")
	return t != "" && (t[0] == '{' || t[0] == '[') && json.Valid(text)
}

// filesAndText returns the parts of a result that is an object with text, files, or both and data.
func filesAndText(output []byte) (parts a2a.ContentParts, ok bool) {
	var in struct {
		Text    *string         `json:"text"`
		Message *string         `json:"message"`
		Data    json.RawMessage `json:"data"`
		Files   []file          `json:"files"`
	}
	known := true
	exact := input.EachMember(output, func(name string, _ []byte) bool {
		known = known && slices.Contains([]string{"text", "message", "data", "files"}, name)
		return known
	})
	if !exact || json.Unmarshal(output, &in) != nil || in.Text == nil && in.Message == nil && in.Files == nil {
		return nil, false
	}
	for _, text := range []*string{in.Message, in.Text} {
		if text != nil {
			parts = append(parts, &a2a.Part{Content: a2a.Text(*text), MediaType: "text/plain"})
		}
	}
	if in.Data != nil {
		parts = append(parts, &a2a.Part{Content: a2a.Data{Value: in.Data}, MediaType: "application/json"})
	}
	for _, f := range in.Files {
		p := &a2a.Part{Content: a2a.Raw(f.Bytes), Filename: f.Name, MediaType: f.MediaType}
		if f.URL != "" {
			p.Content = a2a.URL(f.URL)
		}
		parts = append(parts, p)
	}
	return parts, len(parts) > 0
}

// messageOf returns the text of a result that is an object with the single member message.
func messageOf(output []byte) (text string, ok bool) {
	var members map[string]json.RawMessage
	if !isJSON(output) || json.Unmarshal(output, &members) != nil || len(members) != 1 {
		return "", false
	}
	return input.JSONString(members["message"])
}
