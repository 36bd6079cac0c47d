package api

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/tools"
	"comet/internal/tools/builtin"
	"comet/internal/toolsearch"
	"comet/models"
)

// toolView is a tool that can be called.
type toolView struct {
	ID          string           `json:"id" example:"filesystem:read_file"`                                        // The tool's id: the upstream's id, a colon and the name.
	Server      string           `json:"server" example:"filesystem"`                                              // The upstream's id, or that of comet's own tools.
	Name        string           `json:"name" example:"read_file"`                                                 // The tool's name, without the upstream.
	Listed      string           `json:"listed_name" example:"filesystem__read_file"`                              // Name of the tool in MCP's tools/list.
	Title       string           `json:"title,omitempty" example:"Read File"`                                      // The display name; absent if it has none.
	Description string           `json:"description" example:"Read the complete contents of a file"`               // The tool's description.
	Class       models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"read"` // What the tool may do.
	InputSchema any              `json:"input_schema"`                                                             // JSON Schema of the arguments.
}

// toolList is one page of tools.
type toolList struct {
	Tools      []toolView `json:"tools"`                                                       // The tools on the page.
	NextCursor string     `json:"next_cursor,omitempty" example:"ZmlsZXN5c3RlbTpyZWFkX2ZpbGU"` // Absent on the last page.
}

func newToolView(t *tools.Tool) toolView {
	return toolView{
		ID: t.ID, Server: t.Server, Name: t.Name, Listed: t.ListedName, Title: t.Title(), Description: t.Definition.Description,
		Class: t.Class, InputSchema: t.Definition.InputSchema,
	}
}

// listTools lists the tools that the caller may call.
//
//	@Summary		List tools
//	@Description	Returns the tools that the token may call: comet's own tools first, then those of the upstreams in the order of their ids.
//	@Param			server			query	string	false	"Only tools of this upstream"	maxlength(64)	example(filesystem)
//	@Param			cursor			query	string	false	"`next_cursor` of the previous page"	maxlength(400)
//	@Success		200	{object}	toolList	"A page of results"
func (s *Server) listTools(r request) (any, error) {
	q := newQuery(r.Request, "server", "limit", "cursor")
	server, limit := orZero(q.OptString("server", input.MaxID)), q.pageLimit()
	after, sent := q.cursor(400)
	if sent && !tools.IsPosition(after) {
		q.failCursor()
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	list, err := s.core.Tools.Tools(r.Context(), r.caller, server, after, limit+1)
	list, next := cutPage(list, limit, (*tools.Tool).Position)
	return reply{next: next, body: toolList{views(list, newToolView), next}}, err
}

// searchTools searches tools.
//
//	@Summary		Search tools
//	@Description	Returns the tools that match `query`, a description of the purpose in English or French, like `agentcards:search_tools` over MCP. The search is a tool call itself: the token's policy applies, it is charged and recorded in the audit log.
//	@Param			body	body	builtin.SearchQuery	true	"The query"
//	@Success		200	{object}	builtin.SearchResult	"The matching tools, best first"
//	@Failure		400	"The query is empty or a field is out of range"
func (s *Server) searchTools(r request, q builtin.SearchQuery) (any, error) {
	return builtin.Search(r.Context(), s.core.Tools, toolCaller(r.Request), q)
}

func toolCaller(r *http.Request) tools.Caller {
	return tools.Caller{Principal: caller(r), Source: tools.SourceREST}.Traced(httpkit.Traceparent(r))
}

// toolCallDraft is the body of a request to call a tool.
type toolCallDraft struct {
	Tool      string          `json:"tool" validate:"required,max=256" example:"filesystem:read_file" maxLength:"256"` // Id, name or listed name of the tool.
	Arguments *jsontext.Value `json:"arguments" swaggertype:"object" extensions:"x-nullable"`                          // The arguments, an object.
	// Maximum duration in milliseconds; by default the limit of the upstream.
	TimeoutMS *int64 `json:"timeout_ms" validate:"omitnil,min=1,max=3600000" example:"10000" minimum:"1" maximum:"3600000" extensions:"x-nullable"`
}

// toolResult is the result of a tool.
type toolResult struct {
	Content []mcp.Content `json:"content" swaggertype:"array,object"` // The content blocks, as in MCP's tools/call.
	// Absent if the tool returns none.
	StructuredContent any `json:"structured_content,omitempty"`
	// Whether the tool reports a failure.
	IsError bool `json:"is_error" example:"false"`
}

// callTool calls a tool.
//
//	@Summary		Call a tool
//	@Description	Calls a tool of an upstream or of comet itself, like `tools/call` over MCP: the token's policy applies, the call is charged to the token's agent (or `nova`) and recorded in the audit log. The status is 200 if the tool responded; check `is_error`. If the tool was not called, the response is a problem whose `tool_error` is the error code of the MCP server.
//	@Param			body		body	toolCallDraft	true	"The tool and its arguments"
//	@Param			traceparent	header	string			false	"W3C trace context of the call"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Success		200	{object}	toolResult	"The result of the tool"
//	@Failure		400	"A field is missing or malformed, or the arguments do not match the tool's schema"
//	@Failure		404	"The tool does not exist, or the token may not call it"
//	@Failure		422	"Code in the sandbox failed; see `tool_error`"
//	@Failure		403	"The budget does not cover the call, or the policy of the token does not allow it"
//	@Failure		429	"Reserved tokens of the budget would cover the call, or the token exceeds its rate limit"
//	@Failure		502	"The upstream is not available, failed or timed out; it may have executed the call"
//	@Failure		503	"The ledger is not available; the tool was not called"
func (s *Server) callTool(w http.ResponseWriter, r *http.Request) error {
	var d toolCallDraft
	if _, _, err := s.readRequest(w, r, validBody, &d); err != nil {
		return err
	}
	httpkit.ReleaseBody(r) // a call can take minutes
	opts := tools.CallOptions{Timeout: time.Duration(orZero(d.TimeoutMS)) * time.Millisecond}
	ctx, done := withoutTimeout(w, r) // limited only by the timeout of the tool
	res, err := s.core.Tools.Call(ctx, toolCaller(r), d.Tool, json.RawMessage(orZero(d.Arguments)), &opts)
	done()
	if err != nil {
		return err
	}
	return s.writeJSON(w, r, toolResult{orEmpty(res.Content), res.StructuredContent, res.IsError})
}

// toolCallView is an entry of the audit log of tool calls.
type toolCallView struct {
	ID      string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`        // The call's id.
	At      time.Time `json:"at" example:"2026-01-10T15:30:00Z"`                        // When the call started.
	Source  string    `json:"source" enums:"mcp,rest,code,task,workflow" example:"mcp"` // Where the call came from; `code` is code in the sandbox.
	TokenID string    `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`  // Id of the token that made the call.
	Actor   string    `json:"actor" example:"claude-desktop"`                           // Name of the token that made the call.
	AgentID string    `json:"agent_id" example:"finance-personal"`                      // The agent that was charged.
	Tool    string    `json:"tool" example:"filesystem:read_file"`                      // The tool's id.
	// The tool's class at the time of the call.
	Class           models.ToolClass `json:"class,omitempty" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	ArgumentsDigest string           `json:"arguments_digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"` // SHA-256 of the arguments.
	Outcome         string           `json:"outcome" swaggertype:"string" enums:"success,error,refused" example:"success"`                // The outcome of the call.
	Error           string           `json:"error,omitempty" example:"MCP_SERVER_ERROR"`                                                  // The error code; absent if it succeeded.
	DurationMS      float64          `json:"duration_ms" example:"12.3"`                                                                  // Duration in milliseconds.
	Tokens          int64            `json:"tokens" example:"240"`                                                                        // Tokens of the arguments and the result.
	ParentID        string           `json:"parent_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8056"`                          // The execution of code that made the call.
	TaskID          string           `json:"task_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8059"`                            // The task for which the call was made; absent without one.
	TraceID         string           `json:"trace_id,omitempty" example:"4bf92f3577b34da6a3ce929d0e0e4736"`                               // The W3C trace id; absent without one.
}

// toolCallList is one page of the audit log of tool calls.
type toolCallList struct {
	Calls      []toolCallView `json:"calls"`                                       // The calls on the page.
	NextCursor string         `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

func newToolCallView(c models.ToolCall) toolCallView {
	return toolCallView{
		ID: c.ID, At: c.At, Source: c.Source, TokenID: c.TokenID, Actor: c.Actor, AgentID: c.AgentID, Tool: c.Server + ":" + c.Tool, Class: c.Class,
		ArgumentsDigest: c.Digest, Outcome: c.Outcome, Error: c.Error, DurationMS: float64(c.Duration.Microseconds()) / 1000, Tokens: c.Tokens,
		ParentID: c.ParentID, TaskID: c.TaskID, TraceID: c.TraceID,
	}
}

// listToolCalls lists tool calls.
//
//	@Summary		List tool calls
//	@Description	Returns the audit log of tool calls, newest first: caller, tool, digest of the arguments, outcome and cost. A token sees its own calls; `admin` sees all.
//	@Param			agent_id		query	string	false	"Only calls that were charged to this agent"	maxlength(64)	example(finance-personal)
//	@Param			token_id		query	string	false	"Only calls with this token"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			server			query	string	false	"Only calls of this upstream's tools"	maxlength(64)	example(filesystem)
//	@Param			tool			query	string	false	"Only calls of tools with this name, or of one tool as server:tool"	maxlength(128)	example(read_file)
//	@Param			task_id			query	string	false	"Only calls for this task"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8059)
//	@Param			parent_id		query	string	false	"Only calls made by this execution of code"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8056)
//	@Param			outcome			query	string	false	"Only calls with this outcome"	enums(success,error,refused)
//	@Success		200	{object}	toolCallList	"A page of results"
func (s *Server) listToolCalls(r request) (any, error) {
	q := newQuery(r.Request, "agent_id", "token_id", "server", "tool", "task_id", "parent_id", "outcome", "limit", "cursor")
	text := func(name string, most int) string { return orZero(q.OptString(name, most)) }
	wanted := tools.ToolCallQuery{
		AgentID: text("agent_id", input.MaxID), TokenID: text("token_id", input.MaxID), Server: text("server", input.MaxID),
		Tool: text("tool", tools.MaxToolName), TaskID: text("task_id", input.MaxID), ParentID: text("parent_id", input.MaxID),
		Outcome: q.Enum("outcome", "", "success", "error", "refused"), Before: q.idCursor(),
	}
	if server, tool, both := strings.Cut(wanted.Tool, ":"); both && wanted.Server == "" { // as in the response
		wanted.Server, wanted.Tool = server, tool
	}
	limit := q.pageLimit()
	if err := q.Err(); err != nil {
		return nil, err
	}
	wanted.Limit = limit + 1
	calls, err := s.core.Tools.Calls(r.Context(), r.caller, wanted)
	calls, next := cutPage(calls, limit, func(c models.ToolCall) string { return c.ID })
	return reply{next: next, body: toolCallList{views(calls, newToolCallView), next}}, err
}

// toolPolicyView is the tool policy of a token.
type toolPolicyView struct {
	TokenID string `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"` // The token's id.
	Stored  bool   `json:"stored" example:"true"`                                   // Whether the token has a policy. The policy of a token without one is empty and allows every tool.
	models.ToolPolicy
}

// newToolPolicyReply returns a policy at a version, which is 0 for a token without a policy. Such a
// response has no ETag, because an If-Match with it would never match.
func newToolPolicyReply(id string, p models.ToolPolicy, version int64) reply {
	p.Allow, p.Deny, p.Classes = orEmpty(p.Allow), orEmpty(p.Deny), orEmpty(p.Classes)
	stored := version > 0
	return reply{version: version, noStore: !stored, body: toolPolicyView{id, stored, p}}
}

// getToolPolicy returns the tool policy of a token.
//
//	@Summary		Get a token's tool policy
//	@Description	Returns the tool policy of a token. A token without a policy may call every tool, if it has the scope `tools:call`: its policy is empty, `stored` is false, and the response has no ETag. The policies of the tokens that it descends from also apply.
//	@Success		200	{object}	toolPolicyView	"The policy"
func (s *Server) getToolPolicy(r request) (any, error) {
	if _, err := s.core.Auth.Get(r.Context(), r.caller, r.id); err != nil {
		return nil, err
	}
	p, version, err := s.core.Tools.Policy(r.Context(), r.id)
	return newToolPolicyReply(r.id, p, version), err
}

// putToolPolicy sets the tool policy of a token.
//
//	@Summary		Set a token's tool policy
//	@Description	Sets which tools the token may call: those that match `allow` (all, if it is empty), except those that match `deny`, and only those of the given `classes`. A rule is a pattern of `server:tool`, or of a server, in which `*` matches any characters and `?` one, and may require arguments: `{"tool": "filesystem:write_file", "arguments": {"path": "/srv/data/*"}}`. An argument that contains `..` path segments matches no rule of `allow`. Tools that the token may not call are hidden from it and unknown to its calls. Resources and prompts of a server are the tools `resource:<uri>` and `prompt:<name>` of the class `read`. The policy takes effect at once on this replica and within a second on the others.
//	@Param			body		body	models.ToolPolicy	true	"The policy"
//	@Param			If-Match		header	string	false	"Set the policy only if this entity tag has its current version"
//	@Param			If-None-Match	header	string	false	"With `*`, set the policy only if the token has none"
//	@Success		200	{object}	toolPolicyView	"The policy"
//	@Failure		400	"A field is malformed"
func (s *Server) putToolPolicy(r request, p models.ToolPolicy) (any, error) {
	if _, err := s.core.Auth.Get(r.Context(), r.caller, r.id); err != nil {
		return nil, err
	}
	version, err := s.core.Tools.SetPolicy(r.Context(), r.caller, r.id, p, r.pre)
	return newToolPolicyReply(r.id, p, version), err
}

// deleteToolPolicy deletes the tool policy of a token.
//
//	@Summary		Delete a token's tool policy
//	@Description	Deletes the tool policy. The token may then call every tool.
//	@Param			If-Match	header	string	false	"Delete the policy only if this entity tag has its current version"
//	@Success		204	"Deleted"
func (s *Server) deleteToolPolicy(r request) error {
	if _, err := s.core.Auth.Get(r.Context(), r.caller, r.id); err != nil {
		return err
	}
	return s.core.Tools.DeletePolicy(r.Context(), r.id, r.pre)
}

// toolGraph is the graph of tools that were used in the same runs.
type toolGraph struct {
	Nodes       []toolGraphNode `json:"nodes"`                                      // The tools, those of the highest rank first.
	Edges       []toolGraphEdge `json:"edges"`                                      // The pairs of these tools that were used in one run.
	TotalNodes  int             `json:"total_nodes" example:"214"`                  // Number of tools without `limit`.
	Communities int             `json:"communities" example:"7"`                    // Number of groups of tools that are used together.
	Density     float64         `json:"density" example:"0.08"`                     // Share of all pairs of tools that were used together.
	ComputedAt  time.Time       `json:"computed_at" example:"2026-01-12T15:30:00Z"` // When ranks and communities were computed.
}

// toolGraphNode is a tool of the graph.
type toolGraphNode struct {
	ID        string  `json:"id" example:"filesystem:read_file"` // The tool's id.
	Server    string  `json:"server" example:"filesystem"`       // The upstream's id.
	Name      string  `json:"name" example:"read_file"`          // The tool's name.
	Runs      int64   `json:"runs" example:"120"`                // The successful runs that used the tool.
	Rank      float64 `json:"rank" example:"0.8"`                // PageRank; the highest of all tools is 1.
	Community int     `json:"community" example:"2"`             // Number of the tool's group; -1 until it is computed.
}

// toolGraphEdge is a pair of tools of the graph.
type toolGraphEdge struct {
	From       string  `json:"from" example:"filesystem:read_file"`               // The tool that was used first.
	To         string  `json:"to" example:"memory:create_entities"`               // The tool that was used after it.
	Runs       int64   `json:"runs" example:"41"`                                 // The runs that used both.
	Confidence float64 `json:"confidence" example:"0.34" minimum:"0" maximum:"1"` // Share of the runs with one of the two tools that used both in this order.
}

// toolPath is the most confident path between two tools.
type toolPath struct {
	Path       []string        `json:"path" example:"filesystem:read_file,memory:create_entities"` // Ids of the tools from the first to the last.
	Edges      []toolGraphEdge `json:"edges"`                                                      // The edges between them.
	Confidence float64         `json:"confidence" example:"0.34"`                                  // Product of the confidences of the edges.
}

// maxGraph limits the tools of a graph.
const maxGraph = 5000

// getToolGraph returns the usage graph of tools.
//
//	@Summary		Get the graph of tools
//	@Description	Returns which tools were used in the same runs: runs of code, workflows, and consecutive calls of a session. The graph contains the tools that the token may call. `format=graphml` returns the same as GraphML, for programs such as Gephi.
//	@Param			limit	query	int		false	"Maximum number of tools, those of the highest rank"	minimum(1)	maximum(5000)	default(500)
//	@Param			format	query	string	false	"Format of the graph"	enums(json,graphml)	default(json)
//	@Success		200	{object}	toolGraph	"The graph"
func (s *Server) getToolGraph(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "limit", "format")
	limit, format := q.Int("limit", 1, maxGraph, 500), q.Enum("format", "json", "json", "graphml")
	if err := q.Err(); err != nil {
		return err
	}
	u, err := s.core.Tools.UsageGraph(r.Context(), caller(r), limit)
	if err != nil {
		return err
	}
	g := toolGraph{views(u.Nodes, newToolGraphNode), views(u.Edges, newToolGraphEdge), u.Total, u.Communities, u.Density, u.At}
	if format == "graphml" {
		w.Header().Set("Content-Disposition", `attachment; filename="tools.graphml"`)
		s.writeBody(w, r, http.StatusOK, 0, "application/graphml+xml", graphML(g))
		return nil
	}
	return s.writeJSON(w, r, g)
}

