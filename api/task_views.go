package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	"comet/models"
)

const tasksPath = "/api/v1/tasks"

// taskView is where a task stands.
type taskView struct {
	ID        string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	SessionID *string          `json:"session_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"` // Null outside of a session.
	ParentID  *string          `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a8059"`  // The task it was handed off from, or that several agents do.
	Depth     int              `json:"depth" example:"0"`                                         // How many hand-offs lie above it.
	Class     string           `json:"class" example:"default"`                                   // The policy it follows.
	Owner     string           `json:"owner" example:"01890a5d-ac96-774b-bcce-b302099a805a"`      // The id of the token that asked.
	Priority  int              `json:"priority" example:"1"`
	State     models.TaskState `json:"state" swaggertype:"string" enums:"new,running,done,failed,cancelled" example:"running"`
	// What it waits for: an agent with a place free, the next attempt, or the answer
	// to its agent's question. Null while an agent has it and after its end.
	WaitingFor *models.WaitReason `json:"waiting_for" swaggertype:"string" enums:"worker,retry,reply" example:"worker"`
	Attempt    int                `json:"attempt" example:"1"`                // The number of the newest attempt, 0 before the first.
	AgentID    *string            `json:"agent_id" example:"research-web-01"` // Who makes it.
	Budget     *int64             `json:"budget" example:"4000"`              // How many tokens all attempts together may use; null for no limit.
	Tokens     int64              `json:"tokens" example:"1730"`              // How many they have used.
	Progress   int                `json:"progress" example:"40"`              // In percent.
	Step       int                `json:"step" example:"2"`
	StepName   string             `json:"step_name" example:"reading"`
	// When the attempt, or the wait, is given up; null after the end.
	Deadline *time.Time `json:"deadline" example:"2026-01-10T15:30:30Z"`
	ExitCode *int       `json:"exit_code" example:"0"`
	// Why it failed; null unless it did.
	Failure *string `json:"failure" example:"timeout"`
	Error   string  `json:"error" example:"the agent was silent for too long"` // Why it failed or was cancelled, in words.
	// What its agent said of the failure, as its dialect has it; absent where it said nothing.
	FailureDetail any        `json:"failure_detail,omitempty"`
	Output        taskStream `json:"output"`
	Log           taskStream `json:"log"`
	Version       int64      `json:"version" example:"4"`
	CreatedAt     time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	StartedAt     *time.Time `json:"started_at" example:"2026-01-10T15:30:01Z"`
	UpdatedAt     time.Time  `json:"updated_at" example:"2026-01-10T15:30:02Z"`
	EndedAt       *time.Time `json:"ended_at" example:"2026-01-10T15:30:09Z"`
}

// taskStream is what a task has put out, and where it is.
type taskStream struct {
	Bytes int64  `json:"bytes" example:"5"`
	URL   string `json:"url" example:"/api/v1/tasks/01890a5d-ac96-774b-bcce-b302099a8057/output"`
	// The whole of it, where a request waited for the end of the task and it is UTF-8
	// of at most 64 KiB.
	Text *string `json:"text,omitempty" example:"hello"`
}

// taskList is one page of tasks, the newest first.
type taskList struct {
	Tasks      []taskView `json:"tasks"`
	NextCursor string     `json:"next_cursor,omitempty" example:"MTc2ODA1OTAwMDAwMDAwMC4wMTg5"` // Absent on the last page.
}

func taskURL(id string) string { return tasksPath + "/" + url.PathEscape(id) }

func newTaskView(t models.Task) taskView {
	output := taskURL(t.ID) + "/output"
	v := taskView{
		ID: t.ID, SessionID: orNull(t.SessionID), ParentID: t.ParentID, Depth: t.Depth, Class: t.Class, Owner: t.Owner, Priority: t.Priority,
		State: t.State, WaitingFor: orNull(t.WaitingFor), Attempt: t.Attempt, AgentID: orNull(t.AgentID), Budget: t.Budget, Tokens: t.Tokens,
		Progress: t.Progress, Step: t.Step, StepName: t.StepName, ExitCode: t.ExitCode, Failure: orNull(t.ErrorCode), Error: t.Error,
		Output: taskStream{Bytes: t.OutputBytes, URL: output}, Log: taskStream{Bytes: t.LogBytes, URL: output + "?stream=log"},
		Version: t.Version, CreatedAt: t.CreatedAt, StartedAt: t.StartedAt, UpdatedAt: t.UpdatedAt, EndedAt: t.EndedAt,
	}
	if !t.State.Ended() {
		v.Deadline = &t.Deadline
	}
	if len(t.Detail) > 0 {
		v.FailureDetail = jsontext.Value(t.Detail)
	}
	return v
}

