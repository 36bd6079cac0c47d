package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/models"
)

// upstreamView is an MCP server whose tools comet offers.
type upstreamView struct {
	ID        string `json:"id" example:"filesystem"`                                                                     // The upstream's id.
	AgentID   string `json:"agent_id" example:"mcp-filesystem"`                                                           // The agent that represents it in the registry.
	Source    string `json:"source,omitempty" example:"api"`                                                              // `api`, or the file that configures it.
	Transport string `json:"transport" enums:"stdio,http" example:"stdio"`                                                // How comet connects to it.
	State     string `json:"state" enums:"starting,ready,failed,authorization_required,disabled,stopped" example:"ready"` // Only the tools of a `ready` upstream are available.
	Error     string `json:"error,omitempty" example:"upstream \"filesystem\" does not start: no such program"`           // Why the last start or session failed; absent when it is ready.
	// When it entered the state.
	Since time.Time `json:"since" example:"2026-01-10T15:30:00Z"`
	// Time of the next attempt to start. Null unless it has failed.
	NextTry  *time.Time `json:"next_try" example:"2026-01-10T15:30:30Z"`
	Restarts int        `json:"restarts" example:"0"`                                // Number of starts after the first.
	PID      int        `json:"pid,omitempty" example:"4711"`                        // The process id of the program.
	Command  string     `json:"command,omitempty" example:"npx"`                     // The program, without its arguments.
	URL      string     `json:"url,omitempty" example:"https://mcp.example.com/mcp"` // The address of the server.
	// Names of its environment variables and headers; their values are never returned.
	Env              []string `json:"env" example:"GITHUB_TOKEN"`
	Headers          []string `json:"headers" example:"Authorization"`                          // Names of the HTTP headers; their values are never returned.
	TimeoutMS        int64    `json:"timeout_ms" example:"30000"`                               // Default time limit of a call in milliseconds.
	ProtocolRevision string   `json:"protocol_revision,omitempty" example:"2025-11-25"`         // The negotiated revision of MCP.
	Name             string   `json:"server_name,omitempty" example:"secure-filesystem-server"` // The name that the server reports.
	Version          string   `json:"server_version,omitempty" example:"0.2.0"`                 // The version that the server reports.
	Tools            int      `json:"tools" example:"14"`                                       // Number of tools.
	Resources        int      `json:"resources" example:"0"`                                    // Number of resources.
	Templates        int      `json:"resource_templates" example:"0"`                           // Number of resource templates.
	Prompts          int      `json:"prompts" example:"0"`                                      // Number of prompts.
	Warnings         []string `json:"warnings"`                                                 // Violations of the protocol, and what was left out because of them.
	Stderr           []string `json:"stderr"`                                                   // The last lines of its standard error, without secrets.
}

// upstreamList contains all upstreams.
type upstreamList struct {
	Upstreams []upstreamView `json:"upstreams"` // The upstreams.
}

// newUpstreamView returns the view of an upstream. Only admins see its source, address and standard
// error.
func (s *Server) newUpstreamView(u upstream.Status, by models.Principal) upstreamView {
	v := upstreamView{
		ID: u.ID, AgentID: s.core.Tools.AgentOf(u.ID), Source: u.Source, Transport: string(u.Transport), State: string(u.State), Error: u.Error,
		Since: u.Since.UTC(), NextTry: orNull(u.NextAttempt), Restarts: u.Restarts, PID: u.PID, Command: u.Command, URL: u.URL,
		Env: orEmpty(u.EnvNames), Headers: orEmpty(u.HeaderNames), TimeoutMS: u.Timeout.Milliseconds(), ProtocolRevision: u.Protocol,
		Name: u.ServerName, Version: u.ServerVersion, Tools: u.Tools, Resources: u.Resources, Templates: u.Templates, Prompts: u.Prompts,
		Warnings: orEmpty(u.Warnings), Stderr: orEmpty(u.Stderr),
	}
	if !by.Administers() {
		v.Source, v.Command, v.URL, v.PID, v.Env, v.Headers, v.Stderr = "", "", "", 0, []string{}, []string{}, []string{}
	}
	return v
}

