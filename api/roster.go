package api

import (
	"bytes"
	"net/http"
	"strings"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
)

const contentTypeYAML = "application/yaml"

// rosterDocument is a roster as JSON; YAML has the same members.
type rosterDocument struct {
	Version int           `json:"version" validate:"required" example:"1" minimum:"1" maximum:"1"`
	Agents  []rosterEntry `json:"agents" validate:"required"`
}

// rosterEntry is one agent of a roster. Members that are left out take their
// defaults. Those of L0 that have no value are null.
type rosterEntry struct {
	ID           string             `json:"id" validate:"required" example:"finance-personal" minLength:"1" maxLength:"64"`
	Name         string             `json:"name" validate:"required" example:"Personal Finance Agent" minLength:"1" maxLength:"120"`
	Level        int                `json:"level" validate:"required" example:"2" minimum:"0" maximum:"3"`
	SphereID     *int               `json:"sphere_id" example:"1" minimum:"1" maximum:"9" extensions:"x-nullable"`
	FrequencyHz  int                `json:"frequency_hz" validate:"required" example:"555"`
	ParentID     *string            `json:"parent_id" example:"orch-personnel" maxLength:"64" extensions:"x-nullable"`
	TokenBudget  *int64             `json:"token_budget" example:"20000" minimum:"1000" maximum:"500000" extensions:"x-nullable"`
	BudgetScope  models.BudgetScope `json:"budget_scope" example:"subtree" enums:"own,subtree" default:"own"`
	Capabilities []string           `json:"capabilities" example:"budgeting,expense_tracking,savings"`
	Description  string             `json:"description" example:"L2 Specialist for personal finance management" maxLength:"2000"`
	Type         string             `json:"type" example:"research" maxLength:"64"`
	IsActive     bool               `json:"is_active" example:"true" default:"true"`
}

// exportRoster returns every agent as one document.
//
//	@Summary		Export the roster
//	@Description	Every agent, or those below `root`, ordered by level and id, as a document that an import takes back. A roster holds at most 10,000 agents; a larger registry is exported in parts. YAML or JSON by `format`, else by `Accept`; JSON is the default.
//	@ID				exportRoster
//	@Tags			roster
//	@Produce		json,application/yaml
//	@Security		BearerAuth[agents:read]
//	@Param			root			query	string	false	"The agent to begin at"	maxlength(64)	default(nova)
//	@Param			format			query	string	false	"Form of the document"	enums(json,yaml)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	rosterDocument	"The roster"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range, or there are too many agents for one roster"
//	@Failure		404	"No such root"
//	@Router			/api/v1/roster [get]
func (s *Server) exportRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "root", "format")
	root := rosterRoot(q)
	format := q.Enum("format", acceptedFormat(r), "json", "yaml")
	if err := q.Err(); err != nil {
		return err
	}
	agents, err := s.registry.Export(r.Context(), root)
	if err != nil {
		return err
	}
	contentType, marshal := contentTypeJSON, roster.MarshalJSON
	if format == "yaml" {
		contentType, marshal = contentTypeYAML, roster.MarshalYAML
	}
	w.Header().Add("Vary", "Accept")
	return s.withBuffer(func(buf *bytes.Buffer) error {
		if err := marshal(buf, agents); err != nil {
			return err
		}
		s.writeBody(w, r, http.StatusOK, 0, contentType, buf.Bytes())
		return nil
	})
}

// rosterRoot reads the parameter that names the agent to begin at.
func rosterRoot(q *query) string {
	if id := q.OptString("root", models.MaxIDLength); id != nil {
		return *id
	}
	return models.RootAgentID
}

// acceptedFormat reads the form a client asks for in Accept.
func acceptedFormat(r *http.Request) string {
	accept := r.Header.Get("Accept")
	yaml, json := strings.Index(accept, "yaml"), strings.Index(accept, "json")
	if yaml >= 0 && (json < 0 || yaml < json) {
		return "yaml"
	}
	return "json"
}

// importRoster creates and changes the agents of a document.
//
//	@Summary		Import a roster
//	@Description	Creates the agents that do not exist and changes those that do, all or none; agents the document does not list stay as they are. With `dry_run` nothing is changed and the answer lists every violation with its line. Changing L0 or L1 agents needs the scope `admin`.
//	@ID				importRoster
//	@Tags			roster
//	@Accept			json,application/yaml
//	@Produce		json
//	@Security		BearerAuth[agents:write]
//	@Param			dry_run			query	bool			false	"Only check"	default(false)
//	@Param			Idempotency-Key	header	string			false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	rosterDocument	true	"The roster"
//	@Success		200	{object}	registry.ImportReport	"What was done, or would be"
//	@Header			200	{string}	Idempotency-Replayed
//	@Failure		400	"The document breaks a rule; `errors` lists every violation with its line"
//	@Failure		409	"The document collides with the agents there are, or the key was used with another request"
//	@Failure		422	"Token budget exceeds maximum"
//	@Router			/api/v1/roster [post]
func (s *Server) importRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "dry_run")
	dryRun := q.Bool("dry_run")
	if err := q.Err(); err != nil {
		return err
	}
	body, mediaType, err := readBody(w, r, s.opts.MaxRoster, contentTypeJSON, contentTypeYAML, "application/x-yaml", "text/yaml")
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderReport)
	if err != nil {
		return err
	}
	format := input.YAML
	if mediaType == contentTypeJSON {
		format = input.JSON
	}
	doc, violations := roster.Parse(body, format)
	if err := unreadableRoster(violations); err != nil {
		return err
	}
	report, err := s.registry.Import(r.Context(), caller(r), doc, violations, dryRun, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, boundReport(report))
}

// boundReport returns the report with as many violations and warnings as an answer
// has room for.
func boundReport(report registry.ImportReport) registry.ImportReport {
	report.Violations, report.Warnings = errs.Capped(report.Violations), errs.Capped(report.Warnings)
	return report
}

// unreadableRoster returns an error for a document whose syntax is broken: there is
// nothing to make a report on.
func unreadableRoster(violations errs.Violations) error {
	for _, v := range violations {
		if v.Code == errs.MalformedJSON || v.Code == errs.MalformedYAML {
			return violations.All()
		}
	}
	return nil
}

func (s *Server) renderReport(result any) (models.StoredResponse, error) {
	body, err := s.encode(boundReport(result.(registry.ImportReport)))
	return models.StoredResponse{Status: http.StatusOK, Body: body}, err
}
