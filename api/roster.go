package api

import (
	"bytes"
	"cmp"
	"net/http"
	"strings"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/models"
)

const contentTypeYAML = "application/yaml"

// rosterDocument is a roster as JSON; YAML has the same members.
type rosterDocument struct {
	Version int           `json:"version" validate:"required" example:"1" minimum:"1" maximum:"1"` // The version of the format, 1.
	Agents  []rosterEntry `json:"agents" validate:"required"`                                      // The agents.
}

// rosterEntry is one agent of a roster. Omitted members have their defaults.
type rosterEntry struct {
	ID           string             `json:"id" validate:"required" example:"finance-personal" minLength:"1" maxLength:"64"`          // The agent's id.
	Name         string             `json:"name" validate:"required" example:"Personal Finance Agent" minLength:"1" maxLength:"120"` // The display name.
	Level        int                `json:"level" validate:"required" example:"2" minimum:"0" maximum:"3"`                           // The level, 0 to 3.
	SphereID     *int               `json:"sphere_id" example:"1" minimum:"1" maximum:"9" extensions:"x-nullable"`                   // The sphere; null only for L0.
	FrequencyHz  int                `json:"frequency_hz" validate:"required" example:"555"`                                          // The frequency in Hz.
	ParentID     *string            `json:"parent_id" example:"orch-personnel" maxLength:"64" extensions:"x-nullable"`               // The agent directly above; null only for L0.
	TokenBudget  *int64             `json:"token_budget" example:"20000" minimum:"1000" maximum:"500000" extensions:"x-nullable"`    // Tokens per UTC day; null is unlimited, only for L0.
	BudgetScope  models.BudgetScope `json:"budget_scope" example:"subtree" enums:"own,subtree" default:"own"`                        // Whose use counts against the budget.
	Capabilities []string           `json:"capabilities" example:"budgeting,expense_tracking,savings"`                               // What the agent can do.
	Description  string             `json:"description" example:"L2 Specialist for personal finance management" maxLength:"2000"`    // A text about the agent.
	Type         string             `json:"type" example:"research" maxLength:"64"`                                                  // The agent type of the envelope protocol.
	IsActive     bool               `json:"is_active" example:"true" default:"true"`                                                 // Whether the agent is active.
}

// exportRoster exports agents as one document.
//
//	@Summary		Export the roster
//	@Description	Returns all agents, or those below `root`, ordered by level and id, as a document that `POST /api/v1/roster` accepts. A roster contains at most 10,000 agents; export a larger registry in parts. `format`, or else the `Accept` header, selects YAML or JSON; JSON is the default.
//	@Produce		json,application/yaml
//	@Param			root			query	string	false	"Id of the agent at the top of the exported tree"	maxlength(64)	default(nova)
//	@Param			format			query	string	false	"Format of the document"	enums(json,yaml)
//	@Success		200	{object}	rosterDocument	"The roster"
//	@Failure		400	"A query parameter is unknown or invalid, or there are more than 10,000 agents"
//	@Failure		404	"The root does not exist"
func (s *Server) exportRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "root", "format")
	root := rosterRoot(q, caller(r))
	format := q.Enum("format", acceptedFormat(r), "json", "yaml")
	if err := q.Err(); err != nil {
		return err
	}
	if err := s.core.Registry.Confine(r.Context(), caller(r), root); err != nil {
		return err
	}
	agents, err := s.core.Registry.Export(r.Context(), root)
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

// rosterRoot reads the parameter root. It is the agent of a bound token by default, and nova for others.
func rosterRoot(q *query, by models.Principal) string {
	return *cmp.Or(q.OptString("root", input.MaxID), by.AgentID, new(models.RootAgentID))
}

// acceptedFormat returns the format that the Accept header prefers.
func acceptedFormat(r *http.Request) string {
	accept := r.Header.Get("Accept")
	yaml, json := strings.Index(accept, "yaml"), strings.Index(accept, "json")
	if yaml >= 0 && (json < 0 || yaml < json) {
		return "yaml"
	}
	return "json"
}

// importRoster creates and updates the agents of a document.
//
//	@Summary		Import a roster
//	@Description	Creates the agents that do not exist and updates the others, in one transaction: all or none. Agents that are not in the document do not change. With `dry_run` nothing changes and the response lists all violations with their lines. Changes of agents of level 0 and 1 require the scope `admin`.
//	@Accept			json,application/yaml
//	@Param			dry_run			query	bool			false	"Whether to validate only"	default(false)
//	@Param			Idempotency-Key	header	string			false	"Unique key that makes the request safe to retry: for 24 hours a repetition returns the stored response"	maxlength(255)
//	@Param			body			body	rosterDocument	true	"The roster"
//	@Success		200	{object}	registry.ImportReport	"The changes that were made, or would be made"
//	@Failure		400	"The document is invalid; `errors` lists the violations with their lines"
//	@Failure		409	"The document conflicts with existing agents, or the Idempotency-Key was used with a different request"
//	@Failure		422	"Token budget exceeds maximum, or the quota of the token, or of a token that created a restored agent, is exhausted"
func (s *Server) importRoster(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "dry_run")
	dryRun := q.Bool("dry_run")
	if err := q.Err(); err != nil {
		return err
	}
	body, mediaType, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: s.opts.MaxRoster, MediaTypes: []string{contentTypeJSON, contentTypeYAML, "application/x-yaml", "text/yaml"}})
	if err != nil {
		return err
	}
	format := input.YAML
	if mediaType == contentTypeJSON {
		format = input.JSON
	}
	return runOnce(s, w, r, body, func(once *models.Idempotency) (registry.ImportReport, error) {
		doc, violations := roster.Parse(body, format)
		if err := unreadableRoster(violations); err != nil {
			return registry.ImportReport{}, err
		}
		return s.core.Registry.Import(r.Context(), caller(r), doc, violations, dryRun, once)
	}, reportReply)
}

// reportReply returns the response with a report, which has a bounded number of violations and warnings.
func reportReply(report registry.ImportReport) reply {
	report.Violations, report.Warnings = errs.Violations(report.Violations).Capped(), errs.Violations(report.Warnings).Capped()
	return reply{body: report}
}

// unreadableRoster returns an error for a document that cannot be parsed, for which there is no
// report.
func unreadableRoster(violations errs.Violations) error {
	for _, v := range violations {
		if v.Code == errs.MalformedJSON || v.Code == errs.MalformedYAML {
			return violations.All()
		}
	}
	return nil
}
