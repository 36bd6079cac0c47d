package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	"comet/internal/schedule"
	"comet/internal/workflow"
	"comet/models"
)

const schedulesPath = "/api/v1/schedules"

// scheduleTimes states when a schedule is due.
type scheduleTimes struct {
	At      *time.Time `json:"at" example:"2026-01-11T09:00:00Z" extensions:"x-nullable"`                                                                           // The time of a single run, at most 366 days in the future. A schedule has exactly one of `at`, `delay_ms`, `every_ms` and `cron`.
	DelayMS *int64     `json:"delay_ms" validate:"omitnil,min=1,max=31622400000" example:"60000" minimum:"1" maximum:"31622400000" extensions:"x-nullable"`         // The time of a single run, in milliseconds from now; it is stored as `at`.
	EveryMS *int64     `json:"every_ms" validate:"omitnil,min=1000,max=31622400000" example:"3600000" minimum:"1000" maximum:"31622400000" extensions:"x-nullable"` // An interval in milliseconds that begins now.
	Cron    *string    `json:"cron" validate:"omitnil,min=1,max=200" example:"30 8 * * 1-5" minLength:"1" maxLength:"200" extensions:"x-nullable"`                  // Minute, hour, day of the month, month and day of the week.
	// IANA time zone of `cron`; UTC by default.
	TimeZone *string `json:"time_zone" validate:"omitnil,min=1,max=64" example:"Europe/Paris" minLength:"1" maxLength:"64" extensions:"x-nullable"`
}

// timing returns the times as the core expects them, nil for none.
func (t scheduleTimes) timing() *schedule.Timing {
	if t == (scheduleTimes{}) {
		return nil
	}
	return &schedule.Timing{
		At: orZero(t.At), Delay: time.Duration(orZero(t.DelayMS)) * time.Millisecond, Every: time.Duration(orZero(t.EveryMS)) * time.Millisecond,
		Cron: orZero(t.Cron), TimeZone: orZero(t.TimeZone),
	}
}

// scheduleDraft is the body of a request to create a schedule.
type scheduleDraft struct {
	scheduleTimes

	Task     *taskDraft        `json:"task" validate:"omitnil" extensions:"x-nullable"`     // The task that is submitted at each due time, without `request_id` and `expires_at`. Exactly one of `task` and `workflow` is required.
	Workflow *workflow.Request `json:"workflow" validate:"omitnil" extensions:"x-nullable"` // The workflow that is started at each due time.
}

// schedulePatch is the body of a request to change a schedule.
type schedulePatch struct {
	scheduleTimes

	Enabled *bool `json:"enabled" example:"false" extensions:"x-nullable"` // `false` pauses the schedule, `true` resumes it; due times during the pause are not caught up.
}

