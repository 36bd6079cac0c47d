package client

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/input"
)

// The types below decode both versions: the members of 0.3 have other names, which no member of 1.0 has. Data is kept as text,
// because numbers would lose digits otherwise.

// File is the content of a part of 0.3.
type File struct {
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Bytes    []byte `json:"bytes,omitempty"`
	URI      string `json:"uri,omitempty"`
}

// Part is a part of a message or an artifact.
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Raw       []byte          `json:"raw,omitempty"`
	URL       string          `json:"url,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
	// Kind and File are of 0.3.
	Kind string `json:"kind,omitempty"`
	File *File  `json:"file,omitempty"`
}

// Message is a message of a client or an agent.
type Message struct {
	MessageID string          `json:"messageId"`
	ContextID string          `json:"contextId,omitempty"`
	TaskID    string          `json:"taskId,omitempty"`
	Role      string          `json:"role"`
	Parts     []Part          `json:"parts"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Kind      string          `json:"kind,omitempty"`
}

// Status is the state of a task.
type Status struct {
	State     string   `json:"state"`
	Message   *Message `json:"message"`
	Timestamp string   `json:"timestamp"`
}

// Artifact is a result of a task.
type Artifact struct {
	ArtifactID string          `json:"artifactId"`
	Name       string          `json:"name"`
	Parts      []Part          `json:"parts"`
	Metadata   json.RawMessage `json:"metadata"`
}

// Task is a task of the remote agent.
type Task struct {
	ID        string          `json:"id"`
	ContextID string          `json:"contextId"`
	Status    Status          `json:"status"`
	Artifacts []Artifact      `json:"artifacts"`
	Metadata  json.RawMessage `json:"metadata"`
}

// StatusUpdate is an event of a stream.
type StatusUpdate struct {
	TaskID    string          `json:"taskId"`
	ContextID string          `json:"contextId"`
	Status    Status          `json:"status"`
	Metadata  json.RawMessage `json:"metadata"`
}

// ArtifactUpdate is an event of a stream.
type ArtifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  Artifact `json:"artifact"`
	Append    bool     `json:"append"`
	LastChunk bool     `json:"lastChunk"`
}

// Event is the result of a request, or an event of a stream: one of its members is not nil.
type Event struct {
	Task           *Task           `json:"task"`
	Message        *Message        `json:"message"`
	StatusUpdate   *StatusUpdate   `json:"statusUpdate"`
	ArtifactUpdate *ArtifactUpdate `json:"artifactUpdate"`
}

// decodeEvent decodes an event. In 0.3, and in the results of GetTask and CancelTask, it has no member with its kind; bare is the
// kind of such a result, "" to read it from the event.
func decodeEvent(raw []byte, bare string) (e Event, err error) {
	if bare == "" {
		var of struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(raw, &of); err != nil {
			return e, invalid("is not an event: %s", shown(raw))
		}
		bare = of.Kind
	}
	switch bare {
	case "":
		err = json.Unmarshal(raw, &e)
	case "task":
		err = json.Unmarshal(raw, &e.Task)
	case "message":
		err = json.Unmarshal(raw, &e.Message)
	case "status-update":
		err = json.Unmarshal(raw, &e.StatusUpdate)
	case "artifact-update":
		err = json.Unmarshal(raw, &e.ArtifactUpdate)
	}
	switch {
	case err != nil:
		return e, invalid("has a member with a wrong type: %s", err.Error())
	case e == Event{}:
		return e, invalid("is none of the events of A2A: %s", shown(raw))
	}
	if id, contextID := e.IDs(); len(id) > maxID || len(contextID) > maxID || e.Task != nil && id == "" {
		return e, invalid("has a task without an id, or with one of more than %d bytes", maxID)
	}
	return e.normal(), nil
}

// IDs returns the ids of the event's task and its context, "" for unknown.
func (e Event) IDs() (taskID, contextID string) {
	switch {
	case e.Task != nil:
		return e.Task.ID, e.Task.ContextID
	case e.Message != nil:
		return e.Message.TaskID, e.Message.ContextID
	case e.StatusUpdate != nil:
		return e.StatusUpdate.TaskID, e.StatusUpdate.ContextID
	}
	return e.ArtifactUpdate.TaskID, e.ArtifactUpdate.ContextID
}

// maxID limits the ids that are stored, in bytes.
const maxID = 256

// shown is the beginning of a response, for errors.
func shown(raw []byte) string { return input.Quote(strings.ToValidUTF8(string(raw), "?")) }

// normal returns the event in the form of 1.0.
func (e Event) normal() Event {
	switch {
	case e.Task != nil:
		e.Task.Status.normalize()
		for i := range e.Task.Artifacts {
			normalize(e.Task.Artifacts[i].Parts)
		}
	case e.Message != nil:
		normalize(e.Message.Parts)
	case e.StatusUpdate != nil:
		e.StatusUpdate.Status.normalize()
	case e.ArtifactUpdate != nil:
		normalize(e.ArtifactUpdate.Artifact.Parts)
	}
	return e
}

// normalize makes TASK_STATE_INPUT_REQUIRED of input-required.
func (s *Status) normalize() {
	if !strings.HasPrefix(s.State, "TASK_STATE_") {
		s.State = "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(s.State, "-", "_"))
	}
	if s.Message != nil {
		normalize(s.Message.Parts)
	}
}

func normalize(parts []Part) {
	for i := range parts {
		if f := parts[i].File; f != nil {
			parts[i] = Part{Raw: f.Bytes, URL: f.URI, Filename: f.Name, MediaType: f.MimeType}
		}
	}
}

// TaskState is the state of the event's task, "" if the event has none.
func (e Event) TaskState() a2a.TaskState {
	switch {
	case e.Task != nil:
		return a2a.TaskState(e.Task.Status.State)
	case e.StatusUpdate != nil:
		return a2a.TaskState(e.StatusUpdate.Status.State)
	case e.Message != nil:
		return a2a.TaskStateCompleted
	}
	return ""
}

// Text is the text of the parts of a message, with data as JSON. It is empty for nil.
func (m *Message) Text() string {
	if m == nil {
		return ""
	}
	var lines []string
	for _, p := range m.Parts {
		switch {
		case p.Text != nil:
			lines = append(lines, *p.Text)
		case p.Data != nil:
			lines = append(lines, string(p.Data))
		}
	}
	return strings.Join(lines, "\n")
}

// legacy returns the message as 0.3 has it.
func (m Message) legacy() Message {
	m.Kind, m.Role = "message", strings.ToLower(strings.TrimPrefix(m.Role, "ROLE_"))
	parts := make([]Part, len(m.Parts))
	for i, p := range m.Parts {
		switch {
		case p.Text != nil:
			parts[i] = Part{Kind: "text", Text: p.Text}
		case p.Data != nil:
			data := bytes.TrimSpace(p.Data)
			if data[0] != '{' { // it must be an object
				data = append(append([]byte(`{"value":`), data...), '}')
			}
			parts[i] = Part{Kind: "data", Data: data}
		default:
			parts[i] = Part{Kind: "file", File: &File{Name: p.Filename, MimeType: p.MediaType, Bytes: p.Raw, URI: p.URL}}
		}
	}
	m.Parts = parts
	return m
}