func newToolGraphNode(n toolsearch.UsageNode) toolGraphNode {
	server, name, _ := strings.Cut(n.ID, ":")
	return toolGraphNode{n.ID, server, name, n.Runs, n.Rank, n.Community}
}

func newToolGraphEdge(e toolsearch.UsageEdge) toolGraphEdge {
	return toolGraphEdge{e.From, e.To, e.Runs, e.Confidence}
}

// graphML returns a graph as GraphML (http://graphml.graphdrawing.org).
func graphML(g toolGraph) []byte {
	text := func(s string) string {
		var b bytes.Buffer
		_ = xml.EscapeText(&b, []byte(s)) // a buffer does not fail
		return b.String()
	}
	out := []byte(xml.Header + `<graphml xmlns="http://graphml.graphdrawing.org/xmlns">` + "\n")
	for _, k := range [][3]string{{"server", "node", "string"}, {"runs", "node", "long"}, {"rank", "node", "double"}, {"community", "node", "int"}, {"edge_runs", "edge", "long"}, {"confidence", "edge", "double"}} {
		out = fmt.Appendf(out, "<key id=%q for=%q attr.name=%q attr.type=%q/>\n", k[0], k[1], strings.TrimPrefix(k[0], "edge_"), k[2])
	}
	out = append(out, "<graph id=\"tools\" edgedefault=\"directed\">\n"...)
	for _, n := range g.Nodes {
		out = fmt.Appendf(out, "<node id=\"%s\"><data key=\"server\">%s</data><data key=\"runs\">%d</data><data key=\"rank\">%g</data><data key=\"community\">%d</data></node>\n", text(n.ID), text(n.Server), n.Runs, n.Rank, n.Community)
	}
	for _, e := range g.Edges {
		out = fmt.Appendf(out, "<edge source=\"%s\" target=\"%s\"><data key=\"edge_runs\">%d</data><data key=\"confidence\">%g</data></edge>\n", text(e.From), text(e.To), e.Runs, e.Confidence)
	}
	return append(out, "</graph>\n</graphml>\n"...)
}

