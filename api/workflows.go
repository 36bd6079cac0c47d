package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/workflow"
)

const workflowsPath = "/api/v1/workflows"

func workflowReply(v workflow.View) reply { return reply{version: v.Version, body: v} }

// awaitWorkflow returns a workflow as soon as it no longer runs, but at the latest after patience, at the time limit of the
// request or when the server shuts down. If the limit of waiting requests is reached, it does not wait.
func (s *Server) awaitWorkflow(w http.ResponseWriter, r *http.Request, id string, patience time.Duration) (workflow.View, error) {
	get := func() (workflow.View, error) { return s.core.Workflows.Get(r.Context(), caller(r), id) }
	v, err := get()
	if err != nil || patience == 0 {
		return v, err
	}
	release, err := s.streams.Acquire(caller(r).TokenID)
	if err != nil {
		return v, nil // without a wait
	}
	defer release()
	w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(patience.Seconds())))
	httpkit.ReleaseBody(r)
	if end, ok := r.Context().Deadline(); ok {
		patience = min(patience, time.Until(end)-afterWait)
	}
	ctx, stop := s.streams.UntilDrain(r.Context())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for v.Status == "running" && ctx.Err() == nil {
		if v, err = s.core.Workflows.Wait(ctx, caller(r), id); err == nil && v.Status == "running" { // another replica executes it
			changed, cancel := s.core.Workflows.UntilChange(ctx, id, v.Version)
			<-changed.Done()
			cancel()
		}
		if ctx.Err() != nil {
			return get()
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// workflowList is one page of workflows.
type workflowList struct {
	Workflows  []workflow.Summary `json:"workflows"`                                   // The workflows on the page.
	NextCursor string             `json:"next_cursor,omitempty" example:"d2ZfMDM0NTM"` // Absent on the last page.
}

// listWorkflows lists workflows.
//
//	@Summary		List workflows
//	@Description	Returns workflows, newest first: those that the token started and, with the scope `workflows:approve`, those with an `approver`. A token that is bound to an agent gets the latter only if an agent of its subtree pays for them. A token with `admin` gets all. Workflows are kept for 30 days after they have ended.
//	@Param			status			query	string	false	"Only workflows in this state"	enums(running,paused,complete,aborted,error)	example(paused)
//	@Param			decidable		query	bool	false	"Only workflows that wait for a decision that this token may make"	default(false)
//	@Success		200	{object}	workflowList	"A page of results"
func (s *Server) listWorkflows(r request) (any, error) {
	q := newQuery(r.Request, "status", "decidable", "limit", "cursor")
	wanted := workflow.Query{Status: q.Enum("status", "", workflow.Statuses()...), Decidable: q.Bool("decidable"), Before: q.idCursor()}
	limit := q.pageLimit()
	if err := q.Err(); err != nil {
		return nil, err
	}
	wanted.Limit = limit + 1
	list, err := s.core.Workflows.List(r.Context(), r.caller, wanted)
	list, next := cutPage(list, limit, func(w workflow.Summary) string { return w.WorkflowID })
	return reply{next: next, body: workflowList{orEmpty(list), next}}, err
}

// getWorkflow returns one workflow.
//
//	@Summary		Get a workflow
//	@Description	Returns a workflow with the results of its tasks and, if it is paused, its checkpoint. Results of more than 256 KiB are left out (`truncated`). With `wait` the response is delayed until the workflow is paused or has ended, but at most for `wait` seconds.
//	@Param			wait			query	int		false	"Seconds to wait until it is paused or has ended, limited by the server's time limit for requests"	minimum(0)	maximum(60)	default(0)
//	@Success		200	{object}	workflow.View	"The workflow"
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
func (s *Server) getWorkflow(w http.ResponseWriter, r *http.Request) error {
	req, err := readPath(r)
	if err != nil {
		return err
	}
	q := newQuery(r, "wait")
	seconds := q.Int("wait", 0, int(maxWait.Seconds()), 0)
	if err := q.Err(); err != nil {
		return err
	}
	return s.writeWorkflow(w, req, min(time.Duration(seconds)*time.Second, s.maxWait()))
}

func (s *Server) writeWorkflow(w http.ResponseWriter, r request, patience time.Duration) error {
	v, err := s.awaitWorkflow(w, r.Request, r.id, patience)
	if err != nil {
		return err
	}
	return s.writeReply(w, r.Request, workflowReply(v))
}

// getWorkflowGraph returns the tasks of a workflow with their dependencies.
//
//	@Summary		Get the graph of a workflow
//	@Description	Returns the tasks of a workflow with their dependencies, states, attempts and times, and those of agents with their task and worker.
//	@Success		200	{object}	workflow.StateGraph	"The graph"
func (s *Server) getWorkflowGraph(r request) (any, error) {
	g, err := s.core.Workflows.Graph(r.Context(), r.caller, r.id)
	return reply{version: g.Version, body: g}, err
}

// checkpointList is one page of checkpoints.
type checkpointList struct {
	Checkpoints []workflow.CheckpointRecord `json:"checkpoints"`                                 // The checkpoints on the page.
	NextCursor  string                      `json:"next_cursor,omitempty" example:"Y3BfMDM0NTM"` // Absent on the last page.
}

// listCheckpoints lists the checkpoints of a workflow.
//
//	@Summary		List the checkpoints of a workflow
//	@Description	Returns the checkpoints of a workflow with the tasks that they show and the decisions, newest first. A page of large checkpoints can have fewer entries than `limit`.
//	@Success		200	{object}	checkpointList	"A page of results"
func (s *Server) listCheckpoints(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	before, limit := q.idCursor(), q.pageLimit()
	if err := q.Err(); err != nil {
		return nil, err
	}
	list, more, err := s.core.Workflows.Checkpoints(r.Context(), r.caller, r.id, before, limit)
	next := ""
	if more {
		next = encodeCursor(list[len(list)-1].CheckpointID)
	}
	return reply{next: next, body: checkpointList{orEmpty(list), next}}, err
}

// getStepResult returns the result of a task.
//
//	@Summary		Get the result of a task of a workflow
//	@Description	Returns the complete result, as the tool, the code or the agent returned it.
//	@Success		200	{object}	any	"The result, a JSON value"
//	@Failure		404	"The workflow or the task does not exist, or the task has no result"
func (s *Server) getStepResult(w http.ResponseWriter, r *http.Request) error {
	req, _, err := s.readRequest(w, r, withoutBody, &struct{}{})
	if err != nil {
		return err
	}
	result, err := s.core.Workflows.Result(r.Context(), req.caller, req.id, req.subID)
	if err != nil {
		return err
	}
	s.writeBody(w, r, http.StatusOK, 0, contentTypeJSON, result)
	return nil
}

// changeWorkflow returns the handler of a change of a workflow, which responds with the state of the workflow.
func changeWorkflow[D any](s *Server, rule bodyRule, do func(request, D) error) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		var d D
		req, _, err := s.readRequest(w, r, rule, &d)
		if err != nil {
			return err
		}
		if err := input.Validate(d).Err(); err != nil { // also an optional body
			return err
		}
		patience, _, err := httpkit.PreferredWait(r, s.maxWait())
		if err != nil {
			return err
		}
		if err := do(req, d); err != nil {
			return err
		}
		return s.writeWorkflow(w, req, patience)
	})
}

