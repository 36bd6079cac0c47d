package api

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	"comet/models"
)

const tasksPath = "/api/v1/tasks"

// taskView is the state of a task.
type taskView struct {
	ID               string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                                      // The task's id.
	SessionID        *string          `json:"session_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`                              // Null without a session.
	ParentID         *string          `json:"parent_id" example:"01890a5d-ac96-774b-bcce-b302099a8059"`                               // The task from which this one was handed off, or whose work several agents do in parallel.
	Depth            int              `json:"depth" example:"0"`                                                                      // Number of hand-offs above it.
	Class            string           `json:"class" example:"default"`                                                                // Name of the policy for deadlines and retries.
	Capabilities     []string         `json:"capabilities,omitempty" example:"web_search"`                                            // Capabilities that the worker must have; absent without any and in responses to changes.
	AgentType        *string          `json:"agent_type,omitempty" example:"research"`                                                // The required agent type; absent like `capabilities`.
	RequestedAgentID *string          `json:"requested_agent_id,omitempty" example:"research-web-01"`                                 // The requested agent; absent like `capabilities`.
	Owner            string           `json:"owner" example:"01890a5d-ac96-774b-bcce-b302099a805a"`                                   // Id of the token that requested it.
	Priority         int              `json:"priority" example:"1"`                                                                   // The priority, 0 to 3.
	State            models.TaskState `json:"state" swaggertype:"string" enums:"new,running,done,failed,cancelled" example:"running"` // The state of the task.
	// What the task waits for: a free worker, the next attempt, or the reply to its worker's
	// question. Null while a worker executes it and after its end.
	WaitingFor *models.WaitReason `json:"waiting_for" swaggertype:"string" enums:"worker,retry,reply" example:"worker"`
	// Why the last selection of a worker found none for a task that waits for one or for a retry.
	WaitCause *string `json:"wait_cause,omitempty" enums:"saturated,excluded,unavailable,unsupported,over_budget" example:"saturated"`
	Attempt   int     `json:"attempt" example:"1"`                // Number of the newest attempt, 0 before the first.
	AgentID   *string `json:"agent_id" example:"research-web-01"` // Worker of the newest attempt.
	Budget    *int64  `json:"budget" example:"4000"`              // Maximum number of tokens of all attempts; null for no limit.
	Tokens    int64   `json:"tokens" example:"1730"`              // Tokens that all attempts have used.
	Progress  int     `json:"progress" example:"40"`              // In percent.
	Step      int     `json:"step" example:"2"`                   // The number of the current step.
	StepName  string  `json:"step_name" example:"reading"`        // The name of the current step.
	// When the current attempt or wait times out; null after the end.
	Deadline *time.Time `json:"deadline" example:"2026-01-10T15:30:30Z"`
	ExitCode *int       `json:"exit_code" example:"0"` // The exit code of the result; null without one.
	// Code of the failure; null unless the task failed.
	Failure *string `json:"failure" example:"timeout"`
	Error   string  `json:"error" example:"the agent was silent for too long"` // Description of the failure or the cancellation.
	// Details of the failure in the worker's protocol; absent if there are none or the task has not failed.
	FailureDetail any        `json:"failure_detail,omitempty"`
	Output        taskStream `json:"output"`
	Log           taskStream `json:"log"`
	Version       int64      `json:"version" example:"4"` // Incremented with every change.
	CreatedAt     time.Time  `json:"created_at" example:"2026-01-10T15:30:00Z"`
	StartedAt     *time.Time `json:"started_at" example:"2026-01-10T15:30:01Z"` // When the first attempt started.
	UpdatedAt     time.Time  `json:"updated_at" example:"2026-01-10T15:30:02Z"`
	EndedAt       *time.Time `json:"ended_at" example:"2026-01-10T15:30:09Z"` // When it ended.
}

// taskStream describes an output stream of a task.
type taskStream struct {
	Bytes int64  `json:"bytes" example:"5"`                                                       // Number of bytes.
	URL   string `json:"url" example:"/api/v1/tasks/01890a5d-ac96-774b-bcce-b302099a8057/output"` // Where to read the output.
	// The complete text of a task that has ended, if the request is about one task and the output is
	// UTF-8 of at most 64 KiB; absent in lists.
	Text *string `json:"text,omitempty" example:"hello"`
}

