package workflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	"comet/store/workflows"
)

// Definition is a version of a stored workflow.
type Definition struct {
	Name        string          `json:"name" example:"nightly-report"`                // The name.
	Version     int64           `json:"version" example:"3"`                          // The version, from 1. A version never changes.
	Description string          `json:"description,omitempty" example:"Daily report"` // The purpose of the workflow; absent if none was stored.
	Workflow    Graph           `json:"workflow"`                                     // The tasks.
	Config      Config          `json:"config"`                                       // Options of the workflow.
	InputSchema json.RawMessage `json:"input_schema,omitempty" swaggertype:"object"`  // JSON Schema for the input; absent if none was stored.
	CreatedBy   string          `json:"created_by" example:"ci"`                      // Name of the token that stored the version.
	CreatedAt   time.Time       `json:"created_at" example:"2026-01-10T15:30:00Z"`    // When the version was stored.
} // @name DefinitionView

// DefinitionRef names a version of a stored workflow.
type DefinitionRef struct {
	Name    string `json:"name" example:"nightly-report"` // The name.
	Version int64  `json:"version" example:"3"`           // The version.
} // @name WorkflowDefinitionRef

// storedPlan is the column plan of workflow_definitions.
type storedPlan struct {
	Tasks    []plan.Step `json:"tasks"`
	Settings Settings    `json:"settings"`
}

var definitionName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// SaveDefinition stores the next version of a workflow and returns it. If the newest version has the same content, it stores
// nothing and returns that version. It returns errs.InvalidRequest with all violations, the error of the precondition, and
// errs.Conflict if another version was stored at the same time.
func (e *Engine) SaveDefinition(ctx context.Context, by models.Principal, d Definition, pre models.Precondition) (saved Definition, stored bool, err error) {
	row, err := d.row()
	if err != nil {
		return d, false, err
	}
	var kept workflows.Definition
	err = e.Store.Write(ctx, func(tx *store.Tx) error {
		var err error
		kept, err = workflows.GetDefinition(tx, d.Name, 0)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if err := pre.Check(kept.Version); err != nil {
			return err
		}
		stored = kept.Description != row.Description || !bytes.Equal(kept.Plan, row.Plan) || !bytes.Equal(kept.InputSchema, row.InputSchema)
		if !stored {
			return nil
		}
		row.Version, row.CreatedBy, row.CreatedAt = kept.Version+1, by.Name, tx.Now()
		kept = row
		return cmp.Or(workflows.AddDefinition(tx, row), tx.Events().Emit(EventDefinitionSaved, d.Name, definitionChanged{d.Name, row.Version, by.Name}))
	})
	if err != nil {
		return d, false, err
	}
	saved, err = newDefinition(kept)
	return saved, stored, err
}

// definitionChanged is the data of the events of stored workflows.
type definitionChanged struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Actor   string `json:"actor"`
}

// row checks a definition and returns its row.
func (d Definition) row() (row workflows.Definition, err error) {
	if !definitionName.MatchString(d.Name) {
		return row, errs.New(errs.InvalidRequest, "the name of a definition must begin with a lowercase letter or a digit, followed by at most 63 lowercase letters, digits, \".\", \"_\" and \"-\", not %q", input.Clip(d.Name))
	}
	if _, err := plan.NewTemplate(d.Workflow.Tasks, "/workflow/tasks"); err != nil {
		return row, err
	}
	row = workflows.Definition{Name: d.Name, Description: d.Description}
	if d.InputSchema != nil {
		var schema bytes.Buffer
		if err := json.Compact(&schema, d.InputSchema); err != nil {
			return row, err
		}
		if _, err := plan.ParseSchema(schema.Bytes(), "/input_schema"); err != nil {
			return row, err
		}
		row.InputSchema = schema.Bytes()
	}
	row.Plan, err = json.Marshal(storedPlan{d.Workflow.Tasks, d.Config.Settings()})
	return row, err
}

// Definition returns a version of a stored workflow, 0 for the newest one, or DEFINITION_NOT_FOUND.
func (e *environment) Definition(ctx context.Context, name string, version int64) (Definition, error) {
	row, err := workflows.GetDefinition(e.Store.Reads(ctx), name, version)
	if err != nil {
		return Definition{}, definitionError(err, name, version)
	}
	return newDefinition(row)
}