// scheduleView is a schedule.
type scheduleView struct {
	ID             string            `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`      // The schedule's id.
	At             *time.Time        `json:"at" example:"2026-01-11T09:00:00Z"`                      // The time of a single run; null for a schedule with several runs.
	EveryMS        *int64            `json:"every_ms" example:"3600000"`                             // The interval in milliseconds; null without one.
	Cron           *string           `json:"cron" example:"30 8 * * 1-5"`                            // The cron expression; null without one.
	TimeZone       *string           `json:"time_zone" example:"Europe/Paris"`                       // The time zone of `cron`; null for UTC.
	Task           *taskDraft        `json:"task"`                                                   // The task that it submits; null if it starts a workflow.
	Workflow       *workflow.Request `json:"workflow"`                                               // The workflow that it starts; null if it submits a task.
	Enabled        bool              `json:"enabled" example:"true"`                                 // Whether it has a next due time.
	DisabledReason *string           `json:"disabled_reason" example:"the token is revoked"`         // Why comet disabled the schedule; null if comet did not disable it.
	NextAt         *time.Time        `json:"next_at" example:"2026-01-11T09:00:00Z"`                 // The next due time; null if there is none.
	LastAt         *time.Time        `json:"last_at" example:"2026-01-10T09:00:00Z"`                 // The due time of the last run; null before the first run.
	LastID         *string           `json:"last_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"` // The id of the task or workflow of the last run; null without one.
	LastError      *string           `json:"last_error" example:"no agent offers web_search"`        // Why the last run created no task or workflow; null if it created one.
	CreatedBy      string            `json:"created_by" example:"ops"`                               // The name of the token whose authority it has.
	CreatedAt      time.Time         `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt      time.Time         `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// scheduleList is one page of schedules.
type scheduleList struct {
	Schedules  []scheduleView `json:"schedules"`                                   // The schedules on the page.
	NextCursor string         `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func newScheduleView(s schedule.Schedule) scheduleView {
	v := scheduleView{
		ID: s.ID, At: orNull(s.Spec.At), EveryMS: orNull(s.Spec.EveryMS), Cron: orNull(s.Spec.Cron), TimeZone: orNull(s.Spec.TimeZone),
		Enabled: s.Enabled, DisabledReason: orNull(s.Reason), NextAt: orNull(s.NextAt), LastAt: orNull(s.LastAt), LastID: orNull(s.LastID), LastError: orNull(s.LastError),
		CreatedBy: s.Actor, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	var r schedule.Request
	if json.Unmarshal(s.Request, &r) == nil && r.Task != nil {
		v.Task = new(newTaskDraft(*r.Task))
	}
	v.Workflow = r.Workflow
	return v
}

// newTaskDraft returns the request for a submission.
func newTaskDraft(sub orchestrator.Submission) taskDraft {
	set := sub.Override
	d := taskDraft{
		Capabilities: orEmpty(sub.Capabilities), AgentType: orNull(sub.AgentType), AgentID: orNull(sub.AgentID), SphereID: orNull(sub.SphereID), Parameters: new(jsontext.Value(sub.Parameters)),
		Priority: &sub.Priority, Budget: sub.Budget, SessionID: orNull(sub.SessionID),
		TimeoutMS: orNull(set.TimeoutMS), AttemptTimeoutMS: orNull(set.AttemptTimeoutMS), Retries: set.Retries, Workers: orNull(set.Workers),
	}
	if o := set.Overrun; o != nil {
		d.Overrun = &budgetOverrunDraft{o.Action, orNull(o.MaxBudget)}
	}
	return d
}

func scheduleReply(status int, s schedule.Schedule) reply {
	return reply{status: status, location: schedulesPath + "/" + s.ID, version: s.Version, body: newScheduleView(s)}
}

func createdSchedule(s schedule.Schedule) reply { return scheduleReply(http.StatusCreated, s) }

// createSchedule creates a schedule.
//
//	@Summary		Create a schedule
//	@Description	Submits a task or starts a workflow at one time, at intervals, or by a cron expression in a time zone. Each due time has one effect. If the server was down, one run catches up for all missed times. The schedule acts with the authority that the token has at that time; if the token is revoked or has expired, the schedule is disabled. A task requires the scope `messages:send`, a workflow `tools:call`. A token can have 1,000 schedules.
//	@Description
//	@Description	Where clocks are put forward, a skipped time of a cron expression is due at that moment; where they are put back, a repeated time is due once. Expressions whose hour is `*` follow elapsed time.
//	@Param			Idempotency-Key	header	string			false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"	maxlength(255)
//	@Param			body			body	scheduleDraft	true	"The schedule to create"
//	@Success		201	{object}	scheduleView	"Created"
//	@Header			201	{string}	ETag
//	@Failure		400	"A field is missing or malformed, or a time has passed"
//	@Failure		403	"The token lacks the scope, its agent is inactive, or the agent of the task is not in its subtree"
//	@Failure		404	"The stored workflow or a tool does not exist, or the token may not call the tool"
//	@Failure		422	"The token has 1,000 schedules"
func (s *Server) createSchedule(r request, d scheduleDraft, once *models.Idempotency) (out schedule.Schedule, err error) {
	draft := schedule.Draft{Timing: orZero(d.timing()), Request: schedule.Request{Workflow: d.Workflow}}
	if d.Task != nil {
		sub, err := d.Task.submission(r.Request)
		if err != nil {
			return out, err
		}
		sub.Traceparent = ""
		draft.Task = &sub
	}
	return s.core.Schedules.Create(r.Context(), r.caller, draft, once)
}

// listSchedules lists schedules.
//
//	@Summary		List schedules
//	@Description	Returns the schedules of the token in the order of creation; for a token with `admin` that is bound to no agent or to `nova`, those of all tokens. Schedules with a single time are deleted 7 days after their run.
//	@Success		200	{object}	scheduleList	"A page of results"
func (s *Server) listSchedules(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.idCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	all, err := s.core.Schedules.List(r.Context(), r.caller, after, limit+1)
	all, next := cutPage(all, limit, func(s schedule.Schedule) string { return s.ID })
	return reply{next: next, body: scheduleList{views(all, newScheduleView), next}}, err
}

// getSchedule returns one schedule.
//
//	@Summary		Get a schedule
//	@Description	Returns a schedule with its next due time and the result of its last run.
//	@Success		200	{object}	scheduleView	"The schedule"
func (s *Server) getSchedule(r request) (any, error) {
	out, err := s.core.Schedules.Get(r.Context(), r.caller, r.id)
	return reply{version: out.Version, body: newScheduleView(out)}, err
}

// updateSchedule changes a schedule.
//
//	@Summary		Change a schedule
//	@Description	Pauses or resumes a schedule, or replaces its times. Due times during a pause are not caught up.
//	@Param			If-Match	header	string			false	"Change the schedule only if this entity tag has its current version"
//	@Param			body		body	schedulePatch	true	"The members to change"
//	@Success		200	{object}	scheduleView	"The schedule"
//	@Header			200	{string}	ETag
//	@Failure		400	"A field is malformed, or the time has passed"
//	@Failure		412	"The schedule has another version"
func (s *Server) updateSchedule(r request, p schedulePatch) (any, error) {
	out, err := s.core.Schedules.Update(r.Context(), r.caller, r.id, schedule.Patch{Enabled: p.Enabled, Timing: p.timing()}, r.pre)
	return reply{version: out.Version, body: newScheduleView(out)}, err
}

// deleteSchedule deletes a schedule.
//
//	@Summary		Delete a schedule
//	@Description	Deletes the schedule. Tasks and workflows that it has created continue.
//	@Param			If-Match	header	string	false	"Delete the schedule only if this entity tag has its current version"
//	@Success		204	"Deleted"
//	@Failure		412	"The schedule has another version"
func (s *Server) deleteSchedule(r request) error {
	return s.core.Schedules.Delete(r.Context(), r.caller, r.id, r.pre)
}
