package api

import (
	"errors"
	"net/http"
	"net/url"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

const agentsPath = "/api/v1/agents"

// listAgents lists agents (CHE·NU §2.1).
//
//	@Summary		List agents
//	@Description	Pages by `limit` and `offset` as documented, or by `cursor`, which costs the same at any depth; the `Link` header with `rel="next"` and `next_cursor` lead to the next page. Without `active` all agents are listed. `total` is counted unless a cursor is given.
//	@ID				listAgents
//	@Tags			agents
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			sphere_id		query	int			false	"Only agents of this sphere"	minimum(1)	maximum(9)	example(1)
//	@Param			level			query	int			false	"Only agents of this level"	enums(0,1,2,3)	example(3)
//	@Param			frequency		query	int			false	"Only agents at this frequency in Hz; a reserved one selects nobody"	minimum(0)	maximum(999)	example(555)
//	@Param			active			query	bool		false	"Only active agents, or only inactive ones"	example(true)
//	@Param			parent_id		query	string		false	"Only agents directly under this one"	maxlength(64)	example(orch-personnel)
//	@Param			capability		query	[]string	false	"Only agents with this capability, with or without its `custom:` prefix; several must all be there"	collectionFormat(multi)	example(budgeting)
//	@Param			q				query	string		false	"Only agents whose id, name or description contains this text, whatever its case"	maxlength(200)	example(finance)
//	@Param			sort			query	string		false	"Order of the list; a leading `-` reverses it"	enums(id,-id,name,-name,level,-level,created_at,-created_at)	default(id)
//	@Param			limit			query	int			false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			offset			query	int			false	"Agents to pass over"	minimum(0)	maximum(10000000)	default(0)
//	@Param			cursor			query	string		false	"Where the page begins, as given by the page before"	maxlength(2000)
//	@Param			total			query	bool		false	"Whether to count; by default only without a cursor"
//	@Param			If-None-Match	header	string		false	"The ETag you have"
//	@Success		200	{object}	agentList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown, repeated or out of range"
//	@Router			/api/v1/agents [get]
func (s *Server) listAgents(w http.ResponseWriter, r *http.Request) error {
	q, err := agentQuery(r)
	if err != nil {
		return err
	}
	page, err := s.registry.List(r.Context(), q)
	if err != nil {
		return err
	}
	list := newAgentList(page, q)
	if page.More {
		list.NextCursor = agentCursor(q, page.Agents[len(page.Agents)-1])
		w.Header().Set("Link", links(r, list.NextCursor))
	}
	return s.writeJSON(w, r, http.StatusOK, list)
}

// createAgent creates an agent (CHE·NU §2.2).
//
//	@Summary		Create an agent
//	@Description	A token with `agents:write` creates L2 and L3 agents; L1 needs `admin`. A capability that is neither predefined nor prefixed with `custom:` is accepted with an entry in `warnings`.
//	@ID				createAgent
//	@Tags			agents
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[agents:write]
//	@Param			Idempotency-Key	header	string				false	"Makes a repeated request answer as the first one did, for 24 hours"	maxlength(255)
//	@Param			body			body	models.AgentDraft	true	"The agent"
//	@Success		201	{object}	agentCreated	"Created"
//	@Header			201	{string}	ETag
//	@Header			201	{string}	Location
//	@Header			201	{string}	Idempotency-Replayed
//	@Failure		400	"Invalid frequency for level, Parent not found, Invalid parent level, or a field is missing or malformed"
//	@Failure		409	"Agent ID already exists, the parent is inactive, a second L0, or the key was used with another request"
//	@Failure		422	"Token budget exceeds maximum"
//	@Router			/api/v1/agents [post]
func (s *Server) createAgent(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d models.AgentDraft
	body, err := s.decode(w, r, &d)
	if err != nil {
		return err
	}
	once, err := s.readIdempotencyKey(r, body, s.renderCreated)
	if err != nil {
		return err
	}
	created, err := s.registry.Create(r.Context(), caller(r), d, once)
	if err != nil || s.writeReplay(w, once) {
		return err
	}
	answer, err := s.renderCreated(created)
	if err != nil {
		return err
	}
	s.writeStoredResponse(w, answer)
	return nil
}

func (s *Server) renderCreated(result any) (models.StoredResponse, error) {
	created := result.(registry.Created)
	body, err := s.encode(newAgentCreated(created))
	return models.StoredResponse{
		Status: http.StatusCreated,
		Header: map[string]string{
			"Location": agentURL(created.Agent.ID),
			"ETag":     entityTag(created.Agent.Version, body),
		},
		Body: body,
	}, err
}

// getAgent returns one agent (CHE·NU §2.5).
//
//	@Summary		Get an agent
//	@Description	`children` are the active agents directly below, at most 1,000. `tokens_used_today` and `stats` count from midnight UTC; `tokens_used_today` is the same figure as `used_today` in the agent's usage.
//	@ID				getAgent
//	@Tags			agents
//	@Produce		json
//	@Security		BearerAuth[agents:read]
//	@Param			agent_id		path	string	true	"The agent's id"	maxlength(64)	example(finance-personal)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	agentDetail	"The agent"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such agent"
//	@Router			/api/v1/agents/{agent_id} [get]
func (s *Server) getAgent(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	d, err := s.registry.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeDetail(w, r, d, nil)
}

// updateAgent changes an agent (CHE·NU §2.3).
//
//	@Summary		Update an agent
//	@Description	Only members that are present change anything. `id`, `level` and `frequency_hz` are immutable: their own value is accepted, another is refused. `is_active: false` is the soft delete with its restrictions, `is_active: true` restores. L0 and L1 need the scope `admin`.
//	@ID				updateAgent
//	@Tags			agents
//	@Accept			json,application/merge-patch+json
//	@Produce		json
//	@Security		BearerAuth[agents:write]
//	@Param			agent_id	path	string				true	"The agent's id"	maxlength(64)	example(custom-assistant)
//	@Param			If-Match	header	string				false	"Change the agent only at this version"
//	@Param			body		body	models.AgentPatch	true	"What to change"
//	@Success		200	{object}	agentDetail	"The agent as it is now"
//	@Header			200	{string}	ETag
//	@Failure		400	"Immutable field, Parent not found, Invalid parent level, or a malformed field"
//	@Failure		404	"No such agent"
//	@Failure		409	"Active children, a protected agent, or an inactive parent"
//	@Failure		412	"The agent is at another version"
//	@Failure		422	"Token budget exceeds maximum"
//	@Router			/api/v1/agents/{agent_id} [patch]
func (s *Server) updateAgent(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	pre, err := precondition(r)
	if err != nil {
		return err
	}
	var p models.AgentPatch
	if _, err := s.decode(w, r, &p); err != nil {
		return err
	}
	updated, err := s.registry.Update(r.Context(), caller(r), id, p, pre)
	if err != nil {
		return err
	}
	return s.writeDetail(w, r, updated.Detail, updated.Warnings)
}

// deleteAgent deactivates an agent (CHE·NU §2.4).
//
//	@Summary		Delete an agent
//	@Description	A soft delete: the agent stays with `is_active: false`. L0 and L1 agents and agents with active children are refused.
//	@ID				deleteAgent
//	@Tags			agents
//	@Security		BearerAuth[agents:write]
//	@Param			agent_id	path	string	true	"The agent's id"	maxlength(64)	example(custom-assistant)
//	@Param			If-Match	header	string	false	"Delete the agent only at this version"
//	@Success		204	"Deactivated"
//	@Failure		400	"A malformed header"
//	@Failure		404	"No such agent"
//	@Failure		409	"Active children, or a protected agent"
//	@Failure		412	"The agent is at another version"
//	@Router			/api/v1/agents/{agent_id} [delete]
func (s *Server) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "agent_id")
	if err != nil {
		return err
	}
	if err := rejectBody(r); err != nil {
		return err
	}
	pre, err := precondition(r)
	if err != nil {
		return err
	}
	if err := s.registry.Deactivate(r.Context(), caller(r), id, pre); err != nil {
		return withoutPointers(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// withoutPointers is for a request without a body: there is nothing to point into.
func withoutPointers(err error) error {
	var e *errs.Error
	if errors.As(err, &e) {
		for i := range e.Fields {
			e.Fields[i].Pointer = ""
		}
	}
	return err
}

func agentURL(id string) string { return agentsPath + "/" + url.PathEscape(id) }
