package remote

import (
	"context"
	"encoding/json"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/wire"
	"comet/internal/errs"
	"comet/models"
	"comet/store"
	tasks "comet/store/a2a"
)

// parts returns the parts of a message for parameters: the parts of an object with text or files, and otherwise a data part. The id
// of an A2A message, which package a2a adds, is none of them.
func parts(parameters json.RawMessage) a2a.ContentParts {
	if len(parameters) == 0 {
		parameters = json.RawMessage("{}")
	}
	if out, ok := wire.PartsOf(parameters, "message_id"); ok {
		return out
	}
	return a2a.ContentParts{a2a.NewDataPart(parameters)}
}

// maxHops limits metadata.comet_hops, which counts how many times servers of comet have passed the work on over A2A. Without it, an
// agent whose remote agent is comet itself could pass its tasks to itself endlessly.
const maxHops = 4

// hopsOf returns the hops of a task: those of the message that requested it, one of its parents, or its workflow.
func hopsOf(ctx context.Context, s *store.Store, t models.Task) (int, error) {
	for {
		first, err := tasks.Requested(s.Reads(ctx), t.ID)
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

// maxTokens limits the tokens that a remote agent may report.
const maxTokens = 1_000_000_000

// usageOf returns the tokens that metadata.usage.tokens says were used, 0 for unknown.
func usageOf(e a2a.Event) (used int64) {
	all := []map[string]any{e.Meta()}
	if m := wire.StatusOf(e).Message; m != nil {
		all = append(all, m.Metadata)
	}
	switch e := e.(type) {
	case *a2a.Task:
		for _, a := range e.Artifacts {
			all = append(all, a.Metadata)
		}
	case *a2a.TaskArtifactUpdateEvent:
		all = append(all, e.Artifact.Metadata)
	}
	for _, metadata := range all {
		usage, _ := metadata["usage"].(map[string]any)
		tokens, _ := usage["tokens"].(float64)
		used = max(used, int64(min(max(tokens, 0), maxTokens)))
	}
	return used
}

// optionsOf returns the options of a question: metadata.options, as comet sends them.
func optionsOf(m *a2a.Message) (out []string) {
	all, _ := m.Metadata["options"].([]any)
	for _, o := range all[:min(len(all), maxOptions)] {
		if text, _ := o.(string); text != "" && len(text) <= maxStepName {
			out = append(out, text)
		}
	}
	return out
}

// textOf returns the text of a message, "" for nil.
func textOf(m *a2a.Message) string {
	if m == nil {
		return ""
	}
	return wire.Text(m.Parts)
}
