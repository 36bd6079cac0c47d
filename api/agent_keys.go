package api

import (
	"net/http"
	"time"

	"comet/models"
)

// agentKeyView is what an agent signs with, without the key itself.
type agentKeyView struct {
	AgentID     string    `json:"agent_id" example:"finance-personal"`
	V5ID        string    `json:"v5_id" example:"W3"`             // What the agent is called in lines of PROTOCOL_V5.
	Fingerprint string    `json:"fingerprint" example:"7717ae71"` // The first 8 hex digits of the key's SHA-256.
	Required    bool      `json:"required" example:"true"`        // Whether every line of the agent has to be signed.
	CreatedBy   string    `json:"created_by" example:"ci-importer"`
	CreatedAt   time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
}

// agentKeyIssued is a key that was made, which is shown this once.
type agentKeyIssued struct {
	agentKeyView
	// The key, 64 hexadecimal characters, which are used as they are written. It is shown
	// this once, and only where comet made it.
	Key string `json:"key,omitempty" example:"5f0c9d1e8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d"`
}

func newAgentKeyView(k models.AgentKey) agentKeyView {
	return agentKeyView{
		AgentID: k.AgentID, V5ID: models.WorkerName(k.Number), Fingerprint: k.Fingerprint, Required: k.Required,
		CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt,
	}
}

// getAgentKey shows what is known of an agent's key.
//
//	@Summary		Get an agent's key
//	@Description	What the agent signs its lines of PROTOCOL_V5 with, without the key itself.
//	@ID				getAgentKey
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	agentKeyView	"The key"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such agent, or it has no key"
//	@Router			/api/v1/agents/{agent_id}/key [get]
func (s *Server) getAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	key, err := s.keys.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newAgentKeyView(key))
}

// putAgentKey gives an agent a key.
//
//	@Summary		Give an agent a key
//	@Description	The agent signs its lines of PROTOCOL_V5 with it. Without `key` one is made, and shown this once; a key that was agreed on elsewhere is 16 to 128 bytes of text. The key that the agent had before ends at once on this replica and within a second on the others. `required` says that every line of the agent has to be signed; where it is left out it stays as it was, and is false for a first key.
//	@ID				putAgentKey
//	@Tags			tokens
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			agent_id	path	string					true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			body		body	models.AgentKeyDraft	false	"The key, and what it is for"
//	@Success		200	{object}	agentKeyIssued	"It takes the place of another one"
//	@Success		201	{object}	agentKeyIssued	"The agent's first key"
//	@Failure		400	"A field is malformed, or the key is too short or too long"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id}/key [put]
func (s *Server) putAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	var d models.AgentKeyDraft
	if _, err := s.decodeOptional(w, r, &d); err != nil {
		return err
	}
	issued, err := s.keys.Issue(r.Context(), caller(r), id, d)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if issued.First {
		status = http.StatusCreated
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.writeJSON(w, r, status, agentKeyIssued{newAgentKeyView(issued.Key), issued.Secret})
}

// updateAgentKey changes what an agent's key is for.
//
//	@Summary		Change what an agent's key is for
//	@Description	The key stays. With `required` every line of PROTOCOL_V5 that the agent says has to be signed, at every door, and what it is told is signed too.
//	@ID				updateAgentKey
//	@Tags			tokens
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			agent_id	path	string					true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			body		body	models.AgentKeyChange	true	"What the key is for"
//	@Success		200	{object}	agentKeyView	"Changed"
//	@Failure		400	"A field is missing or malformed"
//	@Failure		404	"No such agent, or it has no key"
//	@Router			/api/v1/agents/{agent_id}/key [patch]
func (s *Server) updateAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	var d models.AgentKeyChange
	if _, err := s.decode(w, r, &d); err != nil {
		return err
	}
	key, err := s.keys.Require(r.Context(), caller(r), id, d)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newAgentKeyView(key))
}

// revokeAgentKey ends an agent's key.
//
//	@Summary		Revoke an agent's key
//	@Description	The key ends at once on this replica and within a second on the others. Without a key the agent need not sign, and cannot.
//	@ID				revokeAgentKey
//	@Tags			tokens
//	@Security		BearerAuth[admin]
//	@Param			agent_id	path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Success		204	"Revoked"
//	@Failure		404	"No such agent, or it has no key"
//	@Router			/api/v1/agents/{agent_id}/key [delete]
func (s *Server) revokeAgentKey(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	if err := s.keys.Revoke(r.Context(), caller(r), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
