package a2a

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
)

// Limits of responses.
const (
	maxOutput       = 8 << 20 // bytes of a result; longer ones are read from the REST API
	maxPageBytes    = 8 << 20 // a page ends with the task that exceeds it
	defaultPageSize = 50
	maxPageSize     = 100
)

// shown selects the parts of a task that are returned.
type shown struct {
	// history is the maximum number of messages, nil for all.
	history   *int
	artifacts bool
}

// stateOf returns the state of a task of the core. A task that will be retried is working: states never go back.
func stateOf(state models.TaskState, waiting models.WaitReason, attempt int) a2a.TaskState {
	switch {
	case waiting == models.WaitForReply && !state.Ended():
		return a2a.TaskStateInputRequired
	case state == models.TaskDone:
		return a2a.TaskStateCompleted
	case state == models.TaskFailed:
		return a2a.TaskStateFailed
	case state == models.TaskCancelled:
		return a2a.TaskStateCanceled
	case attempt == 0:
		return a2a.TaskStateSubmitted
	}
	return a2a.TaskStateWorking
}

// stamp returns a time in milliseconds (A2A 1.0 §5.6.1).
func stamp(at time.Time) *time.Time { return new(at.UTC().Truncate(time.Millisecond)) }

// questionMessage returns the question that an agent has asked at a time, which is part of its id.
func questionMessage(about a2a.TaskInfo, askingID string, at time.Time, q orchestrator.Question) *a2a.Message {
	out := agentText(askingID+"-question-"+strconv.FormatInt(at.UnixMicro(), 10), q.Text, about)
	if len(q.Options) > 0 {
		out.SetMeta("options", q.Options)
	}
	return out
}

// status returns the status of a task.
func (s *service) status(ctx context.Context, f found) (out a2a.TaskStatus, err error) {
	switch {
	case f.flow != nil:
		return s.workflowStatus(ctx, f)
	case f.core == nil:
		return s.statusOutside(f)
	}
	t := *f.core
	out = a2a.TaskStatus{State: stateOf(t.State, t.WaitingFor, t.Attempt), Timestamp: stamp(t.UpdatedAt)}
	if t.State.Ended() {
		if t.Error != "" {
			out.Message = errorMessage(f.info(), t.Version, t.ErrorCode, t.Error)
		}
		return out, nil
	}
	asking, open, err := s.Orchestrator.TaskAwaitingReply(ctx, t)
	if err != nil || !open {
		return out, err
	}
	return s.asking(ctx, f, out, asking)
}

// asking returns the status of a task with the question of the task that waits for a reply.
func (s *service) asking(ctx context.Context, f found, out a2a.TaskStatus, asking models.Task) (a2a.TaskStatus, error) {
	q, err := s.Orchestrator.OpenQuestion(ctx, asking)
	out.State, out.Message = a2a.TaskStateInputRequired, questionMessage(f.info(), asking.ID, q.At, q.Question)
	return out, err
}

// errorMessage returns the reason why a task has failed or was cancelled.
func errorMessage(about a2a.TaskInfo, change int64, code, text string) *a2a.Message {
	out := agentText(string(about.TaskID)+"-end-"+strconv.FormatInt(change, 10), text, about)
	if code != "" {
		out.SetMeta("code", code)
	}
	return out
}

// statusOutside returns the status of a task that the core does not have.
func (s *service) statusOutside(f found) (out a2a.TaskStatus, err error) {
	out.Timestamp = stamp(f.row.UpdatedAt)
	switch f.row.State {
	case rows.Rejected:
		out.State, out.Message = a2a.TaskStateRejected, agentText(f.row.ID+"-rejected", f.row.Reason, f.info())
	case rows.Canceled:
		out.State = a2a.TaskStateCanceled
	default:
		var open choice
		open, err = choiceOf(f.row)
		out.State, out.Message = a2a.TaskStateInputRequired, agentText(f.row.ID+"-capability", "Which capability is meant? Reply with one of: "+strings.Join(open.Capabilities, ", "), f.info())
		out.Message.SetMeta("options", open.Capabilities)
	}
	return out, err
}

// view returns a task as A2A shows it.
func (s *service) view(ctx context.Context, f found, show shown) (out *a2a.Task, err error) {
	out = &a2a.Task{ID: a2a.TaskID(f.id()), ContextID: f.contextID()}
	if out.Status, err = s.status(ctx, f); err != nil {
		return nil, err
	}
	limit := rows.MaxMessages
	if show.history != nil {
		if limit = min(limit, *show.history); limit < 0 {
			return nil, fail(a2a.ErrInvalidParams, "historyLength must not be negative")
		}
	}
	switch {
	case limit > 0 && f.first != nil:
		out.History = []*a2a.Message{f.first}
	case limit > 0:
		stored, err := rows.Messages(s.Store.Reads(ctx), f.id(), limit)
		if err != nil {
			return nil, err
		}
		for _, row := range stored {
			m, err := decodeMessage(row.Message)
			if err != nil {
				return nil, err
			}
			out.History = append(out.History, m)
		}
	}
	if f.core != nil {
		out.Metadata = usage(*f.core)
	}
	switch {
	case show.artifacts && f.flow != nil:
		out.Artifacts = workflowArtifacts(*f.flow)
	case show.artifacts && f.core != nil && f.core.State.Ended():
		out.Artifacts, err = s.artifacts(ctx, *f.core)
	}
	return out, err
}