func definitionError(err error, name string, version int64) error {
	switch {
	case !errs.Is(err, errs.NotFound):
		return err
	case version != 0:
		return tools.NewError(errs.NotFound, "DEFINITION_NOT_FOUND", "there is no version %d of a workflow definition %q", version, input.Clip(name))
	}
	return tools.NewError(errs.NotFound, "DEFINITION_NOT_FOUND", "there is no workflow definition %q", input.Clip(name))
}

func newDefinition(row workflows.Definition) (Definition, error) {
	d := Definition{Name: row.Name, Version: row.Version, Description: row.Description, InputSchema: row.InputSchema, CreatedBy: row.CreatedBy, CreatedAt: row.CreatedAt}
	var stored storedPlan
	err := json.Unmarshal(row.Plan, &stored)
	d.Workflow.Tasks, d.Config = stored.Tasks, stored.Settings.Config()
	return d, err
}

// Definitions returns the newest versions of up to limit stored workflows whose names follow after, ordered by name, without
// their steps and schemas.
func (e *Engine) Definitions(ctx context.Context, after string, limit int) ([]Definition, error) {
	rows, err := workflows.ListDefinitions(e.Store.Reads(ctx), after, limit)
	out := make([]Definition, len(rows))
	for i, row := range rows {
		if out[i], err = newDefinition(row); err != nil {
			break
		}
	}
	return out, err
}

// DeleteDefinition deletes all versions of a stored workflow. Workflows that were started from it are not affected. It returns
// DEFINITION_NOT_FOUND, or the error of the precondition, which applies to the newest version.
func (e *Engine) DeleteDefinition(ctx context.Context, by models.Principal, name string, pre models.Precondition) error {
	return e.Store.Write(ctx, func(tx *store.Tx) error {
		newest, err := workflows.GetDefinition(tx, name, 0)
		if err != nil {
			return definitionError(err, name, 0)
		}
		if err := pre.Check(newest.Version); err != nil {
			return err
		}
		return cmp.Or(workflows.DeleteDefinition(tx, name), tx.Events().Emit(EventDefinitionRemoved, name, definitionChanged{name, newest.Version, by.Name}))
	})
}

// define sets the plan of a new workflow to that of a stored one. Of the settings of the request and the definition, the
// stricter ones apply. at is the JSON pointer of the invocation.
func (x *execution) define(ctx context.Context, from Invocation, at string) error {
	d, err := x.env.Definition(ctx, from.Name, orZero(from.Version))
	if err != nil {
		return err
	}
	value := from.Input
	if value == nil || string(value) == "null" {
		value = json.RawMessage("{}")
	}
	at += "/input"
	switch {
	case len(value) > plan.MaxArguments:
		return input.Violated(at, "max", "the input must have at most %d bytes, not %d", plan.MaxArguments, len(value))
	case bytes.TrimSpace(value)[0] != '{':
		return input.Violated(at, "object", "the input must be a JSON object, not %s", input.Clip(string(value)))
	}
	if d.InputSchema != nil {
		schema, err := plan.ParseSchema(d.InputSchema, "")
		if err != nil {
			return err
		}
		if value, err = schema.Complete(value, at); err != nil {
			return err
		}
	}
	x.row.Definition, x.row.DefinitionVersion, x.row.Input = d.Name, d.Version, value
	x.settings = x.settings.with(d.Config.Settings())
	if x.plan, err = plan.NewTemplate(d.Workflow.Tasks, ""); err != nil {
		return err
	}
	return x.plan.Bind(value, at)
}

// with returns the stricter ones of two settings; the timeout of s takes precedence.
func (s Settings) with(other Settings) Settings {
	out := Settings{
		ValidateLayers: s.ValidateLayers || other.ValidateLayers, AbortOnError: s.AbortOnError || other.AbortOnError,
		Approvals: cmp.Or(s.Approvals, other.Approvals), TimeoutMS: cmp.Or(s.TimeoutMS, other.TimeoutMS),
		Approver: cmp.Or(s.Approver, other.Approver), Budget: cmp.Or(s.Budget, other.Budget),
	}
	if s.Budget > 0 && other.Budget > 0 {
		out.Budget = min(s.Budget, other.Budget)
	}
	if other.Approver == ApproverHuman {
		out.Approver = ApproverHuman
	}
	if s.Approvals == models.ToolWrite || other.Approvals == models.ToolWrite {
		out.Approvals = models.ToolWrite
	}
	return out
}

// ref returns the stored workflow that a workflow executes, nil for none.
func ref(w workflows.Workflow) *DefinitionRef {
	if w.Definition == "" {
		return nil
	}
	return &DefinitionRef{w.Definition, w.DefinitionVersion}
}
