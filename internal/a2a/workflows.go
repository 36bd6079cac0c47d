package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
)

// A message starts a workflow if metadata.workflow names a stored workflow, or if its capability is executeWorkflow. The id of the
// workflow is that of its task.
const executeWorkflow = "execute_workflow"

// workflowRequest returns the workflow that a message starts, nil if it requests a task.
func (m message) workflowRequest(req sendRequest) (*workflow.Request, error) {
	name := m.metadata("workflow", req.Metadata)
	if name == "" && m.metadata("capability", req.Metadata) != executeWorkflow {
		return nil, nil
	}
	if req.Tenant != "" {
		return nil, fail(a2a.ErrInvalidParams, "tenant must be absent: a workflow is executed by the agents and tools of its steps")
	}
	r, err := m.workflowDraft(name)
	if err != nil {
		return nil, err
	}
	budget, err := m.budget(req.Metadata)
	if budget != nil {
		r.Config = cmp.Or(r.Config, &workflow.Config{})
		r.Config.Budget = cmp.Or(r.Config.Budget, budget)
	}
	return r, err
}

// workflowDraft returns the request for a stored workflow, whose input is the content of the message, or that in the message: an
// object, or a text as the intent.
func (m message) workflowDraft(name string) (*workflow.Request, error) {
	content, err := m.parameters()
	if err != nil {
		return nil, err
	}
	if !m.isObject() {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(content, &members); err != nil {
			return nil, err
		}
		delete(members, "message_id")
		if text, ok := input.JSONString(members["text"]); ok && name == "" && len(members) == 1 {
			return &workflow.Request{Intent: &text}, nil
		}
		if content, err = json.Marshal(members); err != nil {
			return nil, err
		}
	}
	if name != "" {
		return &workflow.Request{Definition: &workflow.Invocation{Name: name, Input: content}}, nil
	}
	r := &workflow.Request{}
	if err := input.DecodeJSON(content, r); err != nil {
		return nil, inData(err)
	}
	violations := input.Validate(r)
	return r, inData(violations.Err())
}

// isObject reports whether the message has a single part, which is an object.
func (m message) isObject() bool {
	if len(m.Parts) != 1 {
		return false
	}
	data, _ := m.Parts[0].Content.(a2a.Data)
	raw, _ := data.Value.(json.RawMessage) // decodeMessage has set it
	return len(raw) > 0 && raw[0] == '{'
}

// inData returns an error about the content of a message. Its text contains the place of each violation.
func inData(err error) error {
	e := errs.From(err)
	if err == nil || !e.Code.IsInvalid() || len(e.Fields) == 0 {
		return err
	}
	var all []string
	for _, f := range e.Fields {
		all = append(all, f.Pointer+": "+f.Detail)
	}
	return fail(a2a.ErrInvalidParams, "the data of the message is not valid: %s", strings.Join(all, "; "))
}

// startWorkflow starts a workflow. What the token or the server cannot execute is a rejected task.
func (s *service) startWorkflow(ctx context.Context, by sender, m message, r workflow.Request) (string, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return "", err
	}
	t := rows.Task{Owner: by.TokenID, ContextID: cmp.Or(m.ContextID, uuid.NewString())}
	if m.ContextID != "" {
		if err := s.enterContext(ctx, by, t.ContextID); err != nil {
			return "", err
		}
	}
	add := s.adding(by, &t, m)
	r.With = func(tx *store.Tx, id string) error {
		t.ID = id
		return add(tx)
	}
	_, p, err := s.Workflows.Begin(ctx, tools.Caller{Principal: by.Principal, Source: rows.Source, Session: t.ContextID}.Traced(by.traceparent), r, nil)
	if err == nil && p.Status == workflow.Ready {
		return t.ID, nil
	}
	if t.Reason = workflowRefusal(p, err); t.Reason == "" {
		return "", inData(err)
	}
	t.ID, t.State = uuid.Must(uuid.NewV7()).String(), rows.Rejected
	return t.ID, s.Store.Write(ctx, add)
}