// artifactID is the id of the result of an attempt.
func artifactID(attempt int) a2a.ArtifactID { return a2a.ArtifactID("result-" + strconv.Itoa(attempt)) }

// artifacts returns the result of a task that has ended, nil if there is none.
func (s *service) artifacts(ctx context.Context, t models.Task) ([]*a2a.Artifact, error) {
	if t.OutputBytes == 0 {
		return nil, nil
	}
	parts, err := s.result(ctx, t)
	return []*a2a.Artifact{{ID: artifactID(t.Attempt), Name: "result", Parts: parts}}, err
}

func (s *service) result(ctx context.Context, t models.Task) (a2a.ContentParts, error) {
	if t.OutputBytes > maxOutput {
		return a2a.ContentParts{{Content: a2a.URL("/api/v1/tasks/" + t.ID + "/output"), MediaType: "application/octet-stream"}}, nil
	}
	output, err := s.output(ctx, t)
	return resultParts(output), err
}

func (s *service) output(ctx context.Context, t models.Task) (output []byte, err error) {
	err = s.Orchestrator.Output(ctx, t, models.StreamResult, 0, func(o models.OutputChunk) error {
		output = append(output, o.Data...)
		return nil
	})
	return output, err
}

// get returns a task.
func (s *service) get(ctx context.Context, p models.Principal, req taskRequest) (*a2a.Task, error) {
	f, err := s.find(ctx, p, req.ID)
	if err != nil {
		return nil, err
	}
	return s.view(ctx, f, shown{history: req.HistoryLength, artifacts: true})
}

// await returns a task once it has ended or asks, or as it is when ctx ends or too many requests wait. It calls idle, whose error it
// returns, in intervals.
func (s *service) await(ctx context.Context, by sender, id string, show shown, idle func() error) (f found, out *a2a.Task, err error) {
	for {
		if f, err = s.find(context.WithoutCancel(ctx), by.Principal, id); err != nil {
			return f, nil, err
		}
		if f.core == nil || f.ended() || ctx.Err() != nil {
			break
		}
		_, asking, err := s.Orchestrator.TaskAwaitingReply(ctx, *f.core)
		if err == nil && !asking {
			_, _, err = s.Orchestrator.WaitForQuestion(ctx, by.TokenID, id, s.opts.Heartbeat, false)
		}
		if err == nil {
			err = idle()
		}
		if asking || errs.Is(err, errs.Busy) {
			break
		}
		if err != nil && ctx.Err() == nil {
			return f, nil, err
		}
	}
	if f.flow != nil {
		if f, err = s.awaitWorkflow(ctx, by, f, idle); err != nil {
			return f, nil, err
		}
	}
	out, err = s.view(context.WithoutCancel(ctx), f, show)
	return f, out, err
}

// send processes a message and returns its task, once it has ended or asks, or at once if the client does not wait. A result that is
// only a message is returned as one.
func (s *service) send(ctx context.Context, by sender, req sendRequest, idle func() error) (a2a.Event, error) {
	f, err := s.accept(ctx, by, req)
	if err != nil {
		return nil, err
	}
	show := shown{history: req.Configuration.HistoryLength, artifacts: true}
	if req.Configuration.ReturnImmediately {
		if f.first == nil {
			f, err = s.find(ctx, by.Principal, f.id())
		}
		if err != nil {
			return nil, err
		}
		return s.view(ctx, f, show)
	}
	f, out, err := s.await(ctx, by, f.id(), show, idle)
	if err == nil && ctx.Err() == nil {
		err = idle() // the token may have been revoked before the wait
	}
	if err != nil || f.core == nil || f.core.State != models.TaskDone || f.core.OutputBytes > maxOutput {
		return out, err
	}
	output, err := s.output(ctx, *f.core)
	if text, ok := messageOf(output); ok && err == nil {
		m := agentText(f.id()+"-message", text, f.info())
		m.Metadata = out.Metadata
		return m, nil
	}
	return out, err
}