// orNull is nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// taskDetail is a task with all that is known of it.
type taskDetail struct {
	taskView
	Request  taskRequest     `json:"request"`
	Question *taskQuestion   `json:"question"` // What its agent asks; null unless it waits for an answer.
	Attempts []attemptView   `json:"attempts"` // The first one first.
	Decision *decisionView   `json:"decision"` // Who could take it, when it was given to somebody last.
	Timeline []taskEventView `json:"timeline"` // The first 1,000 of its events that are kept.
}

// taskRequest is what a task was asked for with.
type taskRequest struct {
	Capabilities []string `json:"capabilities" example:"web-search"`
	AgentType    *string  `json:"agent_type" example:"research"`
	AgentID      *string  `json:"agent_id" example:"research-web-01"`
	SphereID     *int     `json:"sphere_id" example:"9"`
	Parameters   any      `json:"parameters"` // An object.
	TimeoutMS    *int64   `json:"timeout_ms" example:"30000"`
	Retries      *int     `json:"retries" example:"3"`
	// How many agents do it at the same time; null for one.
	Workers *int `json:"workers" example:"3"`
	// What follows where its budget does not cover it; null for its end.
	Overrun     *models.Overrun `json:"overrun"`
	Traceparent *string         `json:"traceparent" example:"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
}

// taskQuestion is what an agent asks back.
type taskQuestion struct {
	Text    string   `json:"text" example:"Which year?"`
	Options []string `json:"options" example:"2025,2026"`
}

// attemptView is one agent's try at a task.
type attemptView struct {
	Attempt    int                 `json:"attempt" example:"1"`
	AgentID    *string             `json:"agent_id" example:"research-web-01"` // Null where nobody was there.
	State      models.AttemptState `json:"state" swaggertype:"string" enums:"assigned,running,succeeded,failed,timed_out,cancelled" example:"running"`
	Tokens     int64               `json:"tokens" example:"1730"`
	Failure    *string             `json:"failure" example:"timeout"`
	Error      string              `json:"error" example:"the agent was silent for too long"`
	AssignedAt time.Time           `json:"assigned_at" example:"2026-01-10T15:30:00Z"`
	AcceptedAt *time.Time          `json:"accepted_at" example:"2026-01-10T15:30:01Z"`
	EndedAt    *time.Time          `json:"ended_at" example:"2026-01-10T15:30:09Z"`
}

// decisionView is who could take a task.
type decisionView struct {
	Verdict    string          `json:"verdict" enums:"chosen,saturated,excluded,unavailable,unsupported,over_budget" example:"chosen"`
	Considered int             `json:"considered" example:"2"` // How many agents have one of the capabilities.
	Eligible   int             `json:"eligible" example:"1"`   // How many of them could take it.
	Candidates []candidateView `json:"candidates"`             // The first ten of those, the best first.
	Rejected   []candidateView `json:"rejected"`               // Ten of the others, the nearest misses first.
}

// candidateView is an agent that was looked at.
type candidateView struct {
	AgentID  string     `json:"agent_id" example:"research-web-01"`
	Score    float64    `json:"score" example:"1"`                                  // The part of the capabilities that it has, 0 to 1.
	Load     int        `json:"load" example:"25"`                                  // In percent.
	LastUsed *time.Time `json:"last_used,omitempty" example:"2026-01-10T15:29:00Z"` // Absent for one that was never used.
	Reason   string     `json:"reason,omitempty" example:"saturated"`               // Why it is out; absent for a candidate.
}

// taskEventView is an event of a task.
type taskEventView struct {
	ID   string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a805b"`
	Type models.EventType `json:"type" swaggertype:"string" example:"task.started"`
	At   time.Time        `json:"at" example:"2026-01-10T15:30:01Z"`
	Data any              `json:"data"` // An object.
}

func newTaskDetail(d orchestrator.Detail) (taskDetail, error) {
	v := taskDetail{taskView: newTaskView(d.Task), Attempts: make([]attemptView, len(d.Attempts)), Timeline: make([]taskEventView, len(d.Timeline))}
	for i, a := range d.Attempts {
		v.Attempts[i] = attemptView{
			Attempt: a.Attempt, AgentID: orNull(a.AgentID), State: a.State, Tokens: a.Tokens, Failure: orNull(a.ErrorCode), Error: a.Error,
			AssignedAt: a.AssignedAt, AcceptedAt: a.AcceptedAt, EndedAt: a.EndedAt,
		}
	}
	for i, e := range d.Timeline {
		v.Timeline[i] = taskEventView{ID: e.ID, Type: e.Type, At: e.At, Data: jsontext.Value(e.Data)}
	}
	var err error
	if v.Request, err = newTaskRequest(d.Input); err != nil {
		return v, err
	}
	if d.Question != nil {
		v.Question = new(newTaskQuestion(*d.Question))
	}
	if len(d.Task.Decision) > 0 {
		err = json.Unmarshal(d.Task.Decision, &v.Decision)
	}
	return v, err
}

