package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/telemetry"
	"comet/models"
)

// taskDraft is a piece of work that is asked for.
type taskDraft struct {
	// What an agent must be able to do. Without any, agent_type or agent_id says who is
	// meant.
	Capabilities []string `json:"capabilities" validate:"max=16,dive,capability" example:"web-search" maxItems:"16"`
	AgentType    *string  `json:"agent_type" validate:"omitnil,word" example:"research" maxLength:"64" extensions:"x-nullable"`
	// The one agent that shall do it.
	AgentID  *string `json:"agent_id" validate:"omitnil,agentid" example:"research-web-01" maxLength:"64" extensions:"x-nullable"`
	SphereID *int    `json:"sphere_id" validate:"omitnil,min=1,max=9" example:"9" minimum:"1" maximum:"9" extensions:"x-nullable"`
	// What the agent is given, an object.
	Parameters *jsontext.Value `json:"parameters" swaggertype:"object" extensions:"x-nullable"`
	// A higher one overtakes lower ones that wait.
	Priority *int `json:"priority" validate:"omitnil,min=0,max=3" example:"1" minimum:"0" maximum:"3" default:"1" extensions:"x-nullable"`
	// How many tokens all attempts together may use.
	Budget *int64 `json:"budget" validate:"omitnil,min=1,max=1000000000000" example:"4000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
	// How long an attempt may be silent.
	TimeoutMS *int64 `json:"timeout_ms" validate:"omitnil,min=100,max=604800000" example:"30000" minimum:"100" maximum:"604800000" default:"30000" extensions:"x-nullable"`
	// How many attempts may follow the first.
	Retries *int `json:"retries" validate:"omitnil,min=0,max=10" example:"3" minimum:"0" maximum:"10" default:"3" extensions:"x-nullable"`
	// How many agents do the task at the same time; fewer if fewer are free. The first success wins and the others are cancelled. Each does a subtask with an equal share of the budget. Absent or null for one.
	Workers *int `json:"workers" validate:"omitnil,min=2,max=16" example:"3" minimum:"2" maximum:"16" extensions:"x-nullable"`
	// What follows where an agent says that the budget does not cover the work. Absent or null for the end of the task.
	Overrun *budgetOverrunDraft `json:"overrun" validate:"omitnil" extensions:"x-nullable"`
	// An open session that the task belongs to.
	SessionID *string `json:"session_id" validate:"omitnil,notblank,printable,max=64" example:"01890a5d-ac96-774b-bcce-b302099a8058" minLength:"1" maxLength:"64" extensions:"x-nullable"`
	// Makes the task once for the token, however often it is sent within 24 hours.
	RequestID *string `json:"request_id" validate:"omitnil,notblank,printable,max=128" example:"req-01J9" minLength:"1" maxLength:"128" extensions:"x-nullable"`
}

// budgetOverrunDraft is what follows where a budget does not cover a task.
type budgetOverrunDraft struct {
	// The end of the task, a larger budget and another attempt, or one more attempt that asks for a simpler version.
	Action models.OverrunAction `json:"action" validate:"oneof=give_up raise simplify" swaggertype:"string" enums:"give_up,raise,simplify" example:"raise"`
	// What the budget is raised to at most; without it that is what the agent needs, or twice as much where it does not say.
	MaxBudget *int64 `json:"max_budget" validate:"omitnil,min=1,max=1000000000000" example:"8000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
}

// submission is what the core is asked for.
func (d taskDraft) submission(r *http.Request) (orchestrator.Submission, error) {
	sub := orchestrator.Submission{
		Capabilities: d.Capabilities, AgentType: orZero(d.AgentType), AgentID: orZero(d.AgentID), SphereID: orZero(d.SphereID),
		Priority: models.DefaultPriority, Budget: d.Budget, SessionID: orZero(d.SessionID), RequestID: orZero(d.RequestID), Traceparent: traceparent(r),
		Override: orchestrator.Override{TimeoutMS: orZero(d.TimeoutMS), Retries: d.Retries, Workers: orZero(d.Workers)},
	}
	if d.Priority != nil {
		sub.Priority = *d.Priority
	}
	if o := d.Overrun; o != nil {
		sub.Override.Overrun = &models.Overrun{Action: o.Action, MaxBudget: orZero(o.MaxBudget)}
	}
	if d.Parameters != nil {
		sub.Parameters = json.RawMessage(*d.Parameters)
	}
	return sub, input.Validate(d).Err()
}

