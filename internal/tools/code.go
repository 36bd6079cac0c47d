package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/sandbox"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
)

// codeSchema is the input schema of agentcards:execute_code (AgentCards,
// “agentcards:execute_code”).
const codeSchema = `{"type":"object","properties":{
"code":{"type":"string","maxLength":102400,"description":"TypeScript or JavaScript; await works everywhere"},
"intent":{"type":"string","maxLength":2000,"description":"The purpose of the code; matching tools become available"},
"context":{"type":"object","description":"Data for the code, as context and as globals"},
"sandbox_config":{"type":"object","properties":{
"timeout":{"type":"number","description":"Milliseconds, default 30000"},
"memoryLimit":{"type":"number","description":"MB, default 512"},
"allowedReadPaths":{"type":"array","items":{"type":"string"},"description":"Paths for readTextFile, within those that the server allows"}},
"additionalProperties":false}},
"required":["code"],"additionalProperties":false}`

// intentTools is how many tools an intent finds; all tools of their servers become available.
const intentTools = 10

// CodeRun is the input of agentcards:execute_code.
type CodeRun struct {
	Code          string          `json:"code"`
	Intent        string          `json:"intent"`
	Context       json.RawMessage `json:"context" swaggertype:"object"`
	SandboxConfig *SandboxConfig  `json:"sandbox_config"`
}

// SandboxConfig are the options of a run (AgentCards, “Options sandbox_config”).
type SandboxConfig struct {
	Timeout          *float64 `json:"timeout"`     // Milliseconds.
	MemoryLimit      *float64 `json:"memoryLimit"` // MiB.
	AllowedReadPaths []string `json:"allowedReadPaths"`
}

// CodeResult is the output of agentcards:execute_code.
type CodeResult struct {
	Result  json.RawMessage `json:"result" swaggertype:"object"`
	Logs    []sandbox.Log   `json:"logs"`
	Metrics CodeMetrics     `json:"metrics"`
}

// CodeMetrics are the resources that a run used.
type CodeMetrics struct {
	ExecutionTimeMS float64 `json:"execution_time_ms" example:"12.3"`
	MemoryUsedMB    float64 `json:"memory_used_mb" example:"45"`
	CPUTimeMS       float64 `json:"cpu_time_ms" example:"8.1"`
	ToolCalls       int     `json:"tool_calls" example:"2"`
}

func metricsOf(m sandbox.Metrics) CodeMetrics {
	ms := func(d time.Duration) float64 { return rounded(float64(d.Microseconds()) / 1000) }
	return CodeMetrics{ms(m.Execution), rounded(m.MemoryMB), ms(m.CPU), m.ToolCalls}
}

// executeCode executes agentcards:execute_code.
func (svc *Service) executeCode(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var r CodeRun
	if err := c.decodeArguments(&r); err != nil {
		return nil, err
	}
	req, err := svc.sandboxRequest(ctx, c, r)
	if err != nil {
		return nil, err
	}
	seen := &toolsUsed{}
	req.Call = svc.callInCode(c, seen)
	out, err := svc.sandbox.Run(ctx, req)
	var failed *sandbox.Failure
	switch {
	case errors.As(err, &failed):
		return nil, svc.explainUndefined(c, r.Code, codeError(failed))
	case err != nil:
		return nil, err
	}
	if used := seen.list(); len(used) > 1 {
		svc.recordRun(used)
	}
	logs := out.Logs
	if logs == nil {
		logs = []sandbox.Log{}
	}
	return jsonResult(CodeResult{Result: out.Value, Logs: logs, Metrics: metricsOf(out.Metrics)})
}

// explainUndefined adds to the error of an undefined name which servers of the code are not
// ready.
func (svc *Service) explainUndefined(c *call, code string, failed *Error) *Error {
	if !strings.Contains(failed.Message, "is not defined") {
		return failed
	}
	for _, s := range svc.upstreams.Servers() {
		if s.State != upstream.Ready && c.policy.allowsServer(s.ID) && mentionsServer(code, s.ID) {
			failed.Message += fmt.Sprintf("; the MCP server %q is %s: %s", s.ID, s.State, orElse(s.Error, "it has not started yet"))
		}
	}
	return failed
}

