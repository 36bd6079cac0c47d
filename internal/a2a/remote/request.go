package remote

import (
	"context"
	"encoding/json"
	"slices"

	"comet/internal/a2a/client"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	tasks "comet/store/a2a"
)

// parts returns the parts of a message for parameters: the text of an object that has no other member, the text, data and files of
// one with text or files, and otherwise a data part. The id of an A2A message, which package a2a adds, is none of them.
func parts(parameters json.RawMessage) []client.Part {
	var in struct {
		Text  *string         `json:"text"`
		Data  json.RawMessage `json:"data"`
		Files []file          `json:"files"`
	}
	if len(parameters) == 0 {
		parameters = json.RawMessage("{}")
	}
	known := input.EachMember(parameters, func(name string, _ []byte) bool {
		return slices.Contains([]string{"text", "data", "files", "message_id"}, name)
	})
	if !known || json.Unmarshal(parameters, &in) != nil || in.Text == nil && in.Files == nil {
		return []client.Part{{Data: parameters}}
	}
	var out []client.Part
	if in.Text != nil {
		out = append(out, client.Part{Text: in.Text})
	}
	if in.Data != nil {
		out = append(out, client.Part{Data: in.Data})
	}
	for _, f := range in.Files {
		out = append(out, client.Part{Raw: f.Bytes, URL: f.URL, Filename: f.Name, MediaType: f.MediaType})
	}
	return out
}

// metadata is what comet adds to messages.
type metadata struct {
	Capability  string `json:"capability,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
	// Hops is how many times servers of comet have passed the work on over A2A.
	Hops int `json:"comet_hops"`
}

// maxHops limits metadata.Hops: an agent whose remote agent is comet itself could otherwise pass its tasks to itself endlessly.
const maxHops = 4

// hopsOf returns the hops of a task: those of the message that requested it or one of its parents.
func hopsOf(ctx context.Context, s *store.Store, t models.Task) (int, error) {
	for {
		first, err := tasks.First(s.Reads(ctx), t.ID)
		if err == nil {
			var m struct {
				Metadata struct {
					Hops float64 `json:"comet_hops"`
				} `json:"metadata"`
			}
			_ = json.Unmarshal(first.Message, &m) // another type counts as none
			return int(min(max(m.Metadata.Hops, 0), maxHops)), nil
		}
		if !errs.Is(err, errs.NotFound) || t.ParentID == nil {
			if errs.Is(err, errs.NotFound) {
				err = nil
			}
			return 0, err
		}
		if t, err = s.Tasks(ctx).Get(*t.ParentID); err != nil {
			return 0, err
		}
	}
}

// firstMessage returns the message that requests a task. The capability is for agents that route by it, such as comet; an agent that
// a tenant names gets it only if its card lists it.
func firstMessage(id, contextID string, task orchestrator.TaskWithInput, hops int, card client.Card, endpoint client.Endpoint) client.Message {
	meta := metadata{Traceparent: task.Input.Trace, Hops: hops + 1}
	if names := task.Input.Capabilities; len(names) == 1 && (endpoint.Tenant == "" || card.HasSkill(models.CapabilityKey(names[0]))) {
		meta.Capability = models.CapabilityKey(names[0])
	}
	return newMessage(id, contextID, "", parts(task.Input.Parameters), meta)
}

func newMessage(id, contextID, taskID string, parts []client.Part, meta metadata) client.Message {
	text, _ := json.Marshal(meta) // strings
	return client.Message{MessageID: id, ContextID: contextID, TaskID: taskID, Role: "ROLE_USER", Parts: parts, Metadata: text}
}

// usageOf returns the tokens that metadata says were used, 0 for unknown.
func usageOf(e client.Event) int64 {
	var all []json.RawMessage
	switch {
	case e.Task != nil:
		all = append(all, e.Task.Metadata, metadataOf(e.Task.Status.Message))
		for _, a := range e.Task.Artifacts {
			all = append(all, a.Metadata)
		}
	case e.Message != nil:
		all = append(all, e.Message.Metadata)
	case e.StatusUpdate != nil:
		all = append(all, e.StatusUpdate.Metadata, metadataOf(e.StatusUpdate.Status.Message))
	case e.ArtifactUpdate != nil:
		all = append(all, e.ArtifactUpdate.Artifact.Metadata)
	}
	used := int64(0)
	for _, raw := range all {
		var m struct {
			Usage struct {
				Tokens int64 `json:"tokens"`
			} `json:"usage"`
		}
		if json.Unmarshal(raw, &m) == nil {
			used = max(used, min(m.Usage.Tokens, maxTokens))
		}
	}
	return used
}

// maxTokens limits the tokens that a remote agent may report.
const maxTokens = 1_000_000_000

func metadataOf(m *client.Message) json.RawMessage {
	if m == nil {
		return nil
	}
	return m.Metadata
}
