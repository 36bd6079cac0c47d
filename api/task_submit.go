package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
)

// taskDraft is the body of a request to submit a task.
type taskDraft struct {
	// Capabilities that the worker must have. If it is empty, agent_type or agent_id is required.
	Capabilities []string `json:"capabilities" validate:"max=16,dive,capability" example:"web_search" maxItems:"16"`
	AgentType    *string  `json:"agent_type" validate:"omitnil,word" example:"research" maxLength:"64" extensions:"x-nullable"` // Assign the task only to agents of this type.
	// Assign the task only to this agent.
	AgentID  *string `json:"agent_id" validate:"omitnil,agentid" example:"research-web-01" maxLength:"64" extensions:"x-nullable"`
	SphereID *int    `json:"sphere_id" validate:"omitnil,min=1,max=9" example:"9" minimum:"1" maximum:"9" extensions:"x-nullable"` // Assign the task only to agents of this sphere.
	// The input of the task, an object.
	Parameters *jsontext.Value `json:"parameters" swaggertype:"object" extensions:"x-nullable"`
	// Tasks with a higher priority overtake waiting tasks.
	Priority *int `json:"priority" validate:"omitnil,min=0,max=3" example:"1" minimum:"0" maximum:"3" default:"1" extensions:"x-nullable"`
	// Maximum number of tokens of all attempts together.
	Budget *int64 `json:"budget" validate:"omitnil,min=1,max=1000000000000" example:"4000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
	// Maximum time in milliseconds between two messages of the worker about the task.
	TimeoutMS *int64 `json:"timeout_ms" validate:"omitnil,min=100,max=604800000" example:"30000" minimum:"100" maximum:"604800000" default:"30000" extensions:"x-nullable"`
	// Maximum time in milliseconds of an attempt in total; unlimited by default.
	AttemptTimeoutMS *int64 `json:"attempt_timeout_ms" validate:"omitnil,min=100,max=604800000" example:"600000" minimum:"100" maximum:"604800000" extensions:"x-nullable"`
	// When the task fails if it has not ended; never by default.
	ExpiresAt *time.Time `json:"expires_at" example:"2026-01-10T16:00:00Z" extensions:"x-nullable"`
	// Maximum number of attempts after the first.
	Retries *int `json:"retries" validate:"omitnil,min=0,max=10" example:"3" minimum:"0" maximum:"10" default:"3" extensions:"x-nullable"`
	// Number of agents that execute the task at the same time; fewer if fewer are available. The
	// first success ends the task and cancels the others. Each agent executes a subtask with an
	// equal share of the budget. Null for one agent.
	Workers *int `json:"workers" validate:"omitnil,min=2,max=16" example:"3" minimum:"2" maximum:"16" extensions:"x-nullable"`
	// What happens if the worker reports that the budget does not cover the task. Null fails the
	// task.
	Overrun *budgetOverrunDraft `json:"overrun" validate:"omitnil" extensions:"x-nullable"`
	// The open session that the task belongs to.
	SessionID *string `json:"session_id" validate:"omitnil,notblank,printable,max=64" example:"01890a5d-ac96-774b-bcce-b302099a8058" minLength:"1" maxLength:"64" extensions:"x-nullable"`
	// An id that makes the request unique for the token: a repetition within 24 hours returns the
	// same task.
	RequestID *string `json:"request_id" validate:"omitnil,notblank,printable,max=128" example:"req-01J9" minLength:"1" maxLength:"128" extensions:"x-nullable"`
}

// budgetOverrunDraft specifies what happens if the budget does not cover a task.
type budgetOverrunDraft struct {
	// `give_up` fails the task, `raise` raises the budget and tries again, `simplify` tries once
	// more and asks the worker for a simpler result.
	Action orchestrator.OverrunAction `json:"action" validate:"oneof=give_up raise simplify" swaggertype:"string" enums:"give_up,raise,simplify" example:"raise"`
	// Upper limit of a raised budget. Without it the budget becomes what the worker requires, or
	// twice as much if the worker does not specify it.
	MaxBudget *int64 `json:"max_budget" validate:"omitnil,min=1,max=1000000000000" example:"8000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
}