func newTaskRequest(in models.TaskInput) (taskRequest, error) {
	var set orchestrator.Override
	err := json.Unmarshal(in.Policy, &set)
	v := taskRequest{
		Capabilities: in.Capabilities, AgentType: orNull(in.AgentType), AgentID: orNull(in.RequestedAgentID), SphereID: orNull(in.Sphere),
		Parameters: jsontext.Value(in.Parameters), TimeoutMS: orNull(set.TimeoutMS), Retries: set.Retries, Workers: orNull(set.Workers), Overrun: set.Overrun, Traceparent: orNull(in.Trace),
	}
	if v.Capabilities == nil {
		v.Capabilities = []string{}
	}
	return v, err
}

// newTaskQuestion shows what an agent asks.
func newTaskQuestion(q orchestrator.Question) taskQuestion {
	return taskQuestion{Text: q.Text, Options: append([]string{}, q.Options...)}
}

// loggedMessageView is a line of PROTOCOL_V5 that was said.
type loggedMessageView struct {
	ID     string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8060"`
	At     time.Time `json:"at" example:"2026-01-10T15:30:00Z"`
	Ctx    string    `json:"ctx" example:"S1"`
	TID    string    `json:"tid" example:"T1"`
	Number int       `json:"number" example:"12"` // That of the message, without its M; each end counts its own in a CTX.
	From   string    `json:"from" example:"W1"`
	To     string    `json:"to" example:"O1"`
	Type   string    `json:"type" example:"S"`
	State  *string   `json:"state" example:"D"`
	Err    *string   `json:"err" example:"E31"`
	Depth  int       `json:"depth" example:"1"`
	Data   string    `json:"data" example:"pid=M5;result=42"`
	// The message that it names as its cause, without its M; null where it names none.
	PID *int `json:"pid" example:"5"`
	// The line that caused it: the one that pid means, or the one that it answers; null
	// where that is not known.
	ParentID *string `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a805f"`
}

// loggedMessageList is one page of the lines about a task, the first one first.
type loggedMessageList struct {
	Messages   []loggedMessageView `json:"messages"`
	NextCursor string              `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listTaskMessages lists what was said about a task.
//
//	@Summary		List the lines about a task
//	@Description	What was said about the task in PROTOCOL_V5 (§10), by its agents, by who asked and by comet, in the order in which it was said: every line that was taken, in both directions. `parent_id` leads from a line to the one that caused it. Of a part that was handed off they are the lines of its task that are as deep, or deeper. A task that nobody spoke of in this protocol has none; lines are kept for as long as tasks that have ended are.
//	@ID				listTaskMessages
//	@Tags			tasks
//	@Produce		json
//	@Security		BearerAuth[tasks:read]
//	@Param			task_id			path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			limit			query	int		false	"How many lines a page has"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins: the `next_cursor` of the one before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	loggedMessageList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or malformed"
//	@Failure		404	"No such task"
//	@Router			/api/v1/tasks/{task_id}/messages [get]
func (s *Server) listTaskMessages(w http.ResponseWriter, r *http.Request) error {
	id, err := decodeID(r, "task_id")
	if err != nil {
		return err
	}
	q := newQuery(r, "limit", "cursor")
	limit, after := q.Int("limit", 1, maxLimit, defaultLimit), q.idCursor()
	if err := q.Err(); err != nil {
		return err
	}
	t, err := s.visibleTask(r, id)
	if err != nil {
		return err
	}
	lines, err := s.messageLog.ByTask(r.Context(), t, after, limit+1) // one more tells whether there is a next page
	if err != nil {
		return err
	}
	var page loggedMessageList
	if len(lines) > limit {
		lines = lines[:limit]
		page.NextCursor = encodeCursor(lines[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	page.Messages = make([]loggedMessageView, len(lines))
	for i, l := range lines {
		page.Messages[i] = newLoggedMessageView(l)
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

func newLoggedMessageView(l models.LoggedMessage) loggedMessageView {
	return loggedMessageView{
		ID: l.ID, At: l.At, Ctx: models.ContextName(l.Context), TID: "T" + strconv.Itoa(l.Task), Number: l.Number, From: l.From, To: l.To,
		Type: l.Type, State: orNull(l.State), Err: orNull(l.Code), Depth: l.Depth, Data: l.Data, PID: orNull(l.Parent), ParentID: orNull(l.ParentID),
	}
}