// sandboxRequest returns the request for the sandbox.
func (svc *Service) sandboxRequest(ctx context.Context, c *call, r CodeRun) (sandbox.Request, error) {
	out := sandbox.Request{Code: r.Code, Context: r.Context}
	if strings.TrimSpace(r.Code) == "" {
		return out, badParameters("code must not be empty")
	}
	if len(r.Context) > 0 && strings.TrimLeft(string(r.Context), " \t\r\n")[0] != '{' && string(r.Context) != "null" {
		return out, badParameters("context must be an object, not %s", clip(string(r.Context)))
	}
	if string(r.Context) == "null" {
		out.Context = nil
	}
	if s := r.SandboxConfig; s != nil {
		out.ReadPaths = s.AllowedReadPaths
		if s.Timeout != nil {
			if most := float64((24 * time.Hour).Milliseconds()); !(*s.Timeout >= 1 && *s.Timeout <= most) {
				return out, badParameters("sandbox_config.timeout must be 1 to %.0f milliseconds, not %.0f", most, *s.Timeout)
			}
			out.Timeout = time.Duration(*s.Timeout * float64(time.Millisecond))
		}
		if s.MemoryLimit != nil {
			if !(*s.MemoryLimit >= 1 && *s.MemoryLimit <= 1<<20) {
				return out, badParameters("sandbox_config.memoryLimit must be 1 to %d MB, not %.0f", 1<<20, *s.MemoryLimit)
			}
			out.MemoryMB = int(*s.MemoryLimit)
		}
	}
	var err error
	out.Tools, err = svc.availableTools(ctx, c, r)
	return out, err
}

// availableTools returns the tools that code can call: all tools of the servers that the code
// names, and of the servers whose tools its intent finds.
func (svc *Service) availableTools(ctx context.Context, c *call, r CodeRun) ([]sandbox.Tool, error) {
	all := svc.catalogue.Load()
	wanted := map[string]bool{}
	for _, id := range append(slices.Clone(all.servers), cometServer) {
		if mentionsServer(r.Code, id) {
			wanted[id] = true
		}
	}
	if r.Intent != "" {
		answer, err := svc.index.Search(ctx, toolsearch.Query{Text: r.Intent, Limit: intentTools, Allowed: func(id string) bool {
			t := all.find(id)
			return t != nil && t.server != agentCardsServer && t.visibleTo(c.policy)
		}})
		if err != nil {
			return nil, badParameters("intent: %s", detailOf(err))
		}
		for _, hit := range answer.Hits {
			wanted[all.find(hit.ID).server] = true
		}
	}
	var out []sandbox.Tool
	for _, t := range all.all {
		if wanted[t.server] && t.server != agentCardsServer && t.visibleTo(c.policy) {
			out = append(out, sandbox.Tool{Server: t.server, Name: t.name})
		}
	}
	return out, nil
}

// mentionsServer reports whether code may use a server, under its id or without hyphens and
// underscores.
func mentionsServer(code, id string) bool {
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(id))
	return strings.Contains(strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(code)), plain)
}

// callInCode returns the function that calls tools for code. Each call is authorised, charged and
// recorded on its own.
func (svc *Service) callInCode(c *call, seen *toolsUsed) func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
	by := c.by
	by.Source, by.Parent = SourceCode, c.id
	return func(ctx context.Context, server, name string, args json.RawMessage) (json.RawMessage, error) {
		res, err := svc.Call(ctx, by, toolID(server, name), args, &CallOptions{Elicit: c.opts.Elicit})
		if err != nil {
			return nil, err
		}
		value, err := valueOf(res)
		if err == nil {
			seen.add(toolID(server, name))
		}
		return value, err
	}
}

// valueOf returns a tool's result as code receives it: the structured content, or the text,
// decoded where it is JSON; several contents are a list. An error of the tool is thrown.
func valueOf(res *mcp.CallToolResult) (json.RawMessage, error) {
	if res.IsError {
		var texts []string
		for _, c := range res.Content {
			if t, ok := c.(*mcp.TextContent); ok {
				texts = append(texts, t.Text)
			}
		}
		return nil, errors.New(orElse(strings.Join(texts, "\n"), "the tool failed without a message"))
	}
	if res.StructuredContent != nil {
		return json.Marshal(res.StructuredContent)
	}
	if len(res.Content) != 1 {
		return json.Marshal(res.Content)
	}
	t, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		return json.Marshal(res.Content[0])
	}
	if text := strings.TrimSpace(t.Text); text != "" && strings.ContainsAny(text[:1], `{["`) && json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	return json.Marshal(t.Text)
}

// codeError returns the error of code that failed.
func codeError(f *sandbox.Failure) *Error {
	out := newFailure(f.Name, "%s", f.Message)
	logs := f.Logs
	if logs == nil {
		logs = []sandbox.Log{}
	}
	out.Details = map[string]any{"logs": logs, "metrics": metricsOf(f.Metrics)}
	if f.Line > 0 {
		out.Details["line"], out.Details["column"] = f.Line, f.Column
	}
	if f.Stack != "" {
		out.Details["stack"] = f.Stack
	}
	return out
}

// toolsUsed are the tools that a run called successfully, each once, in order.
type toolsUsed struct {
	mu  sync.Mutex
	ids []string
}

func (u *toolsUsed) add(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.ids, id) && len(u.ids) < 50 {
		u.ids = append(u.ids, id)
	}
}

func (u *toolsUsed) list() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.ids)
}
