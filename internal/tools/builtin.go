package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/strictjson"
	"comet/models"
)

// builtinTools are the tools that comet has itself. Those that are listed are what a client
// sees in the place of all others.
func (h *Service) builtinTools() []*tool {
	yes, no := true, false
	tools := []*tool{
		builtin(agentCardsServer, searchToolName, models.ToolRead, &mcp.Tool{
			Title: "Search tools", InputSchema: json.RawMessage(searchSchema),
			Description: "Finds the tools that can do what you describe, in your own words, in English or French. Call what it names by that name, or use it in agentcards:execute_code. include_stubs adds TypeScript declarations of their arguments.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, h.searchTools),
		builtin(agentCardsServer, "execute_code", models.ToolDestructive, &mcp.Tool{
			Title: "Execute code", InputSchema: json.RawMessage(codeSchema),
			Description: "Runs TypeScript or JavaScript in a sandbox without network and files. Tools are functions: await server.tool({…}), those of servers that the code names or that the intent finds. A single expression is returned; several statements need return. Use it to call several tools and keep what is between out of the conversation.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
		}, h.executeCode),
		builtin(cometServer, "submit_task", models.ToolDestructive, &mcp.Tool{
			Title: "Submit a task", InputSchema: json.RawMessage(taskSchema),
			Description: "Hands work to an agent of this system and waits for its result: to whoever offers the capabilities, or to one agent. Work that takes longer than wait_seconds goes on; comet:task_status tells of it by the task_id that is returned.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
		}, h.submitTask).requireScope(models.ScopeMessagesSend),
		builtin(cometServer, "task_status", models.ToolRead, &mcp.Tool{
			Title: "Get a task's status", InputSchema: json.RawMessage(statusSchema),
			Description: "How a task that was handed to an agent stands, and its result if it has ended; waits for that up to wait_seconds.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, h.taskStatus).hide(),
		builtin(cometServer, "answer_task", models.ToolWrite, &mcp.Tool{
			Title: "Answer a task's question", InputSchema: json.RawMessage(answerSchema),
			Description: "Answers what the agent asked back that works on a task, and waits for its result.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
		}, h.answerTask).hide().requireScope(models.ScopeMessagesSend),
		builtin(cometServer, "cancel_task", models.ToolWrite, &mcp.Tool{
			Title: "Cancel a task", InputSchema: json.RawMessage(cancelSchema),
			Description: "Ends a task that was handed to an agent.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
		}, h.cancelTask).hide().requireScope(models.ScopeMessagesSend),
	}
	for i, t := range tools {
		t.rank = i
		t.listed = h.opts.Names.listed(t.server, t.name)
	}
	return tools
}

func builtin(server, name string, class models.ToolClass, d *mcp.Tool, do func(context.Context, *call) (*mcp.CallToolResult, error)) *tool {
	d.Name = name
	return &tool{id: toolID(server, name), server: server, name: name, def: d, class: class, builtin: do}
}

func (t *tool) hide() *tool {
	t.hidden = true
	return t
}

func (t *tool) requireScope(scope models.Scope) *tool {
	t.scope = scope
	return t
}

// indexBuiltinTools has comet's own tools found too, but for the one that finds others: who asks
// it has it.
func (h *Service) indexBuiltinTools() {
	list := map[string][]*tool{}
	for _, t := range h.builtins {
		if t.name != searchToolName {
			list[t.server] = append(list[t.server], t)
		}
	}
	for server, tools := range list {
		h.index.Replace(server, indexEntries(tools))
	}
}

// connectedServers says which servers there are tools of that a caller may see. A client that is not told
// does not look for them (ADR-013 of the document lists nothing else).
func connectedServers(visible []*tool) string {
	var servers []string
	for _, t := range visible {
		if t.builtin == nil && (len(servers) == 0 || servers[len(servers)-1] != t.server) {
			servers = append(servers, t.server)
		}
	}
	if len(servers) == 0 {
		return " No server is connected at the moment."
	}
	const most = 40
	more := ""
	if len(servers) > most {
		more = fmt.Sprintf(" and %d more", len(servers)-most)
		servers = servers[:most]
	}
	return " Connected servers: " + strings.Join(servers, ", ") + more + "."
}

// badParameters are arguments of a tool of comet's own that make no sense: INVALID_PARAMS
// (AgentCards, “Codes d'erreur”).
func badParameters(format string, args ...any) *Error {
	e := newRefusal(CodeInvalidArguments, format, args...)
	e.InvalidParameters = true
	return e
}

// decodeArguments decodes what a tool of comet's own was given. It is strict: a member that is not
// known was meant to do something.
func (c *call) decodeArguments(v any) error {
	if err := strictjson.Decode(c.args, v); err != nil {
		return badParameters("%s: %s", c.tool.id, detailOf(err))
	}
	return nil
}

// answer is the result of a tool of comet's own: JSON, as text and as structured content.
func jsonResult(v any) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, nil
}