// workflowContinuation is the body of a request to continue a workflow.
type workflowContinuation struct {
	CheckpointID *string `json:"checkpoint_id" validate:"omitnil,text,max=64" example:"cp_034530bbngmsf6j6dh3xtmbr50" maxLength:"64" extensions:"x-nullable"` // The checkpoint whose results are confirmed; by default the open one.
	Reason       *string `json:"reason" validate:"omitnil,text,max=2000" example:"the layer is right" maxLength:"2000" extensions:"x-nullable"`               // The reason, which is stored with the checkpoint.
}

// continueWorkflow continues a workflow.
//
//	@Summary		Continue a workflow
//	@Description	Confirms the results of a layer (status `layer_complete`), so that the next layer begins. It has no effect on a running workflow.
//	@Param			Prefer	header	string					false	"`wait=N` waits up to N seconds until the workflow is paused again or has ended"	example(wait=10)
//	@Param			body	body	workflowContinuation	false	"The checkpoint and the reason"
//	@Success		200	{object}	workflow.View	"The workflow"
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Header			200	{string}	ETag
//	@Failure		409	"The workflow has ended, or waits for another decision, or `checkpoint_id` is not open"
func (s *Server) continueWorkflow(r request, d workflowContinuation) error {
	return s.core.Workflows.Continue(r.Context(), r.caller, r.id, orZero(d.CheckpointID), orZero(d.Reason))
}

// workflowAbortion is the body of a request to abort a workflow.
type workflowAbortion struct {
	Reason *string `json:"reason" validate:"required,min=1,text,max=2000" example:"not needed any more" minLength:"1" maxLength:"2000"` // The reason, which the workflow shows.
}

// abortWorkflow aborts a workflow.
//
//	@Summary		Abort a workflow
//	@Description	Ends a workflow: no further task begins, running calls are cancelled, and existing results are kept. A task that may have acted and did not respond in time becomes `uncertain`. Aborting an aborted workflow has no effect.
//	@Param			Prefer	header	string				false	"`wait=N` as for continue; the response has the final state in any case"	example(wait=10)
//	@Param			body	body	workflowAbortion	true	"The reason"
//	@Success		200	{object}	workflow.View	"The workflow"
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Header			200	{string}	ETag
//	@Failure		409	"The workflow has already ended"
func (s *Server) abortWorkflow(r request, d workflowAbortion) error {
	return s.core.Workflows.Abort(r.Context(), r.caller, r.id, *d.Reason)
}