// listUpstreams lists the upstreams.
//
//	@Summary		List upstreams
//	@Description	Returns the MCP servers whose tools the token may call, in the order of their ids, with their state on this replica. Source, command, address and standard error are only returned to tokens with the scope `admin`.
//	@Success		200	{object}	upstreamList	"The upstreams"
func (s *Server) listUpstreams(r request) (any, error) {
	shown, err := s.core.Tools.Upstreams(r.Context(), r.caller)
	return upstreamList{views(shown, func(u upstream.Status) upstreamView { return s.newUpstreamView(u, r.caller) })}, err
}

// getUpstream returns one upstream.
//
//	@Summary		Get an upstream
//	@Description	Returns an MCP server with its state on this replica. The entity tag of an upstream that was created with this API contains the version of its definition, for `If-Match`.
//	@Success		200	{object}	upstreamView	"The upstream"
func (s *Server) getUpstream(r request) (any, error) {
	u, version, err := s.core.Tools.UpstreamFor(r.Context(), r.caller, r.id)
	return reply{version: version, body: s.newUpstreamView(u, r.caller)}, err
}

// upstreamConfig is an entry of mcpServers.
//
// Package upstream parses it.
//
//nolint:unused // the description is made from it
type upstreamConfig struct {
	Command string            `json:"command,omitempty" example:"npx"`                                 // The program to start; comet connects to its standard input and output.
	Args    []string          `json:"args,omitempty" example:"-y,@modelcontextprotocol/server-memory"` // The arguments of the program.
	Env     map[string]string `json:"env,omitempty"`                                                   // Environment variables of the program. Reference secrets as `${NAME}` or `${file:/path}`.
	Cwd     string            `json:"cwd,omitempty" example:"/srv"`                                    // The working directory of the program.
	Type    string            `json:"type,omitempty" enums:"stdio,http" example:"stdio"`               // How comet connects to the server; derived from command or url if it is omitted.
	URL     string            `json:"url,omitempty" example:"https://mcp.example.com/mcp"`             // The address of a server for Streamable HTTP.
	Headers map[string]string `json:"headers,omitempty"`                                               // HTTP headers of the requests. Reference secrets as `${NAME}` or `${file:/path}`.
	// Settings of comet: timeout (such as "45s"), bearer, roots, protocol, and oauth with client_id, client_secret and scopes.
	Comet map[string]any `json:"comet,omitempty"`
}

// putUpstream creates or replaces an upstream.
//
//	@Summary		Create or replace an upstream
//	@Description	Creates or replaces an MCP server on all replicas. The body is an entry of the `mcpServers` JSON that desktop clients use. Reference secrets, `${NAME}` for an environment variable of comet and `${file:/path}` for a file; a literal value that looks like a secret is rejected. Servers with a `command` run on comet's machine with comet's permissions; set `mcp.add_commands: false` to forbid them.
//	@Param			upstream_id	path	string			true	"The upstream's id: letters, digits and hyphens"	maxlength(64)	example(filesystem)
//	@Param			If-Match		header	string	false	"Replace the upstream only if this entity tag has its current version"
//	@Param			If-None-Match	header	string	false	"With `*`, create the upstream only if it does not exist"
//	@Param			body		body	upstreamConfig	true	"The entry"
//	@Success		200	{object}	models.Upstream	"The upstream was replaced"
//	@Success		201	{object}	models.Upstream	"The upstream was created"
//	@Failure		400	"The entry is invalid, or contains a literal secret"
//	@Failure		409	"The upstream is configured by a file"
//	@Failure		412	"The upstream has another version"
//	@Failure		422	"The quota of the token, or of a token that it descends from, is exhausted"
func (s *Server) putUpstream(r request, entry jsontext.Value) (any, error) {
	u, err := s.core.Tools.PutUpstream(r.Context(), r.caller, r.id, []byte(entry), r.pre)
	out := reply{version: u.Version, body: u}
	if u.Version == 1 {
		out.status = http.StatusCreated
	}
	return out, err
}

