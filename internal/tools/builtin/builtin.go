// Package builtin has comet's own tools: they search tools, run code and execute workflows (AgentCards,
// “Meta-Tools”), and submit tasks to agents. To the package tools they are tools like any other.
package builtin

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
	"comet/models"
)

// Register adds comet's own tools to d.Tools, of which a client sees the listed ones first.
func Register(d Dependencies) {
	b := &builtins{d}
	if b.Clock == nil {
		b.Clock = time.Now
	}
	all := []tools.Builtin{
		{
			Server: agentCardsServer, Class: models.ToolRead, Gateway: true, Finder: true, Execute: b.searchTools,
			Definition: &mcp.Tool{
				Name: searchToolName, Title: "Search tools", InputSchema: json.RawMessage(searchSchema),
				Description: "Finds tools by a description of what you want to do, in English or French. Call a tool by the returned name, or use it in agentcards:execute_code. include_stubs adds TypeScript declarations of their arguments.",
				Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)},
			},
		},
		{
			Server: agentCardsServer, Class: models.ToolDestructive, Gateway: true, Execute: b.executeCode,
			Definition: &mcp.Tool{
				Name: "execute_code", Title: "Execute code", InputSchema: json.RawMessage(codeSchema),
				Description: "Runs TypeScript or JavaScript in a sandbox without network and files. Tools are functions, await server.tool({…}), for the servers that the code names or the intent finds. A single expression is returned; several statements need return. Use it to combine several tools and keep intermediate results out of the conversation.",
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
			},
		},
		{
			Server: cometServer, Class: models.ToolDestructive, Scope: models.ScopeMessagesSend, Execute: b.submitTask,
			Definition: &mcp.Tool{
				Name: "submit_task", Title: "Submit a task", InputSchema: json.RawMessage(taskSchema),
				Description: "Submits a task to an agent with the required capabilities, or to a named agent, and waits for its result. A task that takes longer than wait_seconds continues; comet:task_status returns its state by the returned task_id.",
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(true)},
			},
		},
		{
			Server: cometServer, Class: models.ToolRead, Hidden: true, Execute: b.taskStatus,
			Definition: &mcp.Tool{
				Name: "task_status", Title: "Get a task's status", InputSchema: json.RawMessage(statusSchema),
				Description: "Returns the state of a submitted task, and its result when it has ended. Waits up to wait_seconds for the end.",
				Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)},
			},
		},
		{
			Server: cometServer, Class: models.ToolWrite, Hidden: true, Scope: models.ScopeMessagesSend, Execute: b.replyToTask,
			Definition: &mcp.Tool{
				Name: "reply_task", Title: "Reply to a task's question", InputSchema: json.RawMessage(replySchema),
				Description: "Replies to a question of the agent that works on a task, and waits for the result.",
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)},
			},
		},
		{
			Server: cometServer, Class: models.ToolWrite, Hidden: true, Scope: models.ScopeMessagesSend, Execute: b.cancelTask,
			Definition: &mcp.Tool{
				Name: "cancel_task", Title: "Cancel a task", InputSchema: json.RawMessage(cancelSchema),
				Description: "Cancels a submitted task.",
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)},
			},
		},
	}
	d.Tools.Register(slices.Insert(all, 2, b.workflowTools()...)) // after the other tools of AgentCards
}
