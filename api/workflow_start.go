package api

import (
	"net/http"
	"net/url"

	"encoding/json"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
)

// workflowDraft is the body of a request to start a workflow.
type workflowDraft struct {
	Workflow *workflow.Graph `json:"workflow" validate:"omitnil" extensions:"x-nullable"` // The tasks and their dependencies. Exactly one of `workflow`, `intent` and `definition` is required.
	// A sentence in English or French that states what to do, with all arguments, at most 8,000 bytes; instead of `workflow`.
	Intent     *string             `json:"intent" validate:"omitnil,min=1,max=8000" example:"Read the file config.json" minLength:"1" maxLength:"8000" extensions:"x-nullable"`
	Definition *workflowInvocation `json:"definition" validate:"omitnil" extensions:"x-nullable"` // A stored workflow, instead of `workflow`.
	Config     *workflowConfig     `json:"config" validate:"omitnil" extensions:"x-nullable"`     // Options of the workflow. Of each option of the request and a stored workflow, the stricter value applies; `task_timeout_ms` of the request takes precedence.
}

// workflowInvocation selects a stored workflow.
type workflowInvocation struct {
	Name    *string         `json:"name" validate:"required,max=64" example:"nightly-report" maxLength:"64"`          // Its name.
	Version *int64          `json:"version" validate:"omitnil,min=1" example:"3" minimum:"1" extensions:"x-nullable"` // Its version, by default the newest.
	Input   json.RawMessage `json:"input" swaggertype:"object"`                                                       // The input, an object that matches the input schema; `$input.path` in arguments refers to it.
}

// workflowStarted is the response to a request to start a workflow. The description shows the members as alternatives.
//
//nolint:unused // the OpenAPI description is generated from it
type workflowStarted struct {
	Workflow *workflow.View     `json:"workflow" extensions:"x-one-of"`
	Plan     *workflow.Proposal `json:"plan"     extensions:"x-one-of"`
}

