package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
	"comet/models"
)

// builtinTools returns comet's own tools. The listed ones are what a client sees instead of all
// other tools.
func (svc *Service) builtinTools() []*tool {
	yes, no := true, false
	tools := []*tool{
		builtin(agentCardsServer, searchToolName, models.ToolRead, &mcp.Tool{
			Title: "Search tools", InputSchema: json.RawMessage(searchSchema),
			Description: "Finds tools by a description of what you want to do, in English or French. Call a tool by the returned name, or use it in agentcards:execute_code. include_stubs adds TypeScript declarations of their arguments.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, svc.searchTools),
		builtin(agentCardsServer, "execute_code", models.ToolDestructive, &mcp.Tool{
			Title: "Execute code", InputSchema: json.RawMessage(codeSchema),
			Description: "Runs TypeScript or JavaScript in a sandbox without network and files. Tools are functions, await server.tool({…}), for the servers that the code names or the intent finds. A single expression is returned; several statements need return. Use it to combine several tools and keep intermediate results out of the conversation.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
		}, svc.executeCode),
		builtin(cometServer, "submit_task", models.ToolDestructive, &mcp.Tool{
			Title: "Submit a task", InputSchema: json.RawMessage(taskSchema),
			Description: "Submits a task to an agent with the required capabilities, or to a named agent, and waits for its result. A task that takes longer than wait_seconds continues; comet:task_status returns its state by the returned task_id.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
		}, svc.submitTask).requireScope(models.ScopeMessagesSend),
		builtin(cometServer, "task_status", models.ToolRead, &mcp.Tool{
			Title: "Get a task's status", InputSchema: json.RawMessage(statusSchema),
			Description: "Returns the state of a submitted task, and its result when it has ended. Waits up to wait_seconds for the end.",
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no},
		}, svc.taskStatus).hide(),
		builtin(cometServer, "answer_task", models.ToolWrite, &mcp.Tool{
			Title: "Answer a task's question", InputSchema: json.RawMessage(answerSchema),
			Description: "Replies to a question of the agent that works on a task, and waits for the result.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
		}, svc.answerTask).hide().requireScope(models.ScopeMessagesSend),
		builtin(cometServer, "cancel_task", models.ToolWrite, &mcp.Tool{
			Title: "Cancel a task", InputSchema: json.RawMessage(cancelSchema),
			Description: "Cancels a submitted task.",
			Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
		}, svc.cancelTask).hide().requireScope(models.ScopeMessagesSend),
	}
	for i, t := range tools {
		t.rank = i
		t.listed = svc.opts.Names.listed(t.server, t.name)
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

// indexBuiltinTools adds comet's own tools to the search index, except the search itself.
func (svc *Service) indexBuiltinTools() {
	list := map[string][]*tool{}
	for _, t := range svc.builtins {
		if t.name != searchToolName {
			list[t.server] = append(list[t.server], t)
		}
	}
	for server, tools := range list {
		svc.index.Replace(server, indexEntries(tools))
	}
}

// connectedServers returns a sentence with the servers whose tools a caller may see, because
// models do not search for tools of servers they do not know (ADR-013 of AgentCards lists only
// these tools).
func connectedServers(visible []*tool) string {
	var servers []string
	for _, t := range visible {
		if t.builtin == nil && (len(servers) == 0 || servers[len(servers)-1] != t.server) {
			servers = append(servers, t.server)
		}
	}
	if len(servers) == 0 {
		return " No server is connected."
	}
	const most = 40
	more := ""
	if len(servers) > most {
		more = fmt.Sprintf(" and %d more", len(servers)-most)
		servers = servers[:most]
	}
	return " Connected servers: " + strings.Join(servers, ", ") + more + "."
}

// badParameters returns an error for invalid input of one of comet's own tools: INVALID_PARAMS
// (AgentCards, “Codes d'erreur”).
func badParameters(format string, args ...any) *Error {
	e := newRefusal(CodeInvalidArguments, format, args...)
	e.InvalidParameters = true
	return e
}

// decodeArguments decodes the input of one of comet's own tools and rejects unknown members.
func (c *call) decodeArguments(v any) error {
	if err := input.DecodeJSON(c.args, v); err != nil {
		return badParameters("%s: %s", c.tool.id, detailOf(err))
	}
	return nil
}

// jsonResult returns a result of comet's own tools: JSON, as text and as structured content.
func jsonResult(v any) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text)}, nil
}
