package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/telemetry"
	"comet/internal/tools"
	"comet/models"
)

// decodeValid reads a JSON body into v and checks its fields.
func (s *Server) decodeValid(w http.ResponseWriter, r *http.Request, v any) error {
	if _, err := s.decode(w, r, v); err != nil {
		return err
	}
	return input.Validate(v).Err()
}

// toolView is a tool that can be called.
type toolView struct {
	ID          string           `json:"id" example:"filesystem:read_file"`
	Server      string           `json:"server" example:"filesystem"`
	Name        string           `json:"name" example:"read_file"`
	Listed      string           `json:"listed_name" example:"filesystem__read_file"` // What tools/list calls it.
	Title       string           `json:"title,omitempty" example:"Read File"`
	Description string           `json:"description" example:"Read the complete contents of a file"`
	Class       models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	InputSchema any              `json:"input_schema"` // JSON Schema of its arguments.
}

// toolList is one page of tools.
type toolList struct {
	Tools      []toolView `json:"tools"`
	NextCursor string     `json:"next_cursor,omitempty" example:"ZmlsZXN5c3RlbTpyZWFkX2ZpbGU"` // Absent on the last page.
}

// listTools lists the tools that the caller may call.
//
//	@Summary		List tools
//	@Description	The tools of all upstreams and comet's own, comet's first and then in the order of their ids, that the token may call.
//	@ID				listTools
//	@Tags			tools
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			server			query	string	false	"Only those of this upstream"	maxlength(64)	example(filesystem)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(400)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	toolList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/tools [get]
func (s *Server) listTools(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "server", "limit", "cursor")
	server, limit := orZero(q.OptString("server", models.MaxIDLength)), q.Int("limit", 1, maxLimit, defaultLimit)
	after, sent := q.cursorOf(400)
	if sent && !tools.IsPosition(after) {
		q.failCursor()
	}
	if err := q.Err(); err != nil {
		return err
	}
	list, err := s.tools.Tools(r.Context(), caller(r), server, after, limit+1)
	if err != nil {
		return err
	}
	page := toolList{Tools: []toolView{}}
	if len(list) > limit {
		list = list[:limit]
		page.NextCursor = encodeCursor(list[limit-1].Position)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	for _, t := range list {
		page.Tools = append(page.Tools, toolView{
			ID: t.ID, Server: t.Server, Name: t.Name, Listed: t.ListedName, Title: t.Title, Description: t.Description, Class: t.Class, InputSchema: t.InputSchema,
		})
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// searchTools finds tools.
//
//	@Summary		Search tools
//	@Description	Finds the tools that can do what `query` says, in English or French: what `agentcards:search_tools` does over MCP. It is a call of that tool: the policy of the token decides, it is charged, and the audit trail keeps it.
//	@ID				searchTools
//	@Tags			tools
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			body	body	tools.SearchQuery	true	"What is looked for"
//	@Success		200	{object}	tools.SearchResult	"What was found, the best first"
//	@Failure		400	"The query is empty or a field out of range"
//	@Router			/api/v1/tools/search [post]
func (s *Server) searchTools(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var q tools.SearchQuery
	if _, err := s.decode(w, r, &q); err != nil {
		return err
	}
	found, err := s.tools.Search(r.Context(), toolCaller(r), q)
	if err != nil {
		return toolProblem(err)
	}
	return s.writeJSON(w, r, http.StatusOK, found)
}

// toolCaller returns the caller of a tool.
func toolCaller(r *http.Request) tools.Caller {
	return tools.Caller{Principal: caller(r), Source: tools.SourceREST, TraceID: telemetry.TraceID(traceparent(r))}
}

// toolCallDraft is a call of a tool.
type toolCallDraft struct {
	Tool      string          `json:"tool" validate:"required,max=256" example:"filesystem:read_file" maxLength:"256"` // Any of its names.
	Arguments *jsontext.Value `json:"arguments" swaggertype:"object" extensions:"x-nullable"`
	// How long it may take, at most; the upstream's own limit by default.
	TimeoutMS *int64 `json:"timeout_ms" validate:"omitnil,min=1,max=3600000" example:"10000" minimum:"1" maximum:"3600000" extensions:"x-nullable"`
}

// toolResult is what a tool answered.
type toolResult struct {
	Content []mcp.Content `json:"content" swaggertype:"array,object"`
	// Absent where the tool has none.
	StructuredContent any `json:"structured_content,omitempty"`
	// The tool itself says that it failed.
	IsError bool `json:"is_error" example:"false"`
}

// callTool calls a tool.
//
//	@Summary		Call a tool
//	@Description	Calls a tool by any of its names, comet's own too, as `tools/call` does over MCP: the policy of the token decides, the call is charged to the token's agent (or `nova`), and the audit trail keeps it. What the tool says of itself is 200, with `is_error` where it failed; what keeps it from being called is a problem whose `tool_error` is the code that MCP clients see.
//	@ID				callTool
//	@Tags			tools
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			body		body	toolCallDraft	true	"The call"
//	@Param			traceparent	header	string			false	"The W3C trace context the call belongs to"	example(00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01)
//	@Success		200	{object}	toolResult	"What the tool answered"
//	@Failure		400	"A field is missing or malformed, or the tool takes other arguments"
//	@Failure		404	"There is no such tool, or the token may not call it"
//	@Failure		422	"Code in the sandbox failed: `tool_error` says how"
//	@Failure		429	"The budget does not cover the call, or the token asks too often"
//	@Failure		502	"The upstream is down or failed, or was too slow: it may have done its work all the same"
//	@Failure		503	"The token ledger does not answer; nothing was called"
//	@Router			/api/v1/tools/call [post]
func (s *Server) callTool(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	var d toolCallDraft
	if err := s.decodeValid(w, r, &d); err != nil {
		return err
	}
	var args json.RawMessage
	if d.Arguments != nil {
		args = json.RawMessage(*d.Arguments)
	}
	opts := tools.CallOptions{}
	if d.TimeoutMS != nil {
		opts.Timeout = time.Duration(*d.TimeoutMS) * time.Millisecond
	}
	ctx, done := withoutTimeout(w, r) // it takes as long as the tool may
	res, err := s.tools.Call(ctx, toolCaller(r), d.Tool, args, &opts)
	done()
	if err != nil {
		return toolProblem(err)
	}
	content := res.Content
	if content == nil {
		content = []mcp.Content{}
	}
	return s.writeJSON(w, r, http.StatusOK, toolResult{Content: content, StructuredContent: res.StructuredContent, IsError: res.IsError})
}

// toolCallView is a line of the audit trail.
type toolCallView struct {
	ID      string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	At      time.Time `json:"at" example:"2026-01-10T15:30:00Z"`
	Source  string    `json:"source" enums:"mcp,rest,code,task" example:"mcp"` // Where it came in; code is code in the sandbox.
	TokenID string    `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8058"`
	Actor   string    `json:"actor" example:"claude-desktop"`
	AgentID string    `json:"agent_id" example:"finance-personal"` // Who paid.
	Tool    string    `json:"tool" example:"filesystem:read_file"`
	// The class it had then.
	Class           models.ToolClass   `json:"class,omitempty" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	ArgumentsDigest string             `json:"arguments_digest" example:"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"` // SHA-256.
	Outcome         models.ToolOutcome `json:"outcome" swaggertype:"string" enums:"success,error,refused" example:"success"`
	Error           string             `json:"error,omitempty" example:"MCP_SERVER_ERROR"`
	DurationMS      float64            `json:"duration_ms" example:"12.3"`
	Tokens          int64              `json:"tokens" example:"240"`                                               // Of arguments and result.
	ParentID        string             `json:"parent_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8056"` // The run of code that made it.
	TaskID          string             `json:"task_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8059"`
	TraceID         string             `json:"trace_id,omitempty" example:"4bf92f3577b34da6a3ce929d0e0e4736"`
}

// toolCallList is one page of the audit trail.
type toolCallList struct {
	Calls      []toolCallView `json:"calls"`
	NextCursor string         `json:"next_cursor,omitempty" example:"MDE4OTBhNWQ"` // Absent on the last page.
}

// listToolCalls shows who called what.
//
//	@Summary		List the calls of tools
//	@Description	The audit trail, the newest first: who called which tool, by a digest with what, how it ended and what it cost. Everybody's needs the scope `admin`; any other token sees its own.
//	@ID				listToolCalls
//	@Tags			tools
//	@Produce		json
//	@Security		BearerAuth[tools:call]
//	@Param			agent_id		query	string	false	"Only those this agent paid for"	maxlength(64)	example(finance-personal)
//	@Param			token_id		query	string	false	"Only those of this token"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8058)
//	@Param			server			query	string	false	"Only those of this upstream's tools"	maxlength(64)	example(filesystem)
//	@Param			tool			query	string	false	"Only those of tools with this name, or of one as server:tool"	maxlength(128)	example(read_file)
//	@Param			task_id			query	string	false	"Only those of this task"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8059)
//	@Param			parent_id		query	string	false	"Only those that this run of code made"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8056)
//	@Param			outcome			query	string	false	"Only those that ended so"	enums(success,error,refused)
//	@Param			limit			query	int		false	"Size of a page"	minimum(1)	maximum(1000)	default(100)
//	@Param			cursor			query	string	false	"Where the page begins, as given by the page before"	maxlength(100)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	toolCallList	"One page"
//	@Header			200	{string}	ETag
//	@Header			200	{string}	Link
//	@Success		304	"Nothing changed"
//	@Failure		400	"A parameter is unknown or out of range"
//	@Router			/api/v1/tools/calls [get]
func (s *Server) listToolCalls(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "agent_id", "token_id", "server", "tool", "task_id", "parent_id", "outcome", "limit", "cursor")
	text := func(name string, most int) string { return orZero(q.OptString(name, most)) }
	wanted := models.ToolCallQuery{
		AgentID: text("agent_id", models.MaxIDLength), TokenID: text("token_id", models.MaxIDLength), Server: text("server", models.MaxIDLength),
		Tool: text("tool", models.MaxToolName), TaskID: text("task_id", models.MaxIDLength), ParentID: text("parent_id", models.MaxIDLength),
		Outcome: models.ToolOutcome(q.Enum("outcome", "", "success", "error", "refused")), Before: q.idCursor(),
	}
	if server, tool, both := strings.Cut(wanted.Tool, ":"); both && wanted.Server == "" { // as it is shown
		wanted.Server, wanted.Tool = server, tool
	}
	limit := q.Int("limit", 1, maxLimit, defaultLimit)
	if err := q.Err(); err != nil {
		return err
	}
	wanted.Limit = limit + 1
	calls, err := s.tools.Calls(r.Context(), caller(r), wanted)
	if err != nil {
		return err
	}
	page := toolCallList{Calls: []toolCallView{}}
	if len(calls) > limit {
		calls = calls[:limit]
		page.NextCursor = encodeCursor(calls[limit-1].ID)
		w.Header().Set("Link", links(r, page.NextCursor))
	}
	for _, c := range calls {
		page.Calls = append(page.Calls, toolCallView{
			ID: c.ID, At: c.At, Source: c.Door, TokenID: c.TokenID, Actor: c.Actor, AgentID: c.AgentID, Tool: c.Server + ":" + c.Tool, Class: c.Class,
			ArgumentsDigest: c.Digest, Outcome: c.Outcome, Error: c.Error, DurationMS: float64(c.Duration.Microseconds()) / 1000, Tokens: c.Tokens,
			ParentID: c.ParentID, TaskID: c.TaskID, TraceID: c.TraceID,
		})
	}
	return s.writeJSON(w, r, http.StatusOK, page)
}

// toolProblem is an error of a call of a tool as this door tells it: a problem whose tool_error
// is the name that MCP clients see.
func toolProblem(err error) error {
	var e *tools.Error
	if !errors.As(err, &e) {
		return err
	}
	code := errs.CodeFailed
	switch {
	case e.Code == tools.CodeToolNotFound:
		code = errs.NotFound
	case e.Code == tools.CodeBudgetExceeded:
		code = errs.BudgetExceeded
	case e.Code == tools.CodePermissionDenied:
		code = errs.ToolDenied
	case e.Code == tools.CodeInvalidArguments:
		code = errs.InvalidRequest
	case e.Code == tools.CodeServerError:
		code = errs.UpstreamFailed
	case e.Code == tools.CodeUnavailable:
		code = errs.Unavailable
	case e.Code == tools.CodeInternal:
		code = errs.Internal
	case strings.HasSuffix(e.Code, "_BUSY"):
		code = errs.Busy
	}
	out := errs.New(code, "%s", e.Message).With("tool_error", e.Code)
	if at, ok := e.Details["reset_at"]; ok {
		_ = out.With("reset_at", at)
	}
	if len(e.Details) > 0 {
		_ = out.With("tool_details", e.Details)
	}
	return out
}

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
