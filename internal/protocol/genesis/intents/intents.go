// Package intents fulfils the standard intents of the Genesis protocol that need no agent (Genesis §Intentions
// Standard): it maps them to operations of the core.
package intents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/internal/protocol/genesis"
	"comet/internal/pubsub"
	"comet/internal/registry"
	"comet/internal/schedule"
	"comet/internal/tools"
	"comet/internal/workflow"
	"comet/models"
)

// Service implements genesis.Intents. All members are required.
type Service struct {
	Registry  *registry.Registry
	Auth      *auth.Auth
	Keys      *auth.Keys
	Work      *orchestrator.Orchestrator
	Workflows *workflow.Engine
	Schedules *schedule.Service
	Events    *pubsub.PubSub
	Tools     *tools.Service
	// Checks are the readiness checks of the server by name.
	Checks map[string]func(context.Context) error
}

var _ genesis.Intents = (*Service)(nil)

type handler func(s *Service, ctx context.Context, by models.Principal, q genesis.Query) (any, error)

// handlers are the intents that comet fulfils. A REQUEST with another intent becomes a task.
func handlers() map[string]handler {
	return map[string]handler{
		"execute_workflow": (*Service).executeWorkflow,
		"monitor_status":   (*Service).monitorStatus,
		"schedule_task":    (*Service).scheduleTask,
		"get_capability":   (*Service).getCapability,
		"register_agent":   (*Service).registerAgent,
		"unregister_agent": (*Service).unregisterAgent,
		"health_check":     (*Service).healthCheck,
		"authenticate":     (*Service).authenticate,
		"authorize":        (*Service).authorize,
	}
}

// Has implements genesis.Intents.
func (s *Service) Has(intent string) bool { return handlers()[intent] != nil }

// Answer implements genesis.Intents.
func (s *Service) Answer(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	return handlers()[q.Intent](s, ctx, by, q)
}

// read reads the payload of a request, null like an empty object. The pointers of its errors begin with /payload.
func read(q genesis.Query, v any) error {
	payload := []byte(q.Payload)
	if len(payload) == 0 || string(payload) == "null" {
		payload = []byte("{}")
	}
	err := input.DecodeJSON(payload, v)
	if err == nil {
		violations := input.Validate(v)
		err = violations.Err()
	}
	return inPayload(err)
}

// inPayload returns an error of an operation with the pointers and names of the payload.
func inPayload(err error) error {
	return input.Respell(err, "/payload", map[string]string{
		"/delay_ms": "/delayMs", "/every_ms": "/everyMs", "/time_zone": "/timeZone", "/parent_id": "/parentId", "/task/parameters": "/payload", "/is_active": "/agentId",
	})
}

// once makes a repeated message take effect once. data returns what is stored of the result and sent again.
func once(by models.Principal, q genesis.Query, data func(result any) any) *models.Idempotency {
	return &models.Idempotency{
		Principal: by.TokenID, Key: "genesis " + q.ID, RequestHash: sha256.Sum256(append([]byte(q.Intent+"\n"), input.Canonical(q.Payload)...)),
		Render: func(result any) (models.StoredResponse, error) {
			var text bytes.Buffer
			err := json.NewEncoder(&text).Encode(data(result))
			return models.StoredResponse{Status: http.StatusOK, Body: text.Bytes()}, err
		},
	}
}

// finished returns the data of a change, or the stored data of a repeated message.
func finished(o *models.Idempotency, data any, err error) (any, error) {
	if err == nil && o.Replay != nil {
		return json.RawMessage(bytes.TrimSpace(o.Replay.Body)), nil
	}
	return data, inPayload(err)
}

