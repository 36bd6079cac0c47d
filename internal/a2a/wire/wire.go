// Package wire has the JSON of A2A for servers and clients: the types of the official SDK, in the versions 1.0 and 0.3. The SDK's
// own decoders turn numbers into floating-point numbers; here data keeps its text.
package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// MaxID limits the ids of tasks, contexts and events that are stored, in bytes.
const MaxID = 256

// part is a part in JSON.
type part struct {
	Text      *string         `json:"text"`
	Raw       *string         `json:"raw"`
	Data      json.RawMessage `json:"data"`
	URL       *string         `json:"url"`
	Filename  string          `json:"filename"`
	MediaType string          `json:"mediaType"`
	Metadata  map[string]any  `json:"metadata"`
}

// PartError says what is wrong with a part.
type PartError struct {
	Index int
	Text  string
}

// Error implements error.
func (e *PartError) Error() string { return fmt.Sprintf("parts[%d] %s", e.Index, e.Text) }

// Decode decodes JSON of version 1.0 into types of the SDK. The data of a part is a json.RawMessage. It returns a *PartError for a
// part without exactly one content.
func Decode(raw []byte, out any) error {
	err := jsonv2.Unmarshal(raw, out, options)
	if bad, ok := errors.AsType[*PartError](err); ok {
		return bad
	}
	if wrong, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		return fmt.Errorf("the value of %s has the wrong type: %s", input.Quote(string(wrong.JSONPointer)), wrong.JSONKind)
	}
	return err
}

var options = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers( //nolint:gochecknoglobals // a constant
	jsonv2.UnmarshalFromFunc(decodeParts), jsonv2.UnmarshalFromFunc(decodeTime))))

func decodeParts(from *jsontext.Decoder, out *a2a.ContentParts) error {
	var in []part
	if err := jsonv2.UnmarshalDecode(from, &in); err != nil {
		return err
	}
	*out = nil
	for i, p := range in {
		decoded, err := p.decode()
		if err != nil {
			return &PartError{i, err.Error()}
		}
		*out = append(*out, decoded)
	}
	return nil
}

// decodeTime decodes a time of a status. Agents send times without a zone, too, which no client of this package needs.
func decodeTime(from *jsontext.Decoder, out *time.Time) error {
	raw, err := from.ReadValue()
	_ = out.UnmarshalJSON(raw)
	return err
}

// decode returns the part, which must have exactly one content.
func (p part) decode() (*a2a.Part, error) {
	out, contents := &a2a.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: p.Metadata}, 0
	if p.Text != nil {
		out.Content = a2a.Text(*p.Text)
		contents++
	}
	if p.Raw != nil { // in both alphabets, with and without padding, as ProtoJSON accepts them
		data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(*p.Raw), "="))
		if err != nil {
			return nil, errors.New("has raw bytes that are not base64")
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
		return nil, errors.New("must have one of text, raw, url and data")
	}
	return out, nil
}

// DecodeEvent decodes an event, or the result of a request. It has the form of 0.3 if legacy is set or it has a kind. Without a
// kind, the results of GetTask and CancelTask are a task, which isTask says.
func DecodeEvent(raw []byte, legacy, isTask bool) (a2a.Event, error) {
	var of struct {
		Kind string `json:"kind"`
	}
	if err := jsonv2.Unmarshal(raw, &of, options); err != nil {
		return nil, fmt.Errorf("is not an event: %s", Shown(raw))
	}
	if legacy || of.Kind != "" {
		raw = Convert(raw, false)
	}
	member := members[of.Kind]
	if isTask {
		member = "task"
	}
	if member != "" {
		raw = slices.Concat([]byte(`{"`+member+`":`), raw, []byte("}"))
	}
	var in struct {
		Task     *a2a.Task                    `json:"task"`
		Message  *a2a.Message                 `json:"message"`
		Status   *a2a.TaskStatusUpdateEvent   `json:"statusUpdate"`
		Artifact *a2a.TaskArtifactUpdateEvent `json:"artifactUpdate"`
	}
	if err := Decode(raw, &in); err != nil {
		return nil, fmt.Errorf("is malformed: %w", err)
	}
	var out a2a.Event
	switch {
	case in.Task != nil:
		if out = in.Task; in.Task.ID == "" || slices.Contains(in.Task.Artifacts, nil) {
			return nil, fmt.Errorf("has a task without an id, or an artifact that is null: %s", Shown(raw))
		}
	case in.Message != nil:
		out = in.Message
	case in.Status != nil:
		out = in.Status
	case in.Artifact != nil && in.Artifact.Artifact != nil:
		out = in.Artifact
	default:
		return nil, fmt.Errorf("is none of the events of A2A: %s", Shown(raw))
	}
	if about := out.TaskInfo(); len(about.TaskID) > MaxID || len(about.ContextID) > MaxID {
		return nil, fmt.Errorf("has an id of more than %d bytes", MaxID)
	}
	return out, nil
}

// Shown is the beginning of a response, for errors.
func Shown(raw []byte) string { return input.Quote(strings.ToValidUTF8(string(raw), "?")) }

// StatusOf returns the status in an event: that of a task or an update, completed for a message, which is the result itself. It
// is the zero TaskStatus for an artifact.
func StatusOf(e a2a.Event) a2a.TaskStatus {
	switch e := e.(type) {
	case *a2a.Task:
		return e.Status
	case *a2a.TaskStatusUpdateEvent:
		return e.Status
	case *a2a.Message:
		return a2a.TaskStatus{State: a2a.TaskStateCompleted}
	}
	return a2a.TaskStatus{}
}