// upstreamPatch is a merge patch of an entry of mcpServers.
//
//nolint:unused // the description is made from it
type upstreamPatch struct {
	Command *string  `json:"command,omitempty" extensions:"x-nullable" example:"npx"`                                 // The program to start.
	Args    []string `json:"args,omitempty" extensions:"x-nullable" example:"-y,@modelcontextprotocol/server-memory"` // The arguments of the program. A list replaces the stored one.
	// Environment variables of the program. Those that are not named are kept; null deletes a variable.
	Env  map[string]any `json:"env,omitempty" extensions:"x-nullable"`
	Cwd  *string        `json:"cwd,omitempty" extensions:"x-nullable" example:"/srv"`                        // The working directory of the program.
	Type *string        `json:"type,omitempty" extensions:"x-nullable" enums:"stdio,http" example:"stdio"`   // How comet connects to the server.
	URL  *string        `json:"url,omitempty" extensions:"x-nullable" example:"https://mcp.example.com/mcp"` // The address of a server for Streamable HTTP.
	// HTTP headers of the requests. Those that are not named are kept; null deletes a header.
	Headers map[string]any `json:"headers,omitempty" extensions:"x-nullable"`
	// Settings of comet. Those that are not named are kept; null deletes a setting.
	Comet map[string]any `json:"comet,omitempty" extensions:"x-nullable"`
}

// updateUpstream changes an upstream.
//
//	@Summary		Update an upstream
//	@Description	Changes members of the definition of an MCP server on all replicas, by a JSON merge patch: members that are missing are kept, null deletes a member. The same rules as for `PUT` apply. The server is started again if its definition changes.
//	@Accept			json,application/merge-patch+json
//	@Param			upstream_id	path	string			true	"The upstream's id"	maxlength(64)	example(filesystem)
//	@Param			If-Match		header	string	false	"Change the upstream only if this entity tag has its current version"
//	@Param			body		body	upstreamPatch	true	"The members to change"
//	@Success		200	{object}	models.Upstream	"The upstream was changed"
//	@Failure		400	"The definition would be invalid, or contains a literal secret"
//	@Failure		409	"The upstream is configured by a file, or was changed during the request"
//	@Failure		412	"The upstream has another version"
func (s *Server) updateUpstream(r request, patch map[string]any) (any, error) {
	u, err := s.core.Tools.UpdateUpstream(r.Context(), r.caller, r.id, patch, r.pre)
	return reply{version: u.Version, body: u}, err
}

// deleteUpstream deletes an upstream.
//
//	@Summary		Delete an upstream
//	@Description	Deletes an MCP server that was created with this API, and the approved definitions of its tools, on all replicas. Its agent stays in the registry, offline.
//	@Param			If-Match	header	string	false	"Delete the upstream only if this entity tag has its current version"
//	@Success		204	"Deleted"
//	@Failure		409	"The upstream is configured by a file"
//	@Failure		412	"The upstream has another version"
func (s *Server) deleteUpstream(r request) error {
	return s.core.Tools.RemoveUpstream(r.Context(), r.caller, r.id, r.pre)
}

// restartUpstream restarts an upstream.
//
//	@Summary		Restart an upstream
//	@Description	Closes this replica's connection to an MCP server, stops its program, and starts it again. Calls in progress fail.
//	@Success		204	"The upstream is starting"
func (s *Server) restartUpstream(r request) error { return s.core.Tools.RestartUpstream(r.id) }

// upstreamAuthorization is an authorization in progress.
type upstreamAuthorization struct {
	// Open it in a browser within ten minutes.
	AuthorizationURL string    `json:"authorization_url" example:"https://auth.example.com/authorize?client_id=comet&response_type=code"`
	ExpiresAt        time.Time `json:"expires_at" example:"2026-01-10T15:40:00Z"` // When the URL is no longer accepted.
}

// authorizeUpstream starts the authorization of an upstream.
//
//	@Summary		Authorize an upstream
//	@Description	Starts the OAuth authorization of an MCP server whose state is `authorization_required`, or a new one. Open the returned URL in a browser: the authorization server of the MCP server asks you to sign in and to allow the access, and leads the browser back to comet, which then connects on all replicas. Another request ends the earlier authorization.
//	@Success		200	{object}	upstreamAuthorization	"The authorization"
//	@Failure		409	"The upstream is a program, or its definition contains its token"
//	@Failure		502	"The upstream or its authorization server is not available, or does not support the authorization of MCP"
func (s *Server) authorizeUpstream(r request, _ struct{}) (any, error) {
	address, until, err := s.core.Tools.AuthorizeUpstream(r.Context(), r.caller, r.id)
	return reply{noStore: true, body: upstreamAuthorization{address, until.UTC()}}, err
}

