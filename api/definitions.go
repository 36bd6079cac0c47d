package api

import (
	"encoding/json"
	"net/http"
	"time"

	"comet/internal/workflow"
)

const definitionsPath = "/api/v1/workflow-definitions"

// definitionDraft is the body of a request to store a workflow.
type definitionDraft struct {
	Workflow    *workflow.Graph  `json:"workflow" validate:"required"`                                                                                 // The tasks. `$input.path` in arguments is replaced by a part of the input.
	Config      *workflow.Config `json:"config" validate:"omitnil" extensions:"x-nullable"`                                                            // Options of the workflow.
	InputSchema json.RawMessage  `json:"input_schema" swaggertype:"object"`                                                                            // JSON Schema for the input. `$ref` is not supported. A missing top-level member gets the default of its property.
	Description *string          `json:"description" validate:"omitnil,text,max=2000" example:"Daily report" maxLength:"2000" extensions:"x-nullable"` // The purpose of the workflow.
}

// definitionItem is a stored workflow in a list.
type definitionItem struct {
	Name        string    `json:"name" example:"nightly-report"`                // The name.
	Version     int64     `json:"version" example:"3"`                          // The newest version.
	Description string    `json:"description,omitempty" example:"Daily report"` // The purpose of the workflow; absent if none was stored.
	CreatedBy   string    `json:"created_by" example:"ci"`                      // Name of the token that stored the version.
	CreatedAt   time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`    // When the version was stored.
}

func newDefinitionItem(d workflow.Definition) definitionItem {
	return definitionItem{d.Name, d.Version, d.Description, d.CreatedBy, d.CreatedAt}
}

// definitionList is one page of stored workflows.
type definitionList struct {
	Definitions []definitionItem `json:"definitions"`                                         // The newest version of each stored workflow.
	NextCursor  string           `json:"next_cursor,omitempty" example:"bmlnaHRseS1yZXBvcnQ"` // Absent on the last page.
}

// listDefinitions lists the stored workflows.
//
//	@Summary		List stored workflows
//	@Description	Returns the newest version of each stored workflow, without its tasks, ordered by name.
//	@Success		200	{object}	definitionList	"A page of results"
func (s *Server) listDefinitions(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	after, limit := q.idCursor(), q.pageLimit()
	if err := q.Err(); err != nil {
		return nil, err
	}
	list, err := s.core.Workflows.Definitions(r.Context(), after, limit+1)
	list, next := cutPage(list, limit, func(d workflow.Definition) string { return d.Name })
	return reply{next: next, body: definitionList{orEmpty(views(list, newDefinitionItem)), next}}, err
}

// getDefinition returns a stored workflow.
//
//	@Summary		Get a stored workflow
//	@Description	Returns a version of a stored workflow, by default the newest one. Its entity tag contains the version.
//	@Param			version	query	int		false	"The version"	minimum(1)	example(3)
//	@Success		200	{object}	workflow.Definition	"The stored workflow"
func (s *Server) getDefinition(r request) (any, error) {
	q := newQuery(r.Request, "version")
	version := q.Int("version", 1, maxOffset, 0)
	if err := q.Err(); err != nil {
		return nil, err
	}
	d, err := s.core.Workflows.Definition(r.Context(), r.id, int64(version))
	return reply{version: d.Version, body: d}, err
}

// putDefinition stores a workflow.
//
//	@Summary		Store a workflow
//	@Description	Stores the next version of a workflow. Tokens with the scope `tools:call` can start it by its name; the tasks are executed with the permissions of the token that starts it. If the newest version has the same content, nothing is stored. Whether the tools exist is checked only when the workflow is started.
//	@Param			definition_id	path	string			true	"The name: lowercase letters, digits, dots, underscores and hyphens"	maxlength(64)	example(nightly-report)
//	@Param			If-Match		header	string	false	"Store the version only if this entity tag is that of the newest version"
//	@Param			If-None-Match	header	string	false	"With `*`: store the workflow only if the name is not in use"
//	@Param			body			body	definitionDraft	true	"The workflow"
//	@Success		200	{object}	workflow.Definition	"The newest version already had this content, or a further version was stored"
//	@Success		201	{object}	workflow.Definition	"The first version was stored"
//	@Header			200	{string}	ETag
//	@Header			201	{string}	ETag
//	@Header			201	{string}	Location
//	@Failure		409	"Another version was stored at the same time"
//	@Failure		412	"The newest version does not match the precondition"
func (s *Server) putDefinition(r request, d definitionDraft) (any, error) {
	out, stored, err := s.core.Workflows.SaveDefinition(r.Context(), r.caller, workflow.Definition{
		Name: r.id, Description: orZero(d.Description), Workflow: *d.Workflow, Config: orZero(d.Config), InputSchema: presentJSON(d.InputSchema),
	}, r.pre)
	res := reply{version: out.Version, body: out}
	if stored && out.Version == 1 {
		res.status, res.location = http.StatusCreated, definitionsPath+"/"+out.Name
	}
	return res, err
}

// presentJSON returns nil for null.
func presentJSON(value json.RawMessage) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

// deleteDefinition deletes a stored workflow.
//
//	@Summary		Delete a stored workflow
//	@Description	Deletes all versions of a stored workflow. Workflows that were started from it are not affected.
//	@Param			If-Match	header	string	false	"Delete it only if this entity tag is that of the newest version"
//	@Success		204	"Deleted"
//	@Failure		412	"The newest version does not match the precondition"
func (s *Server) deleteDefinition(r request) error {
	return s.core.Workflows.DeleteDefinition(r.Context(), r.caller, r.id, r.pre)
}
