package api

import (
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
