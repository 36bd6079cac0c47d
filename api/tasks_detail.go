package api

import (
	"encoding/json"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/orchestrator"
	"comet/models"
)

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