func (d taskDraft) submission(r *http.Request) (orchestrator.Submission, error) {
	sub := orchestrator.Submission{
		Capabilities: d.Capabilities, AgentType: orZero(d.AgentType), AgentID: orZero(d.AgentID), SphereID: orZero(d.SphereID),
		Priority: *cmp.Or(d.Priority, new(orchestrator.DefaultPriority)), Budget: d.Budget, SessionID: orZero(d.SessionID), RequestID: orZero(d.RequestID), Traceparent: httpkit.Traceparent(r),
		Override: orchestrator.Override{TimeoutMS: orZero(d.TimeoutMS), AttemptTimeoutMS: orZero(d.AttemptTimeoutMS), ExpiresAt: orZero(d.ExpiresAt), Retries: d.Retries, Workers: orZero(d.Workers)},
	}
	if o := d.Overrun; o != nil {
		sub.Override.Overrun = &orchestrator.Overrun{Action: o.Action, MaxBudget: orZero(o.MaxBudget)}
	}
	if d.Parameters != nil {
		sub.Parameters = json.RawMessage(*d.Parameters)
	}
	return sub, input.Validate(d).Err()
}

// submitTask submits a task.
//
//	@Summary		Submit a task
//	@Description	Creates a task and assigns it to the best worker that is online, has a free slot and a budget that covers the task. If all suitable workers are busy, the task is queued; if they are offline, it is retried. The response is 202 with the task. With `Prefer: wait=N` the response is 200 with the task and its output as soon as it has ended, or 202 after N seconds. `Preference-Applied` contains the granted wait; it is absent, and the response immediate, if the limit of waiting requests is reached.
//	@Description
//	@Description	A repetition with the same `Idempotency-Key` returns the stored response for 24 hours; with `Prefer: wait` it waits for the same task. A repetition with the same `request_id` returns the task in its current state.
//	@Param			Idempotency-Key	header	string		false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"	maxlength(255)
//	@Param			Prefer			header	string		false	"`wait=N` waits up to N seconds for the end of the task, at most 60 and less than the server's time limit for requests"	example(wait=10)
//	@Param			traceparent		header	string		false	"W3C trace context of the task; ignored if it is invalid"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			body			body	taskDraft	true	"The task to submit"
//	@Success		200	{object}	taskView	"The task has ended"
//	@Header			200	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Success		202	{object}	taskView	"The task has been accepted"
//	@Header			202	{string}	Preference-Applied	"The granted wait, such as `wait=10`."
//	@Failure		404	"The session does not exist"
//	@Failure		409	"The session is closed, or the Idempotency-Key or request_id was used with a different request"
//	@Failure		422	"No registered agent has the capabilities; see `requested` and `supported`"
//	@Failure		403	"No suitable agent has a budget that covers the task; or the token lacks the scope, the agent is not in its subtree, or its agent is inactive"
//	@Failure		429	"Reserved tokens of a suitable agent's budget would cover the task, or the token exceeds its rate limit"
//	@Header			429	{integer}	Retry-After
//	@Header			429	{integer}	RateLimit-Limit
//	@Header			429	{integer}	RateLimit-Remaining
//	@Header			429	{integer}	RateLimit-Reset
//	@Failure		503	"The queue for suitable workers is full"
func (s *Server) submitTask(w http.ResponseWriter, r *http.Request) error {
	var d taskDraft
	req, body, err := s.readRequest(w, r, jsonBody, &d)
	if err != nil {
		return err
	}
	patience, _, err := httpkit.PreferredWait(r, s.maxWait())
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, storing(s, submittedTask))
	if err != nil {
		return err
	}
	sub, err := d.submission(r)
	if err != nil {
		return err
	}
	out, err := s.core.Orchestrator.Submit(r.Context(), req.caller, sub, once)
	if err != nil {
		return err
	}
	if patience > 0 {
		return s.writeWhenEnded(w, r, out.Task, once, patience)
	}
	if s.writeReplay(w, once) {
		return nil
	}
	return s.writeReply(w, r, submittedTask(out))
}