// workflowRefusal returns the reason why a workflow cannot be executed, "" for an error of the request or the server.
func workflowRefusal(p workflow.Proposal, err error) string {
	if err == nil {
		missing, _ := json.Marshal(map[string]any{"missing": p.Missing, "unclear": p.Unclear}) // JSON and texts
		return "the text does not determine a workflow (" + p.Status + "): " + string(missing) + "; send the steps as data, see docs/a2a.md"
	}
	switch e := errs.From(err); {
	case e.Code == errs.NotFound, e.Code == errs.ToolDenied, e.Code == errs.UpstreamFailed, tools.ErrorName(err) == "BUDGET_EXCEEDED":
		return e.Detail
	}
	return ""
}

// workflowState returns the state of a task for the status of a workflow, or of one of its events.
func workflowState(status string) a2a.TaskState {
	switch status {
	case "running":
		return a2a.TaskStateWorking
	case "complete":
		return a2a.TaskStateCompleted
	case "error":
		return a2a.TaskStateFailed
	case "aborted", "rejected":
		return a2a.TaskStateCanceled
	}
	return a2a.TaskStateInputRequired // a pause
}

// workflowStatus returns the status of a workflow.
func (s *service) workflowStatus(ctx context.Context, f found) (out a2a.TaskStatus, err error) {
	v := f.flow
	switch out = (a2a.TaskStatus{State: workflowState(v.Status), Timestamp: stamp(v.UpdatedAt)}); out.State {
	case a2a.TaskStateWorking:
		asking, open, err := s.Workflows.TaskAwaitingReply(ctx, v.WorkflowID)
		if err != nil || !open {
			return out, err
		}
		return s.asking(ctx, f, out, asking)
	case a2a.TaskStateInputRequired:
		out.Message = agentText(v.CheckpointID+"-question", v.Question()+"\nReply with one of: "+strings.Join(v.Choices(), ", "), f.info())
		out.Message.SetMeta("options", v.Choices())
		out.Message.SetMeta("checkpoint_id", v.CheckpointID)
	case a2a.TaskStateFailed, a2a.TaskStateCanceled:
		out.Message = agentText(v.WorkflowID+"-end", endOf(*v), f.info())
	}
	return out, nil
}

// endOf returns why a workflow was not successful.
func endOf(v workflow.View) string {
	var failed []string
	for _, r := range v.TaskResults {
		if r.Status == "error" {
			failed = append(failed, r.TaskID+": "+r.Error)
		}
	}
	return cmp.Or(v.Reason, v.Feedback, strings.Join(failed, "; "), "the workflow was "+v.Status)
}