// workflowConfig has the options of a workflow.
type workflowConfig struct {
	// Who can approve tasks: the token that starts the workflow (`caller`), another token with the scope `workflows:approve`
	// (`other`), or a person with such a token that is not bound to an agent (`human`).
	Approver *string `json:"approver" validate:"omitnil,oneof=caller other human" enums:"caller,other,human" example:"other" default:"caller" extensions:"x-nullable"`
	// Whether to pause after each layer: the tasks whose dependencies are all in earlier layers.
	PerLayerValidation bool `json:"per_layer_validation" example:"false" default:"false"`
	// Whether independent tasks still begin after one has failed.
	OnError *string `json:"on_error" validate:"omitnil,oneof=continue abort" enums:"continue,abort" example:"continue" default:"continue" extensions:"x-nullable"`
	// Require approval for tasks of this class or above; by default only tasks with `approve` need approval.
	Approvals *models.ToolClass `json:"approvals" validate:"omitnil,oneof=write destructive" swaggertype:"string" enums:"write,destructive" example:"destructive" extensions:"x-nullable"`
	// Timeout in milliseconds of each attempt of tasks without `timeout_ms`. For agent_task it is how long an attempt may be
	// silent, at least 100; the default is that of the class of the task.
	TaskTimeoutMS *int64 `json:"task_timeout_ms" validate:"omitnil,min=1,max=86400000" example:"30000" minimum:"1" maximum:"86400000" default:"30000" extensions:"x-nullable"`
	// The number of tokens that all tasks may use in total. They are reserved at the start from the budget of the agent that pays.
	Budget *int64 `json:"budget" validate:"omitnil,min=1,max=1000000000000" example:"20000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
}

func (c *workflowConfig) settings() workflow.Settings {
	if c == nil {
		return workflow.Settings{}
	}
	approver := workflow.Approver(orZero(c.Approver))
	if approver == "caller" {
		approver = workflow.ApproverCaller
	}
	return workflow.Settings{
		ValidateLayers: c.PerLayerValidation, AbortOnError: orZero(c.OnError) == "abort", Approvals: orZero(c.Approvals), TimeoutMS: orZero(c.TaskTimeoutMS),
		Budget: orZero(c.Budget), Approver: approver,
	}
}

// workflowDraftOf returns the body of a request, which has exactly one of a workflow, an intent and a definition.
func (s *Server) workflowDraftOf(w http.ResponseWriter, r *http.Request) (d workflowDraft, body []byte, err error) {
	if _, body, err = s.readRequest(w, r, validBody, &d); err != nil {
		return d, nil, err
	}
	switch {
	case d.Workflow == nil && d.Intent == nil && d.Definition == nil:
		return d, nil, invalidField("/workflow", "required", "one of workflow, intent and definition is required")
	case d.Intent != nil && (d.Workflow != nil || d.Definition != nil):
		return d, nil, invalidField("/intent", "exclusive", "only one of workflow, intent and definition is allowed")
	case d.Workflow != nil && d.Definition != nil:
		return d, nil, invalidField("/definition", "exclusive", "only one of workflow, intent and definition is allowed")
	}
	return d, body, nil
}

// draft returns the workflow to start, which is not an intent, and the JSON pointer of its steps or of the stored workflow.
func (d workflowDraft) draft() (out workflow.Draft, at string) {
	out.Settings = d.Config.settings()
	if from := d.Definition; from != nil {
		out.Definition = &workflow.Invocation{Name: *from.Name, Version: orZero(from.Version), Input: from.Input}
		return out, "/definition"
	}
	out.Steps = d.Workflow.Tasks
	return out, "/workflow/tasks"
}

func invalidField(pointer, rule, detail string) error {
	var violations errs.Violations
	violations.Add(errs.InvalidRequest, pointer, rule, "%s", detail)
	return violations.Err()
}

// ofIntent adds the JSON pointer of the intent to its error.
func ofIntent(err error) error {
	if errs.Is(err, errs.InvalidRequest) && tools.ErrorName(err) == "" && len(errs.From(err).Fields) == 0 {
		return invalidField("/intent", "range", errs.From(err).Detail)
	}
	return err
}

// planWorkflow checks a workflow.
//
//	@Summary		Check a workflow without starting it
//	@Description	Makes the same checks as the start of a workflow or an intent, and returns the tasks with their tools, classes and layers, and which of them need approval. Nothing is stored or executed. If the plan for an intent is not complete or not certain, `status` is `suggestion` or `explicit_required`.
//	@Param			body	body	workflowDraft	true	"The workflow"
//	@Success		200	{object}	workflow.Proposal	"The plan"
//	@Failure		400	"A field is missing or malformed, an id is not unique, a reference names an unknown task, the dependencies of the tasks form a cycle, or the input does not match its schema"
//	@Failure		404	"The stored workflow or a tool does not exist, or the token may not call the tool"
//	@Failure		403	"The token lacks the scope `tools:call`, or `messages:send` for agent tasks; or its agent is inactive"
func (s *Server) planWorkflow(w http.ResponseWriter, r *http.Request) error {
	d, _, err := s.workflowDraftOf(w, r)
	if err != nil {
		return err
	}
	var p workflow.Proposal
	if d.Intent == nil {
		draft, at := d.draft()
		p, err = s.core.Workflows.Plan(r.Context(), toolCaller(r), draft, at)
	} else if p, err = s.core.Workflows.PlanIntent(r.Context(), toolCaller(r), *d.Intent, d.Config.settings()); err != nil {
		err = ofIntent(err)
	}
	if err != nil {
		return err
	}
	return s.writeReply(w, r, p)
}

// startWorkflow starts a workflow.
//
//	@Summary		Start a workflow
//	@Description	Executes tool calls, code and agent tasks that depend on each other, like `agentcards:execute_dag` over MCP. The workflow is stored and survives restarts of the server. The response is 202 with the workflow, or 200 if it is already paused or has ended. If the plan for an `intent` is not complete or not certain, nothing is started, and the response is 200 with the plan. With `Prefer: wait=N` the response is 200 as soon as the workflow is paused or has ended, or 202 after N seconds. `Preference-Applied` contains the granted wait. If the limit of waiting requests is reached, the header is absent and the response is immediate.
//	@Description
//	@Description	Tools are called with the permissions of this token: its policy and the budget of its agent apply. Agent tasks require the scope `messages:send`. A token can read and change the workflows that it started; a token with `admin` all workflows. With `approver`, other tokens with the scope `workflows:approve` can read the workflow and decide on its checkpoints.
//	@Param			Idempotency-Key	header	string			false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response; with `Prefer: wait` it waits for the same workflow"	maxlength(255)
//	@Param			Prefer			header	string			false	"`wait=N` waits up to N seconds until the workflow is paused or has ended, at most 60 and less than the server's time limit for requests"	example(wait=10)
//	@Param			traceparent		header	string			false	"W3C trace context of the workflow"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			body			body	workflowDraft	true	"The workflow"
//	@Success		200	{object}	workflowStarted	"The workflow is paused or has ended; or it was not started, and this is the plan for the intent"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Success		202	{object}	workflow.View	"The workflow has been started"
//	@Header			202	{string}	ETag
//	@Header			202	{string}	Location
//	@Header			202	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Failure		400	"A field is missing or malformed, an id is not unique, a reference names an unknown task, the dependencies of the tasks form a cycle, or the input does not match its schema"
//	@Failure		404	"The stored workflow or a tool does not exist, or the token may not call the tool"
//	@Failure		403	"The token lacks the scope `tools:call`, or `messages:send` for agent tasks; or its agent is inactive"
//	@Failure		429	"The token or the server has too many workflows that have not ended, the daily budget of the agent does not cover the budget of the workflow, or the token exceeds its rate limit"
//	@Header			429	{integer}	Retry-After
//	@Header			429	{integer}	RateLimit-Limit
//	@Header			429	{integer}	RateLimit-Remaining
//	@Header			429	{integer}	RateLimit-Reset
func (s *Server) startWorkflow(w http.ResponseWriter, r *http.Request) error {
	d, body, err := s.workflowDraftOf(w, r)
	if err != nil {
		return err
	}
	patience, _, err := httpkit.PreferredWait(r, s.maxWait())
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, storing(s, startedWorkflow))
	if err != nil {
		return err
	}
	var v workflow.View
	if d.Intent == nil {
		draft, at := d.draft()
		v, err = s.core.Workflows.Begin(r.Context(), toolCaller(r), draft, at, once)
	} else {
		var p workflow.Proposal
		if v, p, err = s.core.Workflows.BeginIntent(r.Context(), toolCaller(r), *d.Intent, d.Config.settings(), once); err != nil {
			err = ofIntent(err)
		} else if p.Status != workflow.Ready {
			return s.writeReply(w, r, p)
		}
	}
	if err != nil || patience == 0 && s.writeReplay(w, once) {
		return err
	}
	if once != nil && once.Replay != nil {
		var first struct {
			ID string `json:"workflow_id"`
		}
		if err := json.Unmarshal(once.Replay.Body, &first); err != nil {
			return err
		}
		v.WorkflowID = first.ID
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if patience > 0 {
		if v, err = s.awaitWorkflow(w, r, v.WorkflowID, patience); err != nil {
			return err
		}
	}
	return s.writeReply(w, r, startedWorkflow(v))
}

func startedWorkflow(v workflow.View) reply {
	out := workflowReply(v)
	if out.location = workflowsPath + "/" + url.PathEscape(v.WorkflowID); v.Status == "running" {
		out.status = http.StatusAccepted
	}
	return out
}
