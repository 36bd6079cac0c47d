package api

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/upstream"
	"comet/models"
)

// upstreamView is an MCP server behind the gateway, and how it stands.
type upstreamView struct {
	ID        string `json:"id" example:"filesystem"`
	AgentID   string `json:"agent_id" example:"mcp-filesystem"`                                                 // The agent it is in the registry.
	Source    string `json:"source,omitempty" example:"api"`                                                    // api, or the file that defines it.
	Transport string `json:"transport" enums:"stdio,http" example:"stdio"`                                      // How it is reached.
	State     string `json:"state" enums:"starting,ready,failed,disabled,stopped" example:"ready"`              // Only one that is ready has tools.
	Error     string `json:"error,omitempty" example:"upstream \"filesystem\" does not start: no such program"` // Why the last start or session ended, until it is ready again.
	// Since when it is in that state.
	Since time.Time `json:"since" example:"2026-01-10T15:30:00Z"`
	// When it is tried again. Null unless it has failed.
	NextTry  *time.Time `json:"next_try" example:"2026-01-10T15:30:30Z"`
	Restarts int        `json:"restarts" example:"0"` // Starts after the first.
	PID      int        `json:"pid,omitempty" example:"4711"`
	Command  string     `json:"command,omitempty" example:"npx"` // The program, without its arguments.
	URL      string     `json:"url,omitempty" example:"https://mcp.example.com/mcp"`
	// The names of its environment variables and headers; their values are never shown.
	Env              []string `json:"env" example:"GITHUB_TOKEN"`
	Headers          []string `json:"headers" example:"Authorization"`
	TimeoutMS        int64    `json:"timeout_ms" example:"30000"` // How long a call may take.
	ProtocolRevision string   `json:"protocol_revision,omitempty" example:"2025-11-25"`
	Name             string   `json:"server_name,omitempty" example:"secure-filesystem-server"`
	Version          string   `json:"server_version,omitempty" example:"0.2.0"`
	Tools            int      `json:"tools" example:"14"`
	Resources        int      `json:"resources" example:"0"`
	Templates        int      `json:"resource_templates" example:"0"`
	Prompts          int      `json:"prompts" example:"0"`
	Warnings         []string `json:"warnings"` // What it does wrong, and what was left out because of it.
	Stderr           []string `json:"stderr"`   // What it wrote last to its standard error, without secrets.
}

// upstreamList is all of them.
type upstreamList struct {
	Upstreams []upstreamView `json:"upstreams"`
}