func orZero[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// submitTask asks for work.
//
//	@Summary		Submit a task
//	@Description	Makes a task and gives it to the best agent that is there, has a place free and a budget that covers it. Where all who could do it are busy it waits in line, where they are away it is tried again. The answer is 202 with the task as it stands; with `Prefer: wait=N` it comes when the task has ended, as 200 with what it put out, or after N seconds, as 202. `Preference-Applied` tells how long the server was ready to wait; it is absent, and the answer comes at once, where as many requests wait as may.
//	@Description
//	@Description	`Idempotency-Key` makes a repeated request answer as the first one did for 24 hours, and together with `Prefer: wait` wait for the same task. `request_id` makes the task once for the token: a repetition gets the task as it stands by then.
//	@ID				submitTask
//	@Tags			tasks
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[messages:send]
//	@Param			Idempotency-Key	header	string		false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			Prefer			header	string		false	"`wait=N` waits up to N seconds for the end of the task, at most 60 and no longer than the server lets a request take"	example(wait=10)
//	@Param			traceparent		header	string		false	"The W3C trace context the task belongs to; one that is not valid is ignored"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Param			body			body	taskDraft	true	"What is to be done"
//	@Success		200	{object}	taskView	"It has ended"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Location
//	@Header			200	{string}	Preference-Applied	"The wait that was granted: `wait=10`."
//	@Header			200	{string}	Idempotency-Replayed
//	@Success		202	{object}	taskView	"It was taken on"
//	@Header			202	{string}	ETag
//	@Header			202	{string}	Location
//	@Header			202	{string}	Preference-Applied	"The wait that was granted: `wait=10`."
//	@Header			202	{string}	Idempotency-Replayed
//	@Failure		400	"A field is missing or malformed"
//	@Failure		404	"No such session"
//	@Failure		409	"The session is closed, or the key or the request_id was used with another request"
//	@Failure		422	"No registered agent offers it: `requested` and `supported` tell the capabilities"
//	@Failure		429	"The budgets of all agents that offer it do not cover it, or the token asks too often"
//	@Header			429	{integer}	Retry-After
//	@Header			429	{integer}	RateLimit-Limit
//	@Header			429	{integer}	RateLimit-Remaining
//	@Header			429	{integer}	RateLimit-Reset
//	@Failure		503	"The line for such agents is full"
//	@Router			/api/v1/tasks [post]
func (s *Server) submitTask(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d taskDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	patience, err := s.preferredWait(r)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderSubmitted)
	if err != nil {
		return err
	}
	sub, err := d.submission(r)
	if err != nil {
		return err
	}
	out, err := s.orchestrator.Submit(r.Context(), caller(r), sub, once)
	if err != nil {
		return err
	}
	if patience > 0 {
		return s.writeWhenEnded(w, r, out.Task, once, patience)
	}
	if s.writeReplay(w, once) {
		return nil
	}
	return s.writeTask(w, newTaskView(out.Task))
}

// writeWhenEnded answers when the task has ended, or the client's patience has.
func (s *Server) writeWhenEnded(w http.ResponseWriter, r *http.Request, t models.Task, once *models.Idempotency, patience time.Duration) error {
	if once != nil && once.Replay != nil {
		var first struct{ ID string }
		if err := json.Unmarshal(once.Replay.Body, &first); err != nil {
			return err
		}
		t.ID = first.ID
		w.Header().Set("Idempotency-Replayed", "true")
	}
	t, err := s.waitForTask(r, t.ID, patience, s.orchestrator.Wait)
	switch {
	case err == nil:
		w.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(patience.Seconds())))
	case !errs.Is(err, errs.Busy): // the task is there, whether there is room to wait for it or not
		return err
	}
	v := newTaskView(t)
	if t.State.Ended() {
		if v.Output.Text, err = s.outputText(r, t); err != nil {
			return err
		}
	}
	return s.writeTask(w, v)
}