// cancel cancels a task that has not ended.
func (s *service) cancel(ctx context.Context, p models.Principal, req taskRequest) (*a2a.Task, error) {
	f, err := s.findOwn(ctx, p, req.ID)
	if err != nil {
		return nil, err
	}
	late := fail(a2a.ErrTaskNotCancelable, "the task %s has ended", req.ID)
	if f.ended() {
		return nil, late
	}
	if f.flow != nil {
		err = s.Workflows.Abort(ctx, p, req.ID, "cancelled by "+p.Name)
		if name := tools.ErrorName(err); name == "WORKFLOW_STATE" || name == "WORKFLOW_NOT_FOUND" { // it has ended
			err = late
		}
	} else if f.core == nil {
		err = s.Store.Write(ctx, func(tx *store.Tx) error {
			switch ok, err := rows.Move(tx, req.ID, rows.Canceled, ""); {
			case err != nil:
				return err
			case !ok:
				return late
			}
			return closed(tx, f.row, models.TaskCancelled, "")
		})
	} else if _, err = s.Orchestrator.Cancel(ctx, req.ID, "cancelled by "+p.Name, nil); errs.Is(err, errs.TaskState) {
		err = late
	}
	if err != nil {
		return nil, err
	}
	return s.get(ctx, p, req)
}

// filters are the states by which tasks are listed.
var filters = map[a2a.TaskState]rows.Filter{ //nolint:gochecknoglobals // a constant table
	"": rows.AnyState, "TASK_STATE_UNSPECIFIED": rows.AnyState, a2a.TaskStateSubmitted: rows.Submitted, a2a.TaskStateWorking: rows.Working,
	a2a.TaskStateInputRequired: rows.InputRequired, a2a.TaskStateCompleted: rows.Completed, a2a.TaskStateFailed: rows.Failed,
	a2a.TaskStateCanceled: rows.Cancelled, a2a.TaskStateRejected: rows.Refused,
}

// list returns a page of the tasks that the token has requested over A2A, the last changed one first.
func (s *service) list(ctx context.Context, p models.Principal, req listRequest) (*a2a.ListTasksResponse, error) {
	q, err := req.query(p)
	if err != nil {
		return nil, err
	}
	size := q.Limit
	out := &a2a.ListTasksResponse{Tasks: []*a2a.Task{}, PageSize: size}
	if q.State == noState {
		return out, nil
	}
	q.Limit++ // one more than the page shows whether there is a next one
	page, total, err := rows.List(s.Store.Reads(ctx), q)
	if err != nil {
		return nil, err
	}
	out.TotalSize = total
	if len(page) > size {
		page = page[:size]
		out.NextPageToken = pageToken(page[size-1], total)
	}
	written := 0
	for i, at := range page {
		f, err := s.find(ctx, p, at.ID)
		if errors.Is(err, a2a.ErrTaskNotFound) { // it was purged
			continue
		}
		if err != nil {
			return nil, err
		}
		t, err := s.view(ctx, f, shown{history: req.HistoryLength, artifacts: req.IncludeArtifacts})
		if err != nil {
			return nil, err
		}
		out.Tasks = append(out.Tasks, t)
		text, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		if written += len(text); written > maxPageBytes && i < len(page)-1 {
			out.NextPageToken = pageToken(at, total)
			break
		}
	}
	return out, nil
}

// pageToken returns the token of the page after a task. It contains the number of tasks on all pages, which only the first page counts.
func pageToken(last rows.Position, total int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(last.At.UnixMicro(), 10) + "." + strconv.Itoa(total) + "." + last.ID))
}

// noState selects no task: those in TASK_STATE_AUTH_REQUIRED, which comet does not have.
const noState rows.Filter = -1

// query returns the query of a list.
func (r listRequest) query(p models.Principal) (rows.Query, error) {
	q := rows.Query{Owner: p.TokenID, ContextID: r.ContextID, Limit: defaultPageSize}
	if !isPrintable(r.ContextID) {
		return q, fail(a2a.ErrInvalidParams, "contextId must have printable characters")
	}
	known := false
	if q.State, known = filters[r.Status]; r.Status == a2a.TaskStateAuthRequired {
		q.State = noState
	} else if !known {
		return q, fail(a2a.ErrInvalidParams, "status must be a state of a task, not %s", input.Quote(string(r.Status)))
	}
	if r.PageSize != nil {
		if q.Limit = *r.PageSize; q.Limit < 1 || q.Limit > maxPageSize {
			return q, fail(a2a.ErrInvalidParams, "pageSize must be 1 to %d", maxPageSize)
		}
	}
	if r.StatusTimestampAfter != nil {
		q.After = *r.StatusTimestampAfter
	}
	if r.PageToken != "" {
		invalid := fail(a2a.ErrInvalidParams, "pageToken must be the nextPageToken of an earlier page")
		text, err := base64.RawURLEncoding.DecodeString(r.PageToken)
		parts := strings.SplitN(string(text), ".", 3)
		if err != nil || len(parts) < 3 || parts[2] == "" || !isPrintable(parts[2]) {
			return q, invalid
		}
		micros, err := strconv.ParseInt(parts[0], 10, 64)
		total, wrong := strconv.Atoi(parts[1])
		if err != nil || wrong != nil || total < 0 {
			return q, invalid
		}
		q.Cursor, q.Total = rows.Position{At: time.UnixMicro(micros).UTC(), ID: parts[2]}, total
	}
	return q, nil
}