func (s *Service) executeWorkflow(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	if err := auth.Require(by, models.ScopeToolsCall); err != nil {
		return nil, err
	}
	var d workflow.Request
	if name, ok := q.Entities["workflow_id"]; ok && (len(q.Payload) == 0 || q.Payload[0] != '{') {
		d.Definition = &workflow.Invocation{Name: name}
	} else if err := read(q, &d); err != nil {
		return nil, err
	}
	o := once(by, q, func(result any) any { return result })
	v, p, err := s.Workflows.Begin(ctx, tools.Caller{Principal: by, Source: tools.SourceWorkflow}.Traced(q.Traceparent), d, o)
	if err == nil && p.Status != workflow.Ready {
		return p, nil
	}
	if err != nil {
		return nil, inPayload(err)
	}
	if o.Replay != nil {
		if err := json.Unmarshal(o.Replay.Body, &v); err != nil {
			return nil, err
		}
	}
	if q.Wait == 0 {
		return v, nil
	}
	return s.workflow(ctx, by, v.WorkflowID, q.Wait)
}

// workflow returns the state of a workflow, after its end or its next pause if that comes within wait.
func (s *Service) workflow(ctx context.Context, by models.Principal, id string, wait time.Duration) (any, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	v, err := s.Workflows.Wait(waiting, by, id)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return s.Workflows.Get(ctx, by, id)
	}
	return v, err
}

// status names the task, workflow or agent in the payload of monitor_status.
type status struct {
	TaskID     string `json:"taskId" validate:"max=64"`
	RequestID  string `json:"requestId" validate:"max=128"`
	WorkflowID string `json:"workflowId" validate:"max=64"`
	AgentID    string `json:"agentId" validate:"max=64"`
	Agent      string `json:"agent" validate:"max=64"`
}

// taskStatus is the state of a task.
type taskStatus struct {
	TaskID   string           `json:"taskId"`
	State    models.TaskState `json:"state"`
	Progress int              `json:"progress"`
	StepName string           `json:"stepName,omitempty"`
	Agent    string           `json:"agent,omitempty"`
	Attempt  int              `json:"attempt"`
	Error    string           `json:"error,omitempty"`
	// Question and Options are those of a task that waits for a reply.
	Question string   `json:"question,omitempty"`
	Options  []string `json:"options,omitempty"`
}

func (s *Service) monitorStatus(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	var of status
	if err := read(q, &of); err != nil {
		return nil, err
	}
	given := 0
	for _, id := range []string{of.TaskID, of.RequestID, of.WorkflowID, of.AgentID, of.Agent} {
		given += min(len(id), 1)
	}
	switch {
	case given != 1:
		return nil, input.Violated("/payload/taskId", "exclusive", "payload must have one of taskId, requestId, workflowId and agentId")
	case of.WorkflowID != "":
		if q.Wait > 0 {
			return s.workflow(ctx, by, of.WorkflowID, q.Wait)
		}
		return s.Workflows.Get(ctx, by, of.WorkflowID)
	case of.AgentID != "" || of.Agent != "":
		return s.healthCheck(ctx, by, q)
	}
	return s.taskStatus(ctx, by, of, q.Wait)
}

