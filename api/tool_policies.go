package api

import (
	"net/http"

	"comet/models"
)

// toolPolicyView is what the holder of a token may do with tools.
type toolPolicyView struct {
	TokenID string `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	models.ToolPolicy
}

func newToolPolicyView(id string, p models.ToolPolicy) toolPolicyView {
	p.Allow, p.Deny, p.Classes = orEmpty(p.Allow), orEmpty(p.Deny), orEmpty(p.Classes)
	return toolPolicyView{id, p}
}

// getToolPolicy shows what a token may do with tools.
//
//	@Summary		Get a token's policy for tools
//	@Description	A token without one may call every tool, if it has the scope `tools:call`.
//	@ID				getToolPolicy
//	@Tags			tokens
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			token_id		path	string	true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	toolPolicyView	"The policy"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such token, or it has no policy"
//	@Router			/api/v1/tokens/{token_id}/tool-policy [get]
func (s *Server) getToolPolicy(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	p, err := s.tools.Policy(r.Context(), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newToolPolicyView(id, p))
}

// putToolPolicy says what a token may do with tools.
//
//	@Summary		Set a token's policy for tools
//	@Description	`allow` selects what the holder may call, `deny` what not, also where `allow` does; without `allow` that is everything. A rule is a pattern of `server:tool`, or of a server, in which `*` stands for any characters and `?` for one, and may ask for arguments: `{"tool": "filesystem:write_file", "arguments": {"path": "/srv/data/*"}}`. An argument that climbs with `..` matches no rule of `allow`. `classes` selects by what a tool may do. What a token may not call is not shown to it, and answered as unknown. Resources and prompts of a server are the tools `resource:<uri>` and `prompt:<name>`, of the class `read`. It counts at once on this replica and within a second on the others.
//	@ID				putToolPolicy
//	@Tags			tokens
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			token_id	path	string				true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			body		body	models.ToolPolicy	true	"The policy"
//	@Success		200	{object}	toolPolicyView	"It counts"
//	@Failure		400	"A field is malformed"
//	@Failure		404	"No such token"
//	@Router			/api/v1/tokens/{token_id}/tool-policy [put]
func (s *Server) putToolPolicy(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	var p models.ToolPolicy
	if err := s.decodeValid(w, r, &p); err != nil {
		return err
	}
	if _, err := s.auth.Get(r.Context(), id); err != nil {
		return err
	}
	if err := s.tools.SetPolicy(r.Context(), caller(r), id, p); err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newToolPolicyView(id, p))
}

// deleteToolPolicy takes a token's policy away.
//
//	@Summary		Remove a token's policy for tools
//	@Description	The token may call every tool then.
//	@ID				deleteToolPolicy
//	@Tags			tokens
//	@Security		BearerAuth[admin]
//	@Param			token_id	path	string	true	"The token's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Success		204	"Removed"
//	@Failure		404	"No such token"
//	@Router			/api/v1/tokens/{token_id}/tool-policy [delete]
func (s *Server) deleteToolPolicy(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "token_id")
	if err != nil {
		return err
	}
	if _, err := s.auth.Get(r.Context(), id); err != nil {
		return err
	}
	if err := s.tools.DeletePolicy(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