// writeWhenEnded writes the task when it has ended or patience has passed.
func (s *Server) writeWhenEnded(w http.ResponseWriter, r *http.Request, t models.Task, once *models.Idempotency, patience time.Duration) error {
	if once != nil && once.Replay != nil {
		var first struct{ ID string }
		if err := json.Unmarshal(once.Replay.Body, &first); err != nil {
			return err
		}
		t.ID = first.ID
		w.Header().Set("Idempotency-Replayed", "true")
	}
	httpkit.ReleaseBody(r)
	t, err := s.waitForTask(r, t.ID, patience, s.core.Orchestrator.Wait)
	switch {
	case err == nil:
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(patience.Seconds())))
	case !errs.Is(err, errs.Busy): // the task exists even if the limit of waiting requests is reached
		return err
	}
	v := newTaskView(t)
	if t.State.Ended() {
		if v.Output.Text, err = s.outputText(r, t); err != nil {
			return err
		}
	}
	return s.writeReply(w, r, taskResponse(v, http.StatusAccepted))
}

func submittedTask(out orchestrator.SubmitResult) reply {
	return taskResponse(newTaskView(out.Task), http.StatusAccepted)
}

// taskResponse returns the response with a task; open is the status of one that has not ended.
func taskResponse(v taskView, open int) reply {
	out := reply{status: open, location: taskURL(v.ID), version: v.Version, body: v}
	if v.State.Ended() {
		out.status = http.StatusOK
	}
	return out
}

const (
	// maxWait is the maximum time that a request may wait for a task.
	maxWait = time.Minute
	// afterWait is reserved for the response within the time limit of a request.
	afterWait = time.Second
	// maxInline is the maximum size of output in a response, in bytes.
	maxInline = 64 << 10
)

// waitFunc waits for a change of a task on behalf of a token.
type waitFunc func(ctx context.Context, who, id string, patience time.Duration) (models.Task, error)

// waitForTask calls wait for at most patience, within the time limit of the request and until the
// server shuts down. If the limit of waiting requests is reached it returns the current task and
// errs.Busy.
func (s *Server) waitForTask(r *http.Request, id string, patience time.Duration, wait waitFunc) (models.Task, error) {
	if end, ok := r.Context().Deadline(); ok {
		patience = min(patience, time.Until(end)-afterWait)
	}
	ctx, stop := s.streams.UntilDrain(r.Context())
	defer stop()
	t, err := wait(ctx, caller(r).TokenID, id, patience)
	if err != nil && s.streams.Draining() { // interrupted by the shutdown
		t, err = s.core.Orchestrator.Task(r.Context(), id)
	}
	return t, err
}

// maxWait returns the maximum wait of a request.
func (s *Server) maxWait() time.Duration {
	return max(min(maxWait, s.opts.RequestTimeout-afterWait), 0).Truncate(time.Second)
}

// outputText returns the result of a task that has ended, nil if it is too long or not UTF-8.
func (s *Server) outputText(r *http.Request, t models.Task) (*string, error) {
	if t.OutputBytes > maxInline {
		return nil, nil //nolint:nilnil // available from the output endpoint
	}
	text := make([]byte, 0, t.OutputBytes)
	err := s.core.Orchestrator.Output(r.Context(), t, models.StreamResult, 0, func(o models.OutputChunk) error {
		text = append(text, o.Data...)
		return nil
	})
	if err != nil || len(text) > maxInline || !utf8.Valid(text) {
		return nil, err
	}
	return new(string(text)), nil
}