func (s *Service) taskStatus(ctx context.Context, by models.Principal, of status, wait time.Duration) (any, error) {
	id := of.TaskID
	if id == "" {
		var err error
		if id, err = genesis.TaskOfRequest(ctx, s.Work, by.TokenID, strings.ToLower(of.RequestID)); err != nil {
			return nil, err
		}
	}
	t, err := s.Work.Task(ctx, id)
	if err == nil {
		readable, readErr := s.Auth.CanRead(ctx, by, t.Owner, t.AgentID, t.OwnerAgent)
		if err = readErr; err == nil && !readable {
			err = errs.New(errs.NotFound, "there is no task %q", id)
		}
	}
	if err == nil && wait > 0 && !t.State.Ended() {
		if t, err = s.Work.Wait(ctx, by.TokenID, id, wait); errs.Is(err, errs.Busy) {
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	out := taskStatus{TaskID: t.ID, State: t.State, Progress: t.Progress, StepName: t.StepName, Agent: t.AgentID, Attempt: t.Attempt, Error: t.Error}
	if asking, waits, err := s.Work.TaskAwaitingReply(ctx, t); err == nil && waits {
		if open, err := s.Work.OpenQuestion(ctx, asking); err == nil {
			out.Question, out.Options = open.Text, open.Options
		}
	}
	return out, nil
}

// scheduled is the payload of schedule_task.
type scheduled struct {
	Intent  string          `json:"intent" validate:"max=64"`
	Payload json.RawMessage `json:"payload"`
	To      string          `json:"to" validate:"max=64"`
	// Workflow is started instead of a task.
	Workflow *workflow.Request `json:"workflow" validate:"omitnil"`
	// Exactly one of the times is required.
	At       *time.Time `json:"at"`
	DelayMS  int64      `json:"delayMs" validate:"min=0"`
	EveryMS  int64      `json:"everyMs" validate:"min=0"`
	Cron     string     `json:"cron" validate:"max=200"`
	TimeZone string     `json:"timeZone" validate:"max=64"`
}

// planned is the response to schedule_task.
type planned struct {
	ScheduleID string    `json:"scheduleId"`
	NextAt     time.Time `json:"nextAt"`
}

func (s *Service) scheduleTask(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	var d scheduled
	if err := read(q, &d); err != nil {
		return nil, err
	}
	draft := schedule.Draft{Timing: schedule.Timing{Delay: milliseconds(d.DelayMS), Every: milliseconds(d.EveryMS), Cron: d.Cron, TimeZone: d.TimeZone}}
	if d.At != nil {
		draft.At = *d.At
	}
	switch {
	case (d.Intent == "") == (d.Workflow == nil):
		return nil, input.Violated("/payload/intent", "one_of", "payload must have either intent, which becomes a task, or workflow")
	case d.Workflow != nil:
		draft.Workflow = d.Workflow
	default:
		parameters := d.Payload
		if len(parameters) > 0 && parameters[0] != '{' {
			parameters = append(append([]byte(`{"payload":`), parameters...), '}')
		}
		draft.Task = &orchestrator.Submission{
			Capabilities: []string{d.Intent}, AgentID: d.To, Parameters: parameters, Priority: orchestrator.DefaultPriority, Traceparent: q.Traceparent,
			Override: orchestrator.Override{Notify: by.AgentID != nil},
		}
	}
	o := once(by, q, func(result any) any {
		row := result.(schedule.Schedule) //nolint:forcetypeassert // of Service.Create
		return planned{row.ID, row.NextAt}
	})
	row, err := s.Schedules.Create(ctx, by, draft, o)
	return finished(o, planned{row.ID, row.NextAt}, err)
}

func milliseconds(n int64) time.Duration { return time.Duration(min(n, 1<<40)) * time.Millisecond }

func (s *Service) authorize(ctx context.Context, by models.Principal, q genesis.Query) (any, error) {
	var d struct {
		Action    string          `json:"action" validate:"max=256"`
		Tool      string          `json:"tool" validate:"max=256"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := read(q, &d); err != nil {
		return nil, err
	}
	type decision struct {
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason"`
	}
	var err error
	switch {
	case d.Tool != "" && d.Action != "" || d.Tool == "" && d.Action == "":
		return nil, input.Violated("/payload/tool", "one_of", "payload must have either tool, the name of a tool, or action, a scope such as messages:send")
	case d.Tool == "" && !slices.Contains(models.Scopes(), models.Scope(d.Action)):
		return nil, input.Violated("/payload/action", "scope", "action must be a scope such as messages:send, not %s", input.Quote(d.Action))
	case d.Tool == "":
		err = auth.Require(by, models.Scope(d.Action))
	default:
		if err = auth.Require(by, models.ScopeToolsCall); err == nil {
			err = s.Tools.MayCall(ctx, tools.Caller{Principal: by, Source: tools.SourceWorkflow}, d.Tool, d.Arguments)
		}
	}
	if err == nil {
		return decision{true, "allowed"}, nil
	}
	if e := errs.From(err); e.Code != errs.Internal {
		return decision{false, e.Detail}, nil
	}
	return nil, err
}