// taskList is one page of tasks, the newest first.
type taskList struct {
	Tasks      []taskView `json:"tasks"`                                                        // The tasks on the page.
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
	var last struct{ Verdict string }
	if t.WaitingFor != models.NotWaiting && json.Unmarshal(t.Decision, &last) == nil && last.Verdict != "chosen" {
		v.WaitCause = orNull(last.Verdict)
	}
	if len(t.Detail) > 0 && t.State != models.TaskDone {
		v.FailureDetail = jsontext.Value(t.Detail)
	}
	return v
}

func newListedTask(t models.ListedTask) taskView {
	v := newTaskView(t.Task)
	v.Capabilities, v.AgentType, v.RequestedAgentID = t.Capabilities, orNull(t.AgentType), orNull(t.RequestedAgentID)
	return v
}

// taskDetail is a task with its request, attempts and events.
type taskDetail struct {
	taskView
	Request  taskRequest     `json:"request"`
	Question *taskQuestion   `json:"question"` // The worker's open question; null without one.
	Attempts []attemptView   `json:"attempts"` // Oldest first.
	Decision *decisionView   `json:"decision"` // How the worker was selected at the last assignment.
	Timeline []taskEventView `json:"timeline"` // The oldest 1,000 stored events.
}

// taskRequest is what the client requested.
type taskRequest struct {
	Capabilities []string `json:"capabilities" example:"web_search"`  // Capabilities that the worker must have.
	AgentType    *string  `json:"agent_type" example:"research"`      // The required agent type; null for any.
	AgentID      *string  `json:"agent_id" example:"research-web-01"` // The requested agent; null for any.
	SphereID     *int     `json:"sphere_id" example:"9"`              // The required sphere; null for any.
	Parameters   any      `json:"parameters"`                         // The input, an object.
	TimeoutMS    *int64   `json:"timeout_ms" example:"30000"`         // Maximum time in milliseconds between two messages of the worker; null for the default.
	// Maximum time in milliseconds of an attempt in total; null for no limit.
	AttemptTimeoutMS *int64     `json:"attempt_timeout_ms" example:"600000"`
	ExpiresAt        *time.Time `json:"expires_at" example:"2026-01-10T16:00:00Z"` // When the task fails if it has not ended; null for never.
	Retries          *int       `json:"retries" example:"3"`                       // Maximum number of attempts after the first; null for the default.
	// Number of agents that execute it at the same time; null for one.
	Workers *int `json:"workers" example:"3"`
	// What happens if the budget does not cover the task; null fails it.
	Overrun     *orchestrator.Overrun `json:"overrun"`
	Traceparent *string               `json:"traceparent" example:"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"` // W3C trace context of the task; null without one.
}

// taskQuestion is a worker's question.
type taskQuestion struct {
	Text    string   `json:"text" example:"Which year?"`  // The text of the question.
	Options []string `json:"options" example:"2025,2026"` // Suggested replies; empty without any.
}

// attemptView is one attempt to execute a task.
type attemptView struct {
	Attempt    int                 `json:"attempt" example:"1"`                                                                                        // The number of the attempt, from 1.
	AgentID    *string             `json:"agent_id" example:"research-web-01"`                                                                         // Null if no worker was available.
	State      models.AttemptState `json:"state" swaggertype:"string" enums:"assigned,running,succeeded,failed,timed_out,cancelled" example:"running"` // The state of the attempt.
	Tokens     int64               `json:"tokens" example:"1730"`                                                                                      // Tokens that the attempt has used.
	Failure    *string             `json:"failure" example:"timeout"`                                                                                  // Code of the failure; null unless it failed.
	Error      string              `json:"error" example:"the agent was silent for too long"`                                                          // Description of the failure.
	AssignedAt time.Time           `json:"assigned_at" example:"2026-01-10T15:30:00Z"`                                                                 // When it was assigned to the worker.
	AcceptedAt *time.Time          `json:"accepted_at" example:"2026-01-10T15:30:01Z"`                                                                 // When the worker accepted it.
	EndedAt    *time.Time          `json:"ended_at" example:"2026-01-10T15:30:09Z"`                                                                    // When it ended.
}