// writeTask answers with a task that was asked for: 200 where it has ended, else 202.
func (s *Server) writeTask(w http.ResponseWriter, v taskView) error {
	answer, err := s.taskResponse(v, http.StatusAccepted)
	if err == nil {
		s.writeStoredResponse(w, answer)
	}
	return err
}

func (s *Server) renderSubmitted(result any) (models.StoredResponse, error) {
	return s.taskResponse(newTaskView(result.(orchestrator.SubmitResult).Task), http.StatusAccepted)
}

// taskResponse is a task as an answer, with the status for one that has not ended.
func (s *Server) taskResponse(v taskView, open int) (models.StoredResponse, error) {
	body, err := s.encode(v)
	a := models.StoredResponse{
		Status: open, Body: body, Header: map[string]string{"Location": taskURL(v.ID), "ETag": entityTag(v.Version, body)},
	}
	if v.State.Ended() {
		a.Status = http.StatusOK
	}
	return a, err
}

const (
	// maxWait is how long a request may wait for something.
	maxWait = time.Minute
	// afterWait is what is left of a request's time for its answer.
	afterWait = time.Second
	// maxInline is how much output an answer may hold, in bytes.
	maxInline = 64 << 10
)

// waitFunc is a verb that waits, as a token, for something to become of a task.
type waitFunc func(ctx context.Context, who, id string, patience time.Duration) (models.Task, error)

// waitForTask lets a verb wait, for as long as the client has patience and the request time,
// and not longer than the server runs. Where too many wait already, the error is errs.Busy
// and the task as it is comes with it.
func (s *Server) waitForTask(r *http.Request, id string, patience time.Duration, wait waitFunc) (models.Task, error) {
	if end, ok := r.Context().Deadline(); ok {
		patience = min(patience, time.Until(end)-afterWait)
	}
	ctx, stop := s.streams.untilDrain(r.Context())
	defer stop()
	t, err := wait(ctx, caller(r).TokenID, id, patience)
	if err != nil && s.streams.isDraining() { // it was interrupted while it looked
		t, err = s.orchestrator.Task(r.Context(), id)
	}
	return t, err
}

// boundWait is how long a client that asks for seconds may wait.
func (s *Server) boundWait(seconds int) time.Duration {
	most := max(min(maxWait, s.opts.RequestTimeout-afterWait), 0).Truncate(time.Second)
	return min(time.Duration(seconds)*time.Second, most)
}

// preferredWait reads "Prefer: wait=N" (RFC 7240 §4.3), 0 without one. Preferences the
// server does not know are none of its business.
func (s *Server) preferredWait(r *http.Request) (time.Duration, error) {
	for part := range strings.SplitSeq(strings.Join(r.Header["Prefer"], ","), ",") {
		name, value, _ := strings.Cut(part, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		value, _, _ = strings.Cut(value, ";")
		n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, invalidHeader("Prefer", "wait", "Prefer must name whole seconds to wait, such as wait=10")
		}
		return s.boundWait(int(min(n, uint64(maxWait.Seconds())))), nil
	}
	return 0, nil
}

// outputText returns the whole result of a task that has ended, nil where it is too long
// for an answer or no text.
func (s *Server) outputText(r *http.Request, t models.Task) (*string, error) {
	if t.OutputBytes > maxInline {
		return nil, nil //nolint:nilnil // it has an address of its own
	}
	text := make([]byte, 0, t.OutputBytes)
	err := s.orchestrator.Output(r.Context(), t.ID, models.StreamResult, 0, func(o models.OutputChunk) error {
		text = append(text, o.Data...)
		return nil
	})
	if err != nil || len(text) > maxInline || !utf8.Valid(text) {
		return nil, err
	}
	return new(string(text)), nil
}

// traceparent returns the request's W3C trace context (Trace Context §3.2), "" for none
// that is valid.
func traceparent(r *http.Request) string {
	if lines := r.Header["Traceparent"]; len(lines) == 1 && telemetry.IsTraceparent(lines[0]) {
		return lines[0]
	}
	return ""
}
