package workflow

import (
	"cmp"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
)

// Request is the body of a request to start a workflow.
type Request struct {
	Workflow *Graph `json:"workflow" validate:"omitnil" extensions:"x-nullable"` // The tasks and their dependencies. Exactly one of `workflow`, `intent` and `definition` is required.
	// A sentence in English or French that states what to do, with all arguments, at most 8,000 bytes; instead of `workflow`.
	Intent     *string     `json:"intent" validate:"omitnil,min=1,max=8000" example:"Read the file config.json" minLength:"1" maxLength:"8000" extensions:"x-nullable"`
	Definition *Invocation `json:"definition" validate:"omitnil" extensions:"x-nullable"` // A stored workflow, instead of `workflow`.
	// With commits rows of the caller in the transaction that creates the workflow, nil for none.
	With   func(tx *store.Tx, workflowID string) error `json:"-" swaggerignore:"true"`
	Config *Config                                     `json:"config" validate:"omitnil" extensions:"x-nullable"` // Options of the workflow. Of each option of the request and a stored workflow, the stricter value applies; `task_timeout_ms` of the request takes precedence.
} // @name WorkflowDraft

// Graph is a set of steps (AgentCards, “DAGStructure”).
type Graph struct {
	Tasks []plan.Step `json:"tasks" validate:"required" minItems:"1" maxItems:"500"` // The tasks. Independent ones run at the same time.
} // @name WorkflowGraph

// Invocation selects a stored workflow.
type Invocation struct {
	Name    string          `json:"name" validate:"required,max=64" example:"nightly-report" maxLength:"64"`          // Its name.
	Version *int64          `json:"version" validate:"omitnil,min=1" example:"3" minimum:"1" extensions:"x-nullable"` // Its version, by default the newest.
	Input   json.RawMessage `json:"input,omitzero" swaggertype:"object"`                                              // The input, an object that matches the input schema; `$input.path` in arguments refers to it.
} // @name WorkflowInvocation

// Config has the options of a workflow.
type Config struct {
	// Who can approve tasks: the token that starts the workflow (`caller`), another token with the scope `workflows:approve`
	// (`other`), or a person with such a token that is not bound to an agent (`human`).
	Approver *string `json:"approver" validate:"omitnil,oneof=caller other human" enums:"caller,other,human" example:"other" default:"caller" extensions:"x-nullable"`
	// Whether to pause after each layer: the tasks whose dependencies are all in earlier layers.
	PerLayerValidation bool `json:"per_layer_validation" example:"false" default:"false"`
	// Whether independent tasks still begin after one has failed.
	OnError *string `json:"on_error" validate:"omitnil,oneof=continue abort" enums:"continue,abort" example:"continue" default:"continue" extensions:"x-nullable"`
	// Require approval for tasks of this class or above; by default only tasks with `approve` need approval.
	Approvals *models.ToolClass `json:"approvals" validate:"omitnil,oneof=write destructive" swaggertype:"string" enums:"write,destructive" example:"destructive" extensions:"x-nullable"`
	// Timeout in milliseconds of each attempt of tasks without `timeout_ms`. For agent_task it is how long an attempt may be
	// silent, at least 100; the default is that of the class of the task.
	TaskTimeoutMS *int64 `json:"task_timeout_ms" validate:"omitnil,min=1,max=86400000" example:"30000" minimum:"1" maximum:"86400000" default:"30000" extensions:"x-nullable"`
	// The number of tokens that all tasks may use in total. They are reserved at the start from the budget of the agent that pays.
	Budget *int64 `json:"budget" validate:"omitnil,min=1,max=1000000000000" example:"20000" minimum:"1" maximum:"1000000000000" extensions:"x-nullable"`
} // @name WorkflowConfig

// Settings returns the settings that the options select. A nil Config selects the defaults.
func (c *Config) Settings() Settings {
	c = cmp.Or(c, &Config{})
	s := Settings{
		ValidateLayers: c.PerLayerValidation, AbortOnError: orZero(c.OnError) == "abort", Approvals: orZero(c.Approvals), TimeoutMS: orZero(c.TaskTimeoutMS),
		Budget: orZero(c.Budget), Approver: Approver(orZero(c.Approver)),
	}
	if s.Approver == "caller" {
		s.Approver = ApproverCaller
	}
	return s
}

// Config returns the settings as options. Options with default values are absent.
func (s Settings) Config() Config {
	c := Config{PerLayerValidation: s.ValidateLayers, Approvals: orNil(s.Approvals), Approver: orNil(string(s.Approver)), Budget: orNil(s.Budget), TaskTimeoutMS: orNil(s.TimeoutMS)}
	if s.AbortOnError {
		c.OnError = new("abort")
	}
	return c
}

func orZero[T any](v *T) T { return *cmp.Or(v, new(T)) }

func orNil[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// pointer returns the JSON pointer of the steps of the request, or of the intent or stored workflow that they come from. It
// returns errs.InvalidRequest unless the request has exactly one of a workflow, an intent and a definition.
func (r Request) pointer() (string, error) {
	const detail = "exactly one of intent, definition and workflow is required"
	switch {
	case r.Workflow == nil && r.Intent == nil && r.Definition == nil:
		return "", input.Violated("/workflow", "required", detail)
	case r.Intent != nil && (r.Workflow != nil || r.Definition != nil):
		return "", input.Violated("/intent", "exclusive", detail)
	case r.Workflow != nil && r.Definition != nil:
		return "", input.Violated("/definition", "exclusive", detail)
	case r.Intent != nil:
		return "/intent", nil
	case r.Definition != nil:
		return "/definition", nil
	}
	return "/workflow/tasks", nil
}

// ofIntent adds the JSON pointer of the intent to an error about its sentence.
func ofIntent(err error) error {
	if errs.Is(err, errs.InvalidRequest) && tools.ErrorName(err) == "" && len(errs.From(err).Fields) == 0 {
		return input.Violated("/intent", "range", "%s", errs.From(err).Detail)
	}
	return err
}
