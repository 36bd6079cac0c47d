package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/sandbox"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/upstream"
)

// codeSchema is the input schema of the tool (AgentCards, “agentcards:execute_code”).
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
func (b *builtins) executeCode(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var r CodeRun
	if err := c.Decode(&r); err != nil {
		return nil, err
	}
	req, err := b.sandboxRequest(ctx, c, r)
	if err != nil {
		return nil, err
	}
	used := &toolsUsed{}
	req.Call = b.callInCode(c, used)
	out, err := b.Sandbox.Run(ctx, req)
	var failed *sandbox.Failure
	switch {
	case errors.As(err, &failed):
		return nil, b.explainUndefined(ctx, c, r.Code, codeError(failed))
	case err != nil:
		return nil, err
	}
	b.Tools.RecordRun(used.ids) // no call is in progress any more
	return jsonResult(CodeResult{Result: out.Value, Logs: append([]sandbox.Log{}, out.Logs...), Metrics: metricsOf(out.Metrics)})
}

// explainUndefined adds to the error of an undefined name which servers are not ready.
func (b *builtins) explainUndefined(ctx context.Context, c *tools.Invocation, code string, failed *errs.Error) *errs.Error {
	if !strings.Contains(failed.Detail, "is not defined") {
		return failed
	}
	servers, err := b.Tools.Upstreams(ctx, c.Caller.Principal)
	if err != nil {
		return failed
	}
	for _, s := range servers {
		if s.State != upstream.Ready && mentionsServer(code, s.ID) {
			failed.Detail += "; " + tools.Unready(s)
		}
	}
	return failed
}

func (b *builtins) sandboxRequest(ctx context.Context, c *tools.Invocation, r CodeRun) (sandbox.Request, error) {
	out := sandbox.Request{Code: r.Code, Context: r.Context}
	if strings.TrimSpace(r.Code) == "" {
		return out, c.Invalid("code must not be empty")
	}
	switch text := strings.TrimSpace(string(r.Context)); {
	case text == "null":
		out.Context = nil
	case text != "" && text[0] != '{':
		return out, c.Invalid("context must be an object, not %s", input.Clip(text))
	}
	if s := r.SandboxConfig; s != nil {
		out.ReadPaths = s.AllowedReadPaths
		if s.Timeout != nil {
			if most := float64((24 * time.Hour).Milliseconds()); !(*s.Timeout >= 1 && *s.Timeout <= most) {
				return out, c.Invalid("sandbox_config.timeout must be 1 to %.0f milliseconds, not %.0f", most, *s.Timeout)
			}
			out.Timeout = time.Duration(*s.Timeout * float64(time.Millisecond))
		}
		if s.MemoryLimit != nil {
			if !(*s.MemoryLimit >= 1 && *s.MemoryLimit <= 1<<20) {
				return out, c.Invalid("sandbox_config.memoryLimit must be 1 to %d MB, not %.0f", 1<<20, *s.MemoryLimit)
			}
			out.MemoryMB = int(*s.MemoryLimit)
		}
	}
	var err error
	out.Tools, err = b.availableTools(ctx, c, r)
	return out, err
}

// availableTools returns the tools that code can call: all tools of the servers that the code
// names, and of the servers whose tools its intent finds.
func (b *builtins) availableTools(ctx context.Context, c *tools.Invocation, r CodeRun) ([]sandbox.Tool, error) {
	wanted := map[string]bool{}
	if r.Intent != "" {
		found, err := b.Index.Search(ctx, toolsearch.Query{Text: r.Intent, Limit: intentTools, Allowed: func(id string) bool {
			t := c.Find(id)
			return t != nil && !t.IsGateway()
		}})
		if err != nil {
			return nil, c.Invalid("intent: %s", tools.Detail(err))
		}
		for _, hit := range found.Hits {
			wanted[c.Find(hit.ID).Server] = true
		}
	}
	var out []sandbox.Tool
	named := map[string]bool{}
	for _, t := range c.Visible() {
		if _, known := named[t.Server]; !known {
			named[t.Server] = mentionsServer(r.Code, t.Server)
		}
		if !t.IsGateway() && (wanted[t.Server] || named[t.Server]) {
			out = append(out, sandbox.Tool{Server: t.Server, Name: t.Name})
		}
	}
	return out, nil
}

// mentionsServer reports whether code may use a server, also without hyphens and underscores.
func mentionsServer(code, id string) bool {
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(id))
	return strings.Contains(strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(code)), plain)
}

// callInCode returns the function that calls tools for code, each authorised, charged and recorded.
func (b *builtins) callInCode(c *tools.Invocation, used *toolsUsed) func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
	by := c.Caller
	by.Source, by.Parent = tools.SourceCode, c.ID
	return func(ctx context.Context, server, name string, args json.RawMessage) (json.RawMessage, error) {
		res, err := b.Tools.Call(ctx, by, server+":"+name, args, &tools.CallOptions{Can: c.Options.Can, Ask: c.Options.Ask})
		if err != nil && tools.ErrorName(err) != "" {
			return nil, errors.New(tools.ErrorText(err))
		}
		if err != nil {
			return nil, err
		}
		value, err := tools.Value(res)
		if err == nil {
			used.add(server + ":" + name)
		}
		return value, err
	}
}

func codeError(f *sandbox.Failure) *errs.Error {
	code := errs.CodeFailed
	if strings.HasSuffix(f.Name, "_BUSY") {
		code = errs.Busy
	}
	details := map[string]any{"logs": append([]sandbox.Log{}, f.Logs...), "metrics": metricsOf(f.Metrics)}
	if f.Line > 0 {
		details["line"], details["column"] = f.Line, f.Column
	}
	if f.Stack != "" {
		details["stack"] = f.Stack
	}
	return tools.WithDetails(tools.NewError(code, f.Name, "%s", f.Message), details)
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