// decisionView describes the selection of a worker.
type decisionView struct {
	Verdict    string          `json:"verdict" enums:"chosen,saturated,excluded,unavailable,unsupported,over_budget" example:"chosen"` // The result of the selection.
	Considered int             `json:"considered" example:"2"`                                                                         // Number of agents with at least one of the capabilities.
	Eligible   int             `json:"eligible" example:"1"`                                                                           // Number of those that could take the task.
	Candidates []candidateView `json:"candidates"`                                                                                     // The best ten eligible agents, best first.
	Rejected   []candidateView `json:"rejected"`                                                                                       // Ten of the other agents, nearest to eligible first.
	// The agents that were selected for an intent; absent for a task whose agents are not ordered by weight.
	Routing *orchestrator.Routing `json:"routing,omitempty"`
}

// candidateView is an agent that was considered.
type candidateView struct {
	AgentID  string     `json:"agent_id" example:"research-web-01"`                 // The agent's id.
	Score    float64    `json:"score" example:"1"`                                  // Share of the required capabilities that the agent has, 0 to 1.
	Load     int        `json:"load" example:"25"`                                  // In percent.
	LastUsed *time.Time `json:"last_used,omitempty" example:"2026-01-10T15:29:00Z"` // Absent if it was never assigned a task.
	Reason   string     `json:"reason,omitempty" example:"saturated"`               // Why it was not eligible; absent for a candidate.
}

// taskEventView is an event of a task.
type taskEventView struct {
	ID   string           `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a805b"` // The event's id.
	Type models.EventType `json:"type" swaggertype:"string" example:"task.started"`  // The type of the event.
	At   time.Time        `json:"at" example:"2026-01-10T15:30:01Z"`                 // When the event occurred.
	Data any              `json:"data"`                                              // The event's data, an object.
}

func newTaskDetail(d orchestrator.Detail) (taskDetail, error) {
	listed := models.ListedTask{Task: d.Task, Capabilities: d.Input.Capabilities, AgentType: d.Input.AgentType, RequestedAgentID: d.Input.RequestedAgentID}
	v := taskDetail{taskView: newListedTask(listed), Attempts: views(d.Attempts, newAttemptView), Timeline: views(d.Timeline, newTaskEventView)}
	var err error
	if v.Request, err = newTaskRequest(d.Input); err != nil {
		return v, err
	}
	if d.Question != nil {
		v.Question = new(newTaskQuestion(*d.Question))
	}
	if c := d.Decision; c != nil {
		v.Decision = &decisionView{string(c.Verdict), c.Considered, c.Eligible, views(c.Candidates, newCandidateView), views(c.Rejected, newCandidateView), c.Routing()}
	}
	return v, err
}

func newAttemptView(a models.Attempt) attemptView {
	return attemptView{
		Attempt: a.Attempt, AgentID: orNull(a.AgentID), State: a.State, Tokens: a.Tokens, Failure: orNull(a.ErrorCode), Error: a.Error,
		AssignedAt: a.AssignedAt, AcceptedAt: a.AcceptedAt, EndedAt: a.EndedAt,
	}
}

func newTaskEventView(e models.Event) taskEventView {
	return taskEventView{ID: e.ID, Type: e.Type, At: e.At, Data: jsontext.Value(e.Data)}
}

func newCandidateView(c orchestrator.Candidate) candidateView {
	return candidateView{c.AgentID, c.Score, c.Load, orNull(c.LastAssignedAt), string(c.Reason)}
}

func newTaskRequest(in models.TaskInput) (taskRequest, error) {
	var set orchestrator.Override
	err := json.Unmarshal(in.Policy, &set)
	v := taskRequest{
		Capabilities: orEmpty(in.Capabilities), AgentType: orNull(in.AgentType), AgentID: orNull(in.RequestedAgentID), SphereID: orNull(in.Sphere),
		Parameters: jsontext.Value(in.Parameters), TimeoutMS: orNull(set.TimeoutMS), AttemptTimeoutMS: orNull(set.AttemptTimeoutMS), ExpiresAt: orNull(set.ExpiresAt), Retries: set.Retries, Workers: orNull(set.Workers), Overrun: set.Overrun, Traceparent: orNull(in.Trace),
	}
	return v, err
}

func newTaskQuestion(q orchestrator.Question) taskQuestion {
	return taskQuestion{Text: q.Text, Options: append([]string{}, q.Options...)}
}