// finishAuthorization completes the authorization of an upstream when the browser returns, with a text for
// the person.
func (s *Server) finishAuthorization(w http.ResponseWriter, r *http.Request) error {
	id, err := s.core.Tools.FinishAuthorization(r.Context(), r.URL.Query())
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case errs.Is(err, errs.InvalidRequest):
		http.Error(w, tools.Detail(err), http.StatusBadRequest)
	case err != nil:
		return err
	default:
		_, _ = fmt.Fprintf(w, "comet is authorized to use the upstream %q. You can close this page.\n", id)
	}
	return nil
}

// reloadUpstreams reloads the file of upstreams.
//
//	@Summary		Reload the upstreams' file
//	@Description	Reloads the file that `mcp.servers` names at once instead of within two seconds: new servers are started, changed ones restarted, removed ones stopped. A file with an error changes nothing.
//	@Success		204	"Reloaded"
//	@Failure		400	"The file is invalid; `errors` contains each error with its line"
func (s *Server) reloadUpstreams(r request) error { return s.core.Tools.ReloadUpstreams(r.Context()) }

// toolDefinitionView is the stored definition of a tool.
type toolDefinitionView struct {
	ID    string `json:"id" example:"filesystem:read_file"`                                          // The tool's id.
	Tool  string `json:"tool" example:"read_file"`                                                   // The tool's name, without the upstream.
	State string `json:"state" swaggertype:"string" enums:"approved,quarantined" example:"approved"` // Whether the tool is available.
	// SHA-256 of the approved definition; empty before the first approval.
	Digest     string `json:"digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
	Definition any    `json:"definition"` // The approved definition, as in MCP's tools/list; null before the first approval.
	// SHA-256 of the definition that waits for approval; absent without one.
	PendingDigest string `json:"pending_digest,omitempty" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"`
	Pending       any    `json:"pending,omitempty"` // The definition that waits for approval; absent without one.
	// The class that replaces the one in the annotations; absent if there is none.
	Class      models.ToolClass `json:"class,omitempty" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	SeenAt     time.Time        `json:"first_seen_at" example:"2026-01-10T15:30:00Z"`    // When the tool first appeared.
	ChangedAt  *time.Time       `json:"changed_at" example:"2026-01-11T15:30:00Z"`       // When its definition last changed; null if it never did.
	ApprovedAt *time.Time       `json:"approved_at" example:"2026-01-11T16:30:00Z"`      // When the definition was approved; null if it was accepted automatically.
	ApprovedBy string           `json:"approved_by,omitempty" example:"bootstrap-admin"` // Name of the token that approved the definition.
}

// toolDefinitionList contains the definitions of an upstream's tools.
type toolDefinitionList struct {
	Tools []toolDefinitionView `json:"tools"` // The tool definitions.
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

// listToolDefinitions lists the tool definitions of an upstream.
//
//	@Summary		List an upstream's tool definitions
//	@Description	Returns the tools of an upstream in the order of their names: the approved definition and, if the upstream sends another one now, the definition that waits for approval.
//	@Success		200	{object}	toolDefinitionList	"The tool definitions"
func (s *Server) listToolDefinitions(r request) (any, error) {
	list, err := s.core.Tools.ToolDefinitions(r.Context(), r.id)
	return toolDefinitionList{views(list, newToolDefinitionView)}, err
}

// toolApproval is the body of a request to approve a definition.
type toolApproval struct {
	Tool string `json:"tool" validate:"required,max=128" example:"read_file" maxLength:"128"` // The tool's name, without the upstream.
	// SHA-256 of the definition that you reviewed; if it is set, no other definition is approved.
	Digest string `json:"digest" validate:"max=64" example:"60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" maxLength:"64"`
}

// approveTool approves a changed definition.
//
//	@Summary		Approve a tool's changed definition
//	@Description	Approves the current definition of a quarantined tool, which makes it available again.
//	@Param			body		body	toolApproval	true	"The tool to approve"
//	@Success		200	{object}	toolDefinitionView	"The approved definition"
//	@Failure		404	"The tool does not exist"
//	@Failure		412	"The definition has changed since the given digest"
func (s *Server) approveTool(r request, d toolApproval) (any, error) {
	out, err := s.core.Tools.Approve(r.Context(), r.caller, r.id, d.Tool, d.Digest)
	return newToolDefinitionView(out), err
}

// approveUpstream approves the tools of an upstream.
//
//	@Summary		Approve an upstream's tools
//	@Description	Approves the current definitions of all quarantined tools of an upstream, such as a new one, which makes them available.
//	@Success		200	{object}	toolDefinitionList	"The tool definitions"
func (s *Server) approveUpstream(r request, _ struct{}) (any, error) {
	list, err := s.core.Tools.ApproveUpstream(r.Context(), r.caller, r.id)
	return toolDefinitionList{views(list, newToolDefinitionView)}, err
}

// toolClassification is the body of a request to classify a tool.
type toolClassification struct {
	Tool string `json:"tool" validate:"required,max=128" example:"read_file" maxLength:"128"` // The tool's name, without the upstream.
	// The class; null restores the one in the annotations.
	Class *models.ToolClass `json:"class" validate:"omitnil,oneof=read write destructive" swaggertype:"string" enums:"read,write,destructive" example:"read" extensions:"x-nullable"`
}

// classifyTool sets the class of a tool.
//
//	@Summary		Classify a tool
//	@Description	Sets the class of a tool, `read`, `write` or `destructive`, instead of the one in its annotations. The tool policies of tokens apply to this class.
//	@Param			body		body	toolClassification	true	"The tool and its class"
//	@Success		200	{object}	toolDefinitionView	"The tool"
//	@Failure		404	"The tool does not exist"
func (s *Server) classifyTool(r request, d toolClassification) (any, error) {
	out, err := s.core.Tools.Classify(r.Context(), r.caller, r.id, d.Tool, orZero(d.Class))
	return newToolDefinitionView(out), err
}

// policySimulation is what a tool policy would allow.
type policySimulation struct {
	Policy *models.ToolPolicy `json:"policy" validate:"omitnil" extensions:"x-nullable"`                                      // The policy to try; without it the token's own.
	Tools  []string           `json:"tools" validate:"max=1000,dive,max=256" example:"filesystem:write_file" maxItems:"1000"` // Ids of tools; without them all tools.
}

// toolVerdict is whether a token may call a tool, and why not.
type toolVerdict struct {
	ID       string           `json:"id" example:"filesystem:write_file"`                                                  // The tool's id.
	Callable bool             `json:"callable" example:"false"`                                                            // Whether the token may call it. Rules with arguments may still refuse some arguments.
	Listed   bool             `json:"listed" example:"false"`                                                              // Whether MCP's `tools/list` contains it for the token. A search finds every tool that the token may call.
	Class    models.ToolClass `json:"class,omitempty" swaggertype:"string" enums:"read,write,destructive" example:"write"` // The class of the tool; absent for an unknown one.
	Reason   string           `json:"reason" example:"a rule of deny matches the tool"`                                    // Why it may or may not be called.
	Rule     string           `json:"rule,omitempty" example:"filesystem:*"`                                               // The rule of `deny` that refuses it, if one does.
}

// toolVerdicts are the results of a simulation.
type toolVerdicts struct {
	Tools []toolVerdict `json:"tools"` // One for each tool, in the order of the request or of the catalogue.
}

// simulateToolPolicy returns which tools a token may call.
//
//	@Summary		Simulate a tool policy
//	@Description	Returns for each tool whether the token may call it, and why not. This applies the policy of the request or the token's own policy, and the policies of the tokens that it descends from. Nothing is stored or called. A policy does not ask for approval: only steps of workflows do, by `approve`, or by the class of the tool and `config.approvals`.
//	@Param			body	body	policySimulation	true	"The policy and the tools"
//	@Success		200	{object}	toolVerdicts	"The verdicts"
//	@Failure		400	"A field is malformed"
//	@Failure		404	"The token does not exist"
func (s *Server) simulateToolPolicy(r request, d policySimulation) (any, error) {
	token, err := s.core.Auth.Get(r.Context(), r.caller, r.id)
	if err != nil {
		return nil, err
	}
	list, err := s.core.Tools.Simulate(r.Context(), token, d.Policy, d.Tools)
	return toolVerdicts{views(list, func(v tools.Verdict) toolVerdict { return toolVerdict(v) })}, err
}