// getToolPath returns the most confident path between two tools.
//
//	@Summary		Find a path between tools
//	@Description	Returns the tools between two tools of the graph so that the product of the confidences of the edges is the highest. A path uses edges in both directions.
//	@Param			from	query	string	true	"Id of the first tool"	maxlength(256)	example(filesystem:read_file)
//	@Param			to		query	string	true	"Id of the last tool"	maxlength(256)	example(memory:create_entities)
//	@Success		200	{object}	toolPath	"The path"
//	@Failure		404	"A tool is not in the graph, or no path connects the tools"
func (s *Server) getToolPath(r request) (any, error) {
	q := newQuery(r.Request, "from", "to")
	ends := [2]string{}
	for i, name := range []string{"from", "to"} {
		if ends[i] = orZero(q.OptString(name, 256)); ends[i] == "" {
			q.Fail(name, "required", "%s must be the id of a tool", name)
		}
	}
	if err := q.Err(); err != nil {
		return nil, err
	}
	u, err := s.core.Tools.UsageGraph(r.Context(), r.caller, maxGraph)
	if err != nil {
		return nil, err
	}
	for _, id := range ends {
		if !slices.ContainsFunc(u.Nodes, func(n toolsearch.UsageNode) bool { return n.ID == id }) {
			return nil, errs.New(errs.NotFound, "the graph has no tool %q; it contains the tools that were used in a run with others and that the token may call", id)
		}
	}
	edges, confidence, ok := u.Path(ends[0], ends[1])
	if !ok {
		return nil, errs.New(errs.NotFound, "no path of tools that were used together connects %q and %q", ends[0], ends[1])
	}
	out := toolPath{Path: []string{ends[0]}, Edges: views(edges, newToolGraphEdge), Confidence: confidence}
	for _, e := range edges {
		out.Path = append(out.Path, e.To)
	}
	return out, nil
}
