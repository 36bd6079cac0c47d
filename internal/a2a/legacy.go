package a2a

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// Version 0.3 differs from 1.0 in the names of methods and states, and in that messages, parts and events have a kind.

// legacyMethods are the operations of the methods of 0.3.
var legacyMethods = map[string]string{ //nolint:gochecknoglobals // a constant table
	"message/send": "SendMessage", "message/stream": "SendStreamingMessage", "tasks/get": "GetTask", "tasks/cancel": "CancelTask",
	"tasks/resubscribe": "SubscribeToTask", "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
	"tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
	"tasks/pushNotificationConfig/list": "ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/delete": "DeleteTaskPushNotificationConfig",
}

// legacyFile is the file of a part.
type legacyFile struct {
	Name     string  `json:"name,omitempty"`
	MimeType string  `json:"mimeType,omitempty"`
	Bytes    *string `json:"bytes,omitempty"`
	URI      *string `json:"uri,omitempty"`
}

// legacyPart is a part of a message or an artifact.
type legacyPart struct {
	Kind     string          `json:"kind"`
	Text     *string         `json:"text,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	File     *legacyFile     `json:"file,omitempty"`
	Metadata map[string]any  `json:"metadata,omitempty"`
}

// legacyMessage is a message.
type legacyMessage struct {
	Kind           string         `json:"kind"`
	ID             string         `json:"messageId"`
	ContextID      string         `json:"contextId,omitempty"`
	TaskID         a2a.TaskID     `json:"taskId,omitempty"`
	Role           string         `json:"role"`
	Parts          []legacyPart   `json:"parts"`
	Metadata       map[string]any `json:"metadata,omitempty"`
	Extensions     []string       `json:"extensions,omitempty"`
	ReferenceTasks []a2a.TaskID   `json:"referenceTaskIds,omitempty"`
}

// fromLegacy returns the operation of a method of 0.3, and its parameters as 1.0 has them.
func fromLegacy(method string, params json.RawMessage) (operation string, out []byte, err error) {
	operation, known := legacyMethods[method]
	switch {
	case !known:
		return "", nil, fail(a2a.ErrMethodNotFound, "version 0.3, which is that of requests without the header A2A-Version, has no method %q", method)
	case strings.HasPrefix(method, "tasks/pushNotificationConfig/"):
		out, err = fromLegacyPush(params)
		return operation, out, err
	case operation != "SendMessage" && operation != "SendStreamingMessage":
		return operation, params, nil
	}
	in, err := decode[struct {
		Message       *legacyMessage `json:"message"`
		Configuration struct {
			Blocking      *bool       `json:"blocking"`
			HistoryLength *int        `json:"historyLength"`
			Push          *pushConfig `json:"pushNotificationConfig"`
		} `json:"configuration"`
		Metadata map[string]any `json:"metadata"`
	}](params)
	if err != nil {
		return "", nil, err
	}
	var sent any
	if in.Message != nil {
		sent = in.Message.wire()
	}
	configuration := map[string]any{"returnImmediately": in.Configuration.Blocking != nil && !*in.Configuration.Blocking}
	if in.Configuration.HistoryLength != nil {
		configuration["historyLength"] = in.Configuration.HistoryLength
	}
	if in.Configuration.Push != nil {
		configuration["taskPushNotificationConfig"] = in.Configuration.Push
	}
	out, err = json.Marshal(map[string]any{"message": sent, "configuration": configuration, "metadata": in.Metadata})
	return operation, out, err
}

// wire returns the message as 1.0 has it.
func (m legacyMessage) wire() map[string]any {
	parts := []any{}
	for _, p := range m.Parts {
		out := map[string]any{}
		switch {
		case p.Kind == "text" && p.Text != nil:
			out["text"] = p.Text
		case p.Kind == "data" && p.Data != nil:
			out["data"] = p.Data
		case p.Kind == "file" && p.File != nil:
			out["filename"], out["mediaType"] = p.File.Name, p.File.MimeType
			if p.File.Bytes != nil {
				out["raw"] = p.File.Bytes
			}
			if p.File.URI != nil {
				out["url"] = p.File.URI
			}
		}
		if p.Metadata != nil {
			out["metadata"] = p.Metadata
		}
		parts = append(parts, out)
	}
	return map[string]any{
		"messageId": m.ID, "contextId": m.ContextID, "taskId": m.TaskID, "role": "ROLE_" + strings.ToUpper(m.Role), "parts": parts, "metadata": m.Metadata,
		"extensions": m.Extensions, "referenceTaskIds": m.ReferenceTasks,
	}
}

// toLegacy returns a result as 0.3 has it.
func toLegacy(v any) any {
	switch v := v.(type) {
	case a2a.StreamResponse:
		return toLegacy(v.Event)
	case *a2a.Task:
		return newLegacyTask(v)
	case *a2a.Message:
		return newLegacyMessage(v)
	case *a2a.TaskStatusUpdateEvent:
		return struct {
			Kind      string         `json:"kind"`
			TaskID    a2a.TaskID     `json:"taskId"`
			ContextID string         `json:"contextId"`
			Status    legacyStatus   `json:"status"`
			Final     bool           `json:"final"`
			Metadata  map[string]any `json:"metadata,omitempty"`
		}{"status-update", v.TaskID, v.ContextID, newLegacyStatus(v.Status), v.Status.State.Terminal(), v.Metadata}
	case *a2a.TaskArtifactUpdateEvent:
		return struct {
			Kind      string         `json:"kind"`
			TaskID    a2a.TaskID     `json:"taskId"`
			ContextID string         `json:"contextId"`
			Artifact  legacyArtifact `json:"artifact"`
			Append    bool           `json:"append"`
			LastChunk bool           `json:"lastChunk"`
		}{"artifact-update", v.TaskID, v.ContextID, newLegacyArtifact(v.Artifact), v.Append, v.LastChunk}
	case *pushConfig:
		return v.legacy()
	case *pushList:
		all := []any{}
		for _, c := range v.Configs {
			all = append(all, c.legacy())
		}
		return all
	}
	return v
}

// legacyStatus is the status of a task.
type legacyStatus struct {
	State     string         `json:"state"`
	Message   *legacyMessage `json:"message,omitempty"`
	Timestamp *time.Time     `json:"timestamp,omitempty"`
}

// legacyArtifact is an artifact.
type legacyArtifact struct {
	ID    a2a.ArtifactID `json:"artifactId"`
	Name  string         `json:"name,omitempty"`
	Parts []legacyPart   `json:"parts"`
}

// legacyTask is a task.
type legacyTask struct {
	Kind      string           `json:"kind"`
	ID        a2a.TaskID       `json:"id"`
	ContextID string           `json:"contextId"`
	Status    legacyStatus     `json:"status"`
	History   []*legacyMessage `json:"history,omitempty"`
	Artifacts []legacyArtifact `json:"artifacts,omitempty"`
}

func newLegacyTask(t *a2a.Task) legacyTask {
	out := legacyTask{Kind: "task", ID: t.ID, ContextID: t.ContextID, Status: newLegacyStatus(t.Status)}
	for _, m := range t.History {
		out.History = append(out.History, newLegacyMessage(m))
	}
	for _, a := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, newLegacyArtifact(a))
	}
	return out
}

// newLegacyStatus returns a status, whose states are such as input-required.
func newLegacyStatus(s a2a.TaskStatus) legacyStatus {
	state := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(s.State), "TASK_STATE_")), "_", "-")
	return legacyStatus{state, newLegacyMessage(s.Message), s.Timestamp}
}

func newLegacyMessage(m *a2a.Message) *legacyMessage {
	if m == nil {
		return nil
	}
	return &legacyMessage{
		Kind: "message", ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: strings.ToLower(strings.TrimPrefix(string(m.Role), "ROLE_")),
		Parts: newLegacyParts(m.Parts), Metadata: m.Metadata, Extensions: m.Extensions, ReferenceTasks: m.ReferenceTasks,
	}
}

func newLegacyArtifact(a *a2a.Artifact) legacyArtifact {
	return legacyArtifact{ID: a.ID, Name: a.Name, Parts: newLegacyParts(a.Parts)}
}

func newLegacyParts(parts a2a.ContentParts) []legacyPart {
	out := []legacyPart{}
	for _, p := range parts {
		l := legacyPart{Metadata: p.Metadata}
		switch c := p.Content.(type) {
		case a2a.Text:
			l.Kind, l.Text = "text", new(string(c))
		case a2a.Data:
			l.Kind, l.Data = "data", legacyData(c)
		case a2a.Raw:
			l.Kind, l.File = "file", &legacyFile{p.Filename, p.MediaType, new(base64.StdEncoding.EncodeToString(c)), nil}
		case a2a.URL:
			l.Kind, l.File = "file", &legacyFile{p.Filename, p.MediaType, nil, new(string(c))}
		}
		out = append(out, l)
	}
	return out
}

// legacyData returns data, which must be an object in 0.3. Another value becomes the member value of one.
func legacyData(d a2a.Data) json.RawMessage {
	raw, _ := d.Value.(json.RawMessage) // set by this package
	if trimmed := strings.TrimSpace(string(raw)); !strings.HasPrefix(trimmed, "{") {
		raw = json.RawMessage(`{"value":` + trimmed + `}`)
	}
	return raw
}

// legacy returns the configuration as 0.3 has it.
func (c *pushConfig) legacy() any {
	config := *c
	config.TaskID = ""
	if config.Authentication != nil {
		config.Authentication = &pushAuth{Schemes: []string{config.Authentication.Scheme}}
	}
	return map[string]any{"taskId": c.TaskID, "pushNotificationConfig": config}
}

// fromLegacyPush returns the parameters of an operation on configurations as 1.0 has them.
func fromLegacyPush(params json.RawMessage) ([]byte, error) {
	in, err := decode[struct {
		TaskID   string      `json:"taskId"`
		Config   *pushConfig `json:"pushNotificationConfig"`
		ID       string      `json:"id"` // of the task
		ConfigID string      `json:"pushNotificationConfigId"`
	}](params)
	switch {
	case err != nil:
		return nil, err
	case in.Config != nil:
		in.Config.TaskID = in.TaskID
		return json.Marshal(in.Config)
	}
	return json.Marshal(pushRequest{cmp.Or(in.ID, in.TaskID), in.ConfigID})
}
