package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// fill makes the ids that were not given.
func (r *Request) fill() {
	for _, id := range []*uuid.UUID{&r.TaskID, &r.RequestID, &r.TraceID} {
		if *id == uuid.Nil {
			*id = uuid.New()
		}
	}
}

func (r *Request) envelope(workType string, request uuid.UUID, parameters json.RawMessage, hints envelope.Hints) envelope.Envelope {
	return envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.New(),
		From: cmp.Or(r.From, envelope.Orchestrator), To: cmp.Or(r.To, envelope.Orchestrator), Timestamp: time.Now(),
		TraceID: r.TraceID, RequestID: request, Type: envelope.TypeWorkRequest,
		Payload: envelope.WorkRequest{TaskID: r.TaskID, WorkType: workType, Parameters: parameters, Hints: hints},
	}
}

func (r *Request) parameters() json.RawMessage {
	if len(r.Parameters) == 0 {
		return json.RawMessage("{}")
	}
	return r.Parameters
}

func (r *Request) hints() envelope.Hints {
	h := envelope.Hints{
		MaxDurationSeconds: int64((r.Hints.MaxDuration + time.Second - 1) / time.Second), MaxMemoryMB: r.Hints.MaxMemoryMB, MaxTokens: r.Hints.MaxTokens,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Hints.Other)) {
		h.Other = append(h.Other, envelope.Member{Name: name, Value: r.Hints.Other[name]})
	}
	return h
}
