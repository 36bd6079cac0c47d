package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"comet/internal/httpkit"
	"comet/internal/workflow"
)

// workflowStarted is the response to a request to start a workflow. The description shows the members as alternatives.
//
//nolint:unused // the OpenAPI description is generated from it
type workflowStarted struct {
	Workflow *workflow.View     `json:"workflow" extensions:"x-one-of"`
	Plan     *workflow.Proposal `json:"plan"     extensions:"x-one-of"`
}

// planWorkflow checks a workflow.
//
//	@Summary		Check a workflow without starting it
//	@Description	Makes the same checks as the start of a workflow or an intent, and returns the tasks with their tools, classes and layers, and which of them need approval. Nothing is stored or executed. If the plan for an intent is not complete or not certain, `status` is `suggestion` or `explicit_required`.
//	@Param			body	body	workflow.Request	true	"The workflow"
//	@Success		200	{object}	workflow.Proposal	"The plan"
//	@Failure		400	"A field is missing or malformed, an id is not unique, a reference names an unknown task, the dependencies of the tasks form a cycle, or the input does not match its schema"
//	@Failure		404	"The stored workflow or a tool does not exist, or the token may not call the tool"
//	@Failure		403	"The token lacks the scope `tools:call`, or `messages:send` for agent tasks; or its agent is inactive"
func (s *Server) planWorkflow(w http.ResponseWriter, r *http.Request) error {
	var d workflow.Request
	if _, _, err := s.readRequest(w, r, validBody, &d); err != nil {
		return err
	}
	p, err := s.core.Workflows.Plan(r.Context(), toolCaller(r), d)
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
//	@Param			body			body	workflow.Request	true	"The workflow"
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
	var d workflow.Request
	_, body, err := s.readRequest(w, r, validBody, &d)
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
	v, p, err := s.core.Workflows.Begin(r.Context(), toolCaller(r), d, once)
	if err != nil || patience == 0 && s.writeReplay(w, once) {
		return err
	}
	if p.Status != workflow.Ready {
		return s.writeReply(w, r, p)
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

const definitionsPath = "/api/v1/workflow-definitions"

// definitionDraft is the body of a request to store a workflow.
type definitionDraft struct {
	Workflow    *workflow.Graph  `json:"workflow" validate:"required"`                                                                                 // The tasks. `$input.path` in arguments is replaced by a part of the input.
	Config      *workflow.Config `json:"config" validate:"omitnil" extensions:"x-nullable"`                                                            // Options of the workflow.
	InputSchema json.RawMessage  `json:"input_schema" swaggertype:"object"`                                                                            // JSON Schema for the input. `$ref` is not supported. A missing top-level member gets the default of its property.
	Description *string          `json:"description" validate:"omitnil,text,max=2000" example:"Daily report" maxLength:"2000" extensions:"x-nullable"` // The purpose of the workflow.
}

// definitionItem is a stored workflow in a list.
type definitionItem struct {
	Name        string    `json:"name" example:"nightly-report"`                // The name.
	Version     int64     `json:"version" example:"3"`                          // The newest version.
	Description string    `json:"description,omitempty" example:"Daily report"` // The purpose of the workflow; absent if none was stored.
	CreatedBy   string    `json:"created_by" example:"ci"`                      // Name of the token that stored the version.
	CreatedAt   time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`    // When the version was stored.
}

func newDefinitionItem(d workflow.Definition) definitionItem {
	return definitionItem{d.Name, d.Version, d.Description, d.CreatedBy, d.CreatedAt}
}

// definitionList is one page of stored workflows.
type definitionList struct {
	Definitions []definitionItem `json:"definitions"`                                         // The newest version of each stored workflow.
	NextCursor  string           `json:"next_cursor,omitempty" example:"bmlnaHRseS1yZXBvcnQ"` // Absent on the last page.
}

// listDefinitions lists the stored workflows.
//
//	@Summary		List stored workflows
//	@Description	Returns the newest version of each stored workflow, without its tasks, ordered by name.
//	@Success		200	{object}	definitionList	"A page of results"
func (s *Server) listDefinitions(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	after, limit := q.idCursor(), q.pageLimit()
	if err := q.Err(); err != nil {
		return nil, err
	}
	list, err := s.core.Workflows.Definitions(r.Context(), after, limit+1)
	list, next := cutPage(list, limit, func(d workflow.Definition) string { return d.Name })
	return reply{next: next, body: definitionList{orEmpty(views(list, newDefinitionItem)), next}}, err
}

// getDefinition returns a stored workflow.
//
//	@Summary		Get a stored workflow
//	@Description	Returns a version of a stored workflow, by default the newest one. Its entity tag contains the version.
//	@Param			version	query	int		false	"The version"	minimum(1)	example(3)
//	@Success		200	{object}	workflow.Definition	"The stored workflow"
func (s *Server) getDefinition(r request) (any, error) {
	q := newQuery(r.Request, "version")
	version := q.Int("version", 1, maxOffset, 0)
	if err := q.Err(); err != nil {
		return nil, err
	}
	d, err := s.core.Workflows.Definition(r.Context(), r.id, int64(version))
	return reply{version: d.Version, body: d}, err
}

// putDefinition stores a workflow.
//
//	@Summary		Store a workflow
//	@Description	Stores the next version of a workflow. Tokens with the scope `tools:call` can start it by its name; the tasks are executed with the permissions of the token that starts it. If the newest version has the same content, nothing is stored. Whether the tools exist is checked only when the workflow is started.
//	@Param			definition_id	path	string			true	"The name: lowercase letters, digits, dots, underscores and hyphens"	maxlength(64)	example(nightly-report)
//	@Param			If-Match		header	string	false	"Store the version only if this entity tag is that of the newest version"
//	@Param			If-None-Match	header	string	false	"With `*`: store the workflow only if the name is not in use"
//	@Param			body			body	definitionDraft	true	"The workflow"
//	@Success		200	{object}	workflow.Definition	"The newest version already had this content, or a further version was stored"
//	@Success		201	{object}	workflow.Definition	"The first version was stored"
//	@Header			200	{string}	ETag
//	@Header			201	{string}	ETag
//	@Header			201	{string}	Location
//	@Failure		409	"Another version was stored at the same time"
//	@Failure		412	"The newest version does not match the precondition"
func (s *Server) putDefinition(r request, d definitionDraft) (any, error) {
	out, stored, err := s.core.Workflows.SaveDefinition(r.Context(), r.caller, workflow.Definition{
		Name: r.id, Description: orZero(d.Description), Workflow: *d.Workflow, Config: orZero(d.Config), InputSchema: presentJSON(d.InputSchema),
	}, r.pre)
	res := reply{version: out.Version, body: out}
	if stored && out.Version == 1 {
		res.status, res.location = http.StatusCreated, definitionsPath+"/"+out.Name
	}
	return res, err
}

// presentJSON returns nil for null.
func presentJSON(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

// deleteDefinition deletes a stored workflow.
//
//	@Summary		Delete a stored workflow
//	@Description	Deletes all versions of a stored workflow. Workflows that were started from it are not affected.
//	@Param			If-Match	header	string	false	"Delete it only if this entity tag is that of the newest version"
//	@Success		204	"Deleted"
//	@Failure		412	"The newest version does not match the precondition"
func (s *Server) deleteDefinition(r request) error {
	return s.core.Workflows.DeleteDefinition(r.Context(), r.caller, r.id, r.pre)
}
