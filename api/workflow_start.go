package api

import (
	"encoding/json"
	"net/http"
	"net/url"

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