// newUpstreamView shows an upstream to a caller: how it is reached, and what it writes, is for
// admins.
func (s *Server) newUpstreamView(u upstream.Status, by models.Principal) upstreamView {
	v := upstreamView{
		ID: u.ID, AgentID: s.tools.AgentOf(u.ID), Source: u.Source, Transport: string(u.Transport), State: string(u.State), Error: u.Error,
		Since: u.Since.UTC(), NextTry: orNull(u.NextAttempt), Restarts: u.Restarts, PID: u.PID, Command: u.Command, URL: u.URL,
		Env: orEmpty(u.EnvNames), Headers: orEmpty(u.HeaderNames), TimeoutMS: u.Timeout.Milliseconds(), ProtocolRevision: u.Protocol,
		Name: u.ServerName, Version: u.ServerVersion, Tools: u.Tools, Resources: u.Resources, Templates: u.Templates, Prompts: u.Prompts,
		Warnings: orEmpty(u.Warnings), Stderr: orEmpty(u.Stderr),
	}
	if !by.Has(models.ScopeAdmin) {
		v.Source, v.Command, v.URL, v.PID, v.Env, v.Headers, v.Stderr = "", "", "", 0, []string{}, []string{}, []string{}
	}
	return v
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// listUpstreams lists the MCP servers behind the tools.
//
//	@Summary		List upstreams
//	@Description	The MCP servers behind the gateway as this replica has them, in the order of their ids, those that are down too and why: of those whose tools the token may call. How a server is reached, and what it writes to its standard error, only an admin sees.
//	@ID				listUpstreams
//	@Tags			tools
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	upstreamList	"All of them"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Router			/api/v1/upstreams [get]
func (s *Server) listUpstreams(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	out := upstreamList{Upstreams: []upstreamView{}}
	shown, err := s.tools.Upstreams(r.Context(), caller(r))
	if err != nil {
		return err
	}
	for _, u := range shown {
		out.Upstreams = append(out.Upstreams, s.newUpstreamView(u, caller(r)))
	}
	return s.writeJSON(w, r, http.StatusOK, out)
}

// getUpstream returns one.
//
//	@Summary		Get an upstream
//	@Description	An MCP server behind the gateway, as this replica has it.
//	@ID				getUpstream
//	@Tags			tools
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			upstream_id		path	string	true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	upstreamView	"The upstream"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such upstream"
//	@Router			/api/v1/upstreams/{upstream_id} [get]
func (s *Server) getUpstream(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	u, err := s.tools.UpstreamFor(r.Context(), caller(r), id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, s.newUpstreamView(u, caller(r)))
}

// upstreamSaved is an upstream that was added or changed.
type upstreamSaved struct {
	ID        string    `json:"id" example:"filesystem"`
	Version   int64     `json:"version" example:"1"` // Counts the changes.
	CreatedBy string    `json:"created_by" example:"bootstrap-admin"`
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`
	UpdatedAt time.Time `json:"updated_at" example:"2026-01-10T15:30:00Z"`
}

// upstreamConfig is an entry of mcpServers. It is read by the room that knows such entries.
//
//nolint:unused // the description is made from it
type upstreamConfig struct {
	Command string            `json:"command,omitempty" example:"npx"` // A program that is spoken to over its standard input and output.
	Args    []string          `json:"args,omitempty" example:"-y,@modelcontextprotocol/server-memory"`
	Env     map[string]string `json:"env,omitempty"` // Its environment. Secrets are named: `${NAME}`, `${file:/path}`.
	Cwd     string            `json:"cwd,omitempty" example:"/srv"`
	Type    string            `json:"type,omitempty" enums:"stdio,http" example:"stdio"`
	URL     string            `json:"url,omitempty" example:"https://mcp.example.com/mcp"` // A server that is spoken to over Streamable HTTP.
	Headers map[string]string `json:"headers,omitempty"`
	// What only comet understands: timeout (such as "45s"), bearer, roots, protocol.
	Comet map[string]any `json:"comet,omitempty"`
}

// putUpstream adds an upstream, or changes one.
//
//	@Summary		Add or change an upstream
//	@Description	Adds an MCP server on all replicas, or changes one that was added so. The body is an entry of the `mcpServers` JSON that desktop clients use. A secret is not said but named, `${NAME}` for an environment variable of comet's and `${file:/path}` for a file; a value that looks like one is 400. Servers that are programs run on comet's machine, as comet: only an admin adds them, and `mcp.add_commands: false` has nobody.
//	@ID				putUpstream
//	@Tags			tools
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			upstream_id	path	string			true	"The upstream's id: letters, digits and hyphens"	maxlength(64)	example(filesystem)
//	@Param			body		body	upstreamConfig	true	"The entry"
//	@Success		200	{object}	upstreamSaved	"It takes the place of what was there"
//	@Success		201	{object}	upstreamSaved	"Added"
//	@Failure		400	"The entry makes no sense, or a secret stands in it"
//	@Failure		409	"The upstream is defined by a file"
//	@Router			/api/v1/upstreams/{upstream_id} [put]
func (s *Server) putUpstream(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	var entry jsontext.Value
	if _, err := s.decode(w, r, &entry); err != nil {
		return err
	}
	u, err := s.tools.PutUpstream(r.Context(), caller(r), id, []byte(entry))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if u.Version == 1 {
		status = http.StatusCreated
	}
	return s.writeJSON(w, r, status, upstreamSaved{ID: u.ID, Version: u.Version, CreatedBy: u.CreatedBy, CreatedAt: u.CreatedAt, UpdatedAt: u.UpdatedAt})
}

// deleteUpstream removes an upstream.
//
//	@Summary		Remove an upstream
//	@Description	Removes an MCP server that was added, on all replicas, with what was approved of its tools. Its agent stays in the registry, offline.
//	@ID				deleteUpstream
//	@Tags			tools
//	@Security		BearerAuth[admin]
//	@Param			upstream_id	path	string	true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Success		204	"Removed"
//	@Failure		404	"No such upstream"
//	@Failure		409	"The upstream is defined by a file"
//	@Router			/api/v1/upstreams/{upstream_id} [delete]
func (s *Server) deleteUpstream(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	if err := s.tools.RemoveUpstream(r.Context(), caller(r), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// restartUpstream starts an upstream anew.
//
//	@Summary		Restart an upstream
//	@Description	Ends the connection of this replica to an MCP server, its program too, and begins anew at once. Calls under way fail.
//	@ID				restartUpstream
//	@Tags			tools
//	@Security		BearerAuth[admin]
//	@Param			upstream_id	path	string	true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Success		204	"It starts"
//	@Failure		404	"No such upstream"
//	@Router			/api/v1/upstreams/{upstream_id}/restart [post]
func (s *Server) restartUpstream(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	if err := s.tools.RestartUpstream(id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reloadUpstreams takes over the file.
//
//	@Summary		Reload the file of upstreams
//	@Description	Takes over the file that `mcp.servers` names now, instead of within two seconds: new servers are started, changed ones anew, missing ones stopped, the others not touched. A file with a mistake changes nothing.
//	@ID				reloadUpstreams
//	@Tags			tools
//	@Security		BearerAuth[admin]
//	@Success		204	"Taken over"
//	@Failure		400	"The file makes no sense: `errors` names each mistake with its line"
//	@Router			/api/v1/upstreams/reload [post]
func (s *Server) reloadUpstreams(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	if err := s.tools.ReloadUpstreams(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// toolDefinitionView is what is known about a tool of an upstream.
type toolDefinitionView struct {
	ID    string           `json:"id" example:"filesystem:read_file"`
	Tool  string           `json:"tool" example:"read_file"`
	State models.ToolState `json:"state" swaggertype:"string" enums:"approved,quarantined" example:"approved"`
	// The SHA-256 of the definition that was approved.
	Digest     string `json:"digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Definition any    `json:"definition"`
	// What waits for approval, absent where nothing does.
	PendingDigest string `json:"pending_digest,omitempty" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"`
	Pending       any    `json:"pending,omitempty"`
	// What replaces the class that the annotations say, absent where they are believed.
	Class      models.ToolClass `json:"class,omitempty" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	SeenAt     time.Time        `json:"first_seen_at" example:"2026-01-10T15:30:00Z"`
	ChangedAt  *time.Time       `json:"changed_at" example:"2026-01-11T15:30:00Z"`
	ApprovedAt *time.Time       `json:"approved_at" example:"2026-01-11T16:30:00Z"`
	ApprovedBy string           `json:"approved_by,omitempty" example:"bootstrap-admin"`
}

// toolDefinitionList is all of an upstream's.
type toolDefinitionList struct {
	Tools []toolDefinitionView `json:"tools"`
}

func newToolDefinitionView(d models.ToolDefinition) toolDefinitionView {
	v := toolDefinitionView{
		ID: d.Server + ":" + d.Name, Tool: d.Name, State: d.State, Digest: d.Digest, Definition: jsontext.Value(d.Definition), PendingDigest: d.PendingDigest,
		Class: d.Class, SeenAt: d.SeenAt, ChangedAt: orNull(d.ChangedAt), ApprovedAt: orNull(d.ApprovedAt), ApprovedBy: d.ApprovedBy,
	}
	if d.Pending != nil {
		v.Pending = jsontext.Value(d.Pending)
	}
	return v
}

// listToolDefinitions lists what is known about an upstream's tools.
//
//	@Summary		List the definitions of an upstream's tools
//	@Description	What is known about its tools, in the order of their names: what was approved, and what waits for approval where the upstream says something else now.
//	@ID				listToolDefinitions
//	@Tags			tools
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			upstream_id		path	string	true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	toolDefinitionList	"All of them"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such upstream"
//	@Router			/api/v1/upstreams/{upstream_id}/tools [get]
func (s *Server) listToolDefinitions(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	list, err := s.tools.ToolDefinitions(r.Context(), id)
	if err != nil {
		return err
	}
	out := toolDefinitionList{Tools: []toolDefinitionView{}}
	for _, d := range list {
		out.Tools = append(out.Tools, newToolDefinitionView(d))
	}
	return s.writeJSON(w, r, http.StatusOK, out)
}

// toolApproval names a tool whose definition is approved.
type toolApproval struct {
	Tool string `json:"tool" validate:"required,max=128" example:"read_file" maxLength:"128"`
	// The digest of what was looked at; with it nothing else is approved.
	Digest string `json:"digest" validate:"max=64" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" maxLength:"64"`
}

// approveTool takes a changed definition for right.
//
//	@Summary		Approve a tool's changed definition
//	@Description	Takes the definition that a quarantined tool has now for the right one, so that it is shown and called again.
//	@ID				approveTool
//	@Tags			tools
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			upstream_id	path	string			true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Param			body		body	toolApproval	true	"Which tool"
//	@Success		200	{object}	toolDefinitionView	"The definition that counts now"
//	@Failure		400	"A field is missing or malformed"
//	@Failure		404	"No such tool"
//	@Failure		412	"The definition has changed again since the digest was looked at"
//	@Router			/api/v1/upstreams/{upstream_id}/tools/approve [post]
func (s *Server) approveTool(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	var d toolApproval
	if err := s.decodeValid(w, r, &d); err != nil {
		return err
	}
	out, err := s.tools.Approve(r.Context(), caller(r), id, d.Tool, d.Digest)
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newToolDefinitionView(out))
}

