package genesis

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	wire "comet/internal/wire/genesis"
	"comet/models"
)

// meta is the stored part of a REQUEST, from which the messages to the worker and the requester are made.
type meta struct {
	CorrelationID string          `json:"correlation_id"` // the first member, so that taskOfCorrelation finds it
	ID            string          `json:"id"`
	From          string          `json:"from"`
	Confidence    float64         `json:"confidence"`
	Entities      []wire.Entity   `json:"entities,omitempty"`
	Context       json.RawMessage `json:"context"`
	// Wrapped says that the parameters of the task have the payload as a member, because it is not an object.
	Wrapped bool `json:"wrapped,omitempty"`
	Stream  bool `json:"stream,omitempty"`
	Partial bool `json:"partial,omitempty"`
}

// task is a task with the stored part of its REQUEST.
type task struct {
	orchestrator.TaskWithInput

	meta meta
	// id is the id of the REQUEST, or of the task if it was requested in another way.
	id string
}

func taskOf(stored orchestrator.TaskWithInput) (task, error) {
	t := task{TaskWithInput: stored, id: uuidOf(stored.Task.ID)}
	t.meta.CorrelationID = t.id
	if stored.Task.Class != Class {
		return t, nil
	}
	err := json.Unmarshal(stored.Input.Meta, &t.meta)
	t.id = t.meta.ID
	return t, err
}

// detail is the stored part of a RESPONSE, without its data.
type detail struct {
	Confidence *float64 `json:"confidence,omitempty"`
	Sources    []string `json:"sources,omitempty"`
	// Text says that the data is a JSON string, which is stored without quotes.
	Text bool `json:"text,omitempty"`
	// Error is the agent's own error, nil for none.
	Error *wire.ErrorDetails `json:"error,omitempty"`
}

// stored is the member of models.Task.Detail that this protocol writes. Other protocols write other members.
type storedDetail struct {
	Genesis *detail `json:"genesis"`
}

// textOf returns the text of a JSON string.
func textOf(data json.RawMessage) (string, bool) {
	if len(data) == 0 || data[0] != '"' {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, data)
	return string(text), err == nil && len(text) > 0
}

// reference names a task in the payload of a REQUEST to the service.
type reference struct {
	TaskID        string          `json:"taskId"`
	RequestID     string          `json:"requestId"`
	CorrelationID string          `json:"correlationId"`
	Question      string          `json:"question"`
	Options       []string        `json:"options"`
	Answer        json.RawMessage `json:"answer"`
	Reason        string          `json:"reason"`
}

// readReference reads the payload of a REQUEST about a task.
func readReference(m received, body wire.Request) (ref reference, err error) {
	if err := input.DecodeJSON(m.value("payload", body.Payload), &ref); err != nil {
		return ref, input.Respell(err, "/payload", nil)
	}
	if strings.Contains(ref.TaskID+ref.RequestID+ref.CorrelationID+ref.Question+ref.Reason+strings.Join(ref.Options, ""), "\x00") {
		return ref, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload", "payload must not contain the NUL character (U+0000)")
	}
	options := 0
	for _, o := range ref.Options {
		options += len(o)
	}
	if len(ref.Options) > maxOptions || options > maxQuestion {
		return ref, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/options", "payload must have at most %d options with %d bytes together", maxOptions, maxQuestion)
	}
	if ref.TaskID == "" && ref.RequestID == "" && ref.CorrelationID == "" {
		return ref, coded(wire.ErrorValidation, wire.CodeInvalidMessage, http.StatusBadRequest, "/payload/taskId", "payload must name the task with taskId, requestId or correlationId")
	}
	return ref, nil
}

// ownTask returns a task that the sender has requested.
func (p *Protocol) ownTask(ctx context.Context, m received, ref reference) (models.Task, error) {
	id := ref.TaskID
	if id == "" {
		var err error
		id, err = TaskOfRequest(ctx, p.Work, m.by.TokenID, strings.ToLower(cmp.Or(ref.RequestID, ref.CorrelationID)))
		if errs.Is(err, errs.NotFound) && ref.RequestID == "" {
			id, err = p.taskOfCorrelation(ctx, m.by.TokenID, ref.CorrelationID)
		}
		if err != nil {
			return models.Task{}, p.unknownTask(err, ref)
		}
	}
	t, err := p.Work.Task(ctx, id)
	if err == nil && !auth.Owns(m.by, t.Owner, t.OwnerAgent) && !m.by.Administers() {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	if err != nil {
		return t, p.unknownTask(err, ref)
	}
	return t, nil
}

// taskOfCorrelation returns the id of the only open task that a token has requested with a correlationId.
func (p *Protocol) taskOfCorrelation(ctx context.Context, owner, correlationID string) (string, error) {
	prefix, err := json.Marshal(map[string]string{"correlation_id": correlationID}) // how a stored meta begins
	var found []models.ListedTask
	for _, state := range []models.TaskState{models.TaskNew, models.TaskRunning} {
		if err == nil {
			var some []models.ListedTask
			some, err = p.Work.Tasks(ctx, orchestrator.TaskQuery{State: state, Owner: owner, MetaPrefix: strings.TrimSuffix(string(prefix), "}") + ",", Limit: 2})
			found = append(found, some...)
		}
	}
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", errs.New(errs.NotFound, "no open request of yours has the correlationId %s", input.Quote(correlationID))
	case len(found) > 1:
		return "", errs.New(errs.Conflict, "several of your open requests have the correlationId %s; name one of them with requestId or taskId", input.Quote(correlationID))
	}
	return found[0].ID, nil
}

// askedTask returns the id of a task about which the sender may answer a question: its own one, or a subtask of it.
func (p *Protocol) askedTask(ctx context.Context, m received, ref reference) (string, error) {
	asked, err := p.ownTask(ctx, m, ref)
	for t, failed := asked, err; failed != nil && t.ParentID != nil; {
		if t, failed = p.ownTask(ctx, m, reference{TaskID: *t.ParentID}); failed == nil {
			return asked.ID, nil
		}
	}
	return asked.ID, err
}

func (p *Protocol) unknownTask(err error, ref reference) error {
	if !errs.Is(err, errs.NotFound) {
		return err
	}
	return coded(wire.ErrorValidation, codeNotFound, http.StatusNotFound, "/payload", "none of your requests is %s", input.Quote(cmp.Or(ref.TaskID, ref.RequestID, ref.CorrelationID)))
}

// TaskOfRequest returns the id of the task that a token has requested with the id of a REQUEST, or errs.NotFound.
func TaskOfRequest(ctx context.Context, work *orchestrator.Orchestrator, owner, requestID string) (string, error) {
	found, err := work.Tasks(ctx, orchestrator.TaskQuery{Owner: owner, RequestID: requestID, Limit: 1})
	if err == nil && len(found) == 0 {
		err = errs.New(errs.NotFound, "none of your requests has the id %s", input.Quote(requestID))
	}
	if err != nil {
		return "", err
	}
	return found[0].ID, nil
}