// workflowExtension is the body of a request to add tasks to a workflow.
type workflowExtension struct {
	Workflow       *workflow.Graph `json:"workflow" validate:"required"`                                                                                                            // The tasks to add. They may depend on each other and on all tasks of the workflow.
	NewRequirement *string         `json:"new_requirement" validate:"omitnil,text,max=8000" example:"parse the XML files that were found" maxLength:"8000" extensions:"x-nullable"` // Why they are added; the event `workflow.replanned` contains it.
}

// replanWorkflow adds tasks to a workflow.
//
//	@Summary		Add tasks to a workflow
//	@Description	Adds tasks to a running or paused workflow, at most 10 times. Existing tasks do not change, and a paused workflow stays paused. If its checkpoint shows tasks (an approval, a decision on lost results, or an exhausted budget), a new checkpoint with the same tasks replaces it, because an approval covers the whole plan. If it validates layers, the new tasks belong to the next layer or a later one.
//	@Param			body	body	workflowExtension	true	"The tasks"
//	@Success		200	{object}	workflow.Replanned	"The tasks were added"
//	@Header			200	{string}	ETag
//	@Failure		403	"The token of the workflow lacks the scope `messages:send` for agent tasks, or is no longer accepted"
//	@Failure		404	"The workflow does not exist, or the token of the workflow may not call a tool"
//	@Failure		409	"The workflow has ended, or was replanned 10 times"
func (s *Server) replanWorkflow(r request, d workflowExtension) (any, error) {
	out, _, err := s.core.Workflows.Replan(r.Context(), toolCaller(r.Request), r.id, workflow.Requirement{Text: orZero(d.NewRequirement), Workflow: d.Workflow})
	return reply{version: out.Version, body: out}, err
}

// checkpointDecision is the body of a decision on a checkpoint.
type checkpointDecision struct {
	Approved *bool   `json:"approved" validate:"required" example:"true"`                                                                          // true approves the checkpoint; false rejects it and aborts the workflow.
	Feedback *string `json:"feedback" validate:"omitnil,text,max=2000" example:"the arguments are right" maxLength:"2000" extensions:"x-nullable"` // The reason, which is stored with the checkpoint.
	// The digest of the checkpoint; the decision is rejected if the digest differs.
	Digest *string `json:"digest" validate:"omitnil,printable,max=64" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" maxLength:"64" extensions:"x-nullable"`
	// How to treat tasks whose results were lost: run them again (`retry`), use `results` as their results (`accept`), or skip
	// them (`skip`). For an exhausted budget: `raise`.
	Resolution *workflow.Resolution `json:"resolution" validate:"omitnil,oneof=retry accept skip raise" swaggertype:"string" enums:"retry,accept,skip,raise" example:"retry" extensions:"x-nullable"`
	// The results by task id; required for the resolution `accept`.
	Results map[string]json.RawMessage `json:"results" swaggertype:"object"`
	// The new total budget; required for the resolution `raise`.
	Budget *int64 `json:"budget" validate:"omitnil,min=1,max=1000000000000" example:"40000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
}

// decideOnCheckpoint decides on a checkpoint.
//
//	@Summary		Decide on a checkpoint
//	@Description	Approves or rejects the tasks that a paused workflow shows (status `approval_required`), decides about tasks whose results were lost (status `uncertain`), or raises the budget (status `budget_exhausted`). An approval covers exactly what the checkpoint shows: if the arguments, the definition of a tool or the policy of the token have changed since, nothing is approved, and the response is 409 with the new `checkpoint_id` in `tool_details`. Repeating a decision has no effect.
//	@Description
//	@Description	If the workflow has an `approver`, only tokens with the scope `workflows:approve` can approve tasks and decide about lost results; the token that started the workflow can only reject.
//	@Param			Prefer	header	string				false	"`wait=N` waits up to N seconds until the workflow is paused again or has ended"	example(wait=10)
//	@Param			body	body	checkpointDecision	true	"The decision"
//	@Success		200	{object}	workflow.View	"The workflow"
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Header			200	{string}	ETag
//	@Failure		403	"The token may not make this decision (`tool_error` is `APPROVAL_DENIED`)"
//	@Failure		409	"The checkpoint has been decided, or what it shows has changed"
//	@Failure		429	"The daily budget of the agent does not cover the increase of the budget, or the token exceeds its rate limit"
func (s *Server) decideOnCheckpoint(r request, d checkpointDecision) error {
	return s.core.Workflows.Decide(r.Context(), r.caller, r.id, r.subID, workflow.Decision{
		Approved: *d.Approved, Feedback: orZero(d.Feedback), Digest: orZero(d.Digest), Resolution: orZero(d.Resolution), Results: d.Results, Budget: orZero(d.Budget),
	})
}