// toolClassification says what a tool may do.
type toolClassification struct {
	Tool string `json:"tool" validate:"required,max=128" example:"read_file" maxLength:"128"`
	// Null believes the annotations again.
	Class *models.ToolClass `json:"class" validate:"omitnil,oneof=read write destructive" swaggertype:"string" enums:"read,write,destructive" example:"read" extensions:"x-nullable"`
}

// classifyTool says what a tool may do.
//
//	@Summary		Classify a tool
//	@Description	Says what a tool may do, in the place of its annotations: `read`, `write` or `destructive`. The policies of tokens go by it.
//	@ID				classifyTool
//	@Tags			tools
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Param			upstream_id	path	string				true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Param			body		body	toolClassification	true	"Which tool, and its class"
//	@Success		200	{object}	toolDefinitionView	"The tool"
//	@Failure		400	"A field is missing or malformed"
//	@Failure		404	"No such tool"
//	@Router			/api/v1/upstreams/{upstream_id}/tools/classify [post]
func (s *Server) classifyTool(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "upstream_id")
	if err != nil {
		return err
	}
	var d toolClassification
	if err := s.decodeValid(w, r, &d); err != nil {
		return err
	}
	out, err := s.tools.Classify(r.Context(), caller(r), id, d.Tool, orZero(d.Class))
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, http.StatusOK, newToolDefinitionView(out))
}