// awaitWorkflow returns a workflow once it has ended or asks, or as it is when ctx ends or too many requests wait. It calls idle,
// whose error it returns, in intervals.
func (s *service) awaitWorkflow(ctx context.Context, by sender, f found, idle func() error) (found, error) {
	if workflowState(f.flow.Status) != a2a.TaskStateWorking {
		return f, nil
	}
	release, err := s.streams.Acquire(by.TokenID)
	if err != nil { // too many requests wait
		return f, nil
	}
	defer release()
	changes, err := s.Feed.SubscribeNew(ctx)
	for ctx.Err() == nil && err == nil {
		var status a2a.TaskStatus
		if f, err = s.find(context.WithoutCancel(ctx), by.Principal, f.id()); err == nil {
			status, err = s.workflowStatus(context.WithoutCancel(ctx), f)
		}
		if err != nil || status.State != a2a.TaskStateWorking {
			return f, err
		}
		if _, err = s.nextEvents(ctx, changes.Only(workflowEvents()...), f.id()); err == nil {
			err = idle()
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	return f, err
}

// maxStepResult is the longest result of a step in an artifact, in bytes; longer ones are read from the REST API.
const maxStepResult = 256 << 10

// stepArtifact returns the result of a step, nil for one that is too long.
func stepArtifact(id, step string, result json.RawMessage) *a2a.Artifact {
	out := &a2a.Artifact{ID: a2a.ArtifactID("step-" + step), Name: step}
	text, isText := input.JSONString(result)
	switch {
	case result == nil || len(result) > maxStepResult:
		out.Parts = a2a.ContentParts{{Content: a2a.URL("/api/v1/workflows/" + id + "/steps/" + step + "/result"), MediaType: "application/json"}}
	case isText:
		out.Parts = a2a.ContentParts{{Content: a2a.Text(text), MediaType: "text/plain"}}
	case isJSON(result):
		out.Parts = resultParts(result)
	default: // a number, a boolean or null
		out.Parts = a2a.ContentParts{{Content: a2a.Data{Value: result}, MediaType: "application/json"}}
	}
	return out
}

// workflowArtifacts returns the results of the steps that were successful, in the order of the steps.
func workflowArtifacts(v workflow.View) (out []*a2a.Artifact) {
	results := v.TaskResults
	if results == nil {
		results = v.LayerResults
	}
	for _, r := range results {
		if r.Status == "success" {
			result, _ := r.Result.(json.RawMessage)
			out = append(out, stepArtifact(v.WorkflowID, r.TaskID, result))
		}
	}
	return out
}

// decision is the decision of a client on the open checkpoint, as data.
type decision struct {
	Decision     string                     `json:"decision"`
	Feedback     string                     `json:"feedback" validate:"text,max=2000"`
	CheckpointID string                     `json:"checkpoint_id"`
	Budget       int64                      `json:"budget" validate:"min=0,max=1000000000000"`
	Results      map[string]json.RawMessage `json:"results"`
}

// decision returns the decision that a message expresses: its data, or the first word of its text, followed by the new budget
// or by a text for the history of the workflow.
func (m message) decision(v workflow.View) (d workflow.Decision, err error) {
	var in decision
	text, err := m.text()
	switch {
	case err != nil:
		return d, err
	case m.isObject():
		if err := input.DecodeJSON([]byte(text), &in); err != nil {
			return d, inData(err)
		}
	default:
		first, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		if in.Decision, in.Feedback = strings.ToLower(first), strings.TrimSpace(rest); in.Decision == string(workflow.ResolutionRaise) {
			in.Budget, err = strconv.ParseInt(in.Feedback, 10, 64)
			in.Feedback = ""
		}
	}
	violations := input.Validate(in)
	switch choices := strings.Join(v.Choices(), ", "); {
	case violations.Err() != nil:
		return d, inData(violations.Err())
	case !slices.Contains(v.Choices(), in.Decision):
		return d, fail(a2a.ErrInvalidParams, "the decision must be one of %s, not %s: send it as text, or as data with the member decision", choices, input.Quote(in.Decision))
	case in.CheckpointID != "" && in.CheckpointID != v.CheckpointID:
		return d, fail(a2a.ErrUnsupportedOperation, "the checkpoint %s is not open; get the task for the open one", input.Quote(in.CheckpointID))
	case in.Decision == string(workflow.ResolutionRaise) && (err != nil || in.Budget == 0):
		return d, fail(a2a.ErrInvalidParams, "the decision raise needs the new total budget: send \"raise 20000\", or data with the member budget")
	}
	d = v.Decision(in.Decision)
	d.Feedback, d.Budget, d.Results = in.Feedback, in.Budget, in.Results
	return d, nil
}

// decide applies the decision of a message to the open checkpoint of a workflow.
func (s *service) decide(ctx context.Context, by sender, f found, m message) error {
	if !by.Has(models.ScopeWorkflowsApprove) {
		if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
			return err
		}
	}
	d, err := m.decision(*f.flow)
	if err != nil {
		return err
	}
	status, err := s.workflowStatus(ctx, f)
	if err != nil {
		return err
	}
	d.With = s.replying(by, f, m, status.Message)
	err = s.Workflows.Decide(ctx, by.Principal, f.id(), f.flow.CheckpointID, d)
	if name := tools.ErrorName(err); name == "WORKFLOW_STATE" || name == "CHECKPOINT_STALE" || name == "WORKFLOW_NOT_FOUND" {
		err = fail(a2a.ErrUnsupportedOperation, "%s", errs.From(err).Detail)
	}
	return err
}
