package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// Limits that are not configurable.
const (
	minTimeout   = time.Millisecond
	minMemoryMB  = 16
	maxResult    = 1 << 20 // bytes of the result, and of the arguments of a call, as JSON
	maxContext   = 8 << 20 // bytes of JSON
	maxResponse  = 8 << 20 // bytes of a tool's result, as JSON
	maxFile      = 4 << 20 // bytes of a file
	maxTools     = 20_000
	maxPaths     = 100
	maxLogs      = 1000     // messages
	maxLogBytes  = 64 << 10 // bytes of all messages
	maxToolCalls = 1000     // tool calls and file reads together
	maxMessage   = 8 << 10
	// maxConcurrentCalls is how many calls of a run are in progress at once; others are queued.
	maxConcurrentCalls = 16
)

// MaxCode is the longest code of a request, in bytes (AgentCards, limits).
const MaxCode = 102_400

// Tool is a tool that the code may call as server.name(args) and mcp.server.name(args), by its
// exact name, in camelCase and in snake_case.
type Tool struct {
	Server string `json:"server"`
	Name   string `json:"name"`
}

// Request is code and what it may use.
type Request struct {
	Code string
	// Context is a JSON object of at most 8 MiB; nil is an empty one.
	Context json.RawMessage
	// Timeout is wall-clock time from when a child receives the code; 0 for Options.Timeout.
	Timeout time.Duration
	// MemoryMB is the memory of the engine in MiB; 0 for Options.MemoryMB.
	MemoryMB int
	// ReadPaths are the directories and files that may be read, with everything below them. Each
	// must be within a path of Options.ReadPaths or contain one.
	ReadPaths []string
	Tools     []Tool
	// Call calls a tool, up to 16 at once. Arguments and result are JSON; the result has at most
	// 8 MiB. An error is thrown in the code as an exception with its text. The context ends with
	// the run; Call must return soon after, because Run waits for it.
	Call func(ctx context.Context, server, tool string, args json.RawMessage) (json.RawMessage, error)
}

// Result is the result of a run.
type Result struct {
	Value   json.RawMessage
	Logs    []Log
	Metrics Metrics
}

// Log is one call of a console function. The last entry reports that output was omitted.
type Log struct {
	Level   string `json:"level"` // log, info, warn, error, debug
	Message string `json:"message"`
}

// Metrics are the resources that a run used.
type Metrics struct {
	// Execution is wall-clock time from when a child received the code.
	Execution time.Duration
	// CPU is the processor time of all threads of the child during that. On systems that cannot
	// measure a running process, it includes the start of the child.
	CPU time.Duration
	// MemoryMB is the peak resident memory of the child in MiB, its program included; 0 where it is
	// unknown.
	MemoryMB float64
	// ToolCalls is the number of calls of Request.Call.
	ToolCalls int
	// Warm is true where a child was ready for the run.
	Warm bool
}

// validate sets defaults and rejects a request over a limit.
func (req *Request) validate(opts *Options) *Failure {
	if len(req.Code) > MaxCode {
		return &Failure{Name: CodeTooLarge, Message: fmt.Sprintf("the code has %d bytes, at most %d are allowed", len(req.Code), MaxCode)}
	}
	req.Timeout = cmp.Or(req.Timeout, opts.Timeout)
	req.MemoryMB = cmp.Or(req.MemoryMB, opts.MemoryMB)
	if len(req.Context) == 0 {
		req.Context = json.RawMessage("{}")
	}
	switch {
	case req.Timeout < minTimeout || req.Timeout > opts.MaxTimeout:
		return configFailure("the timeout must be from 1 to %d ms", opts.MaxTimeout.Milliseconds())
	case req.MemoryMB < minMemoryMB || req.MemoryMB > opts.MemoryMB:
		return configFailure("the memory limit must be from %d to %d MB", minMemoryMB, opts.MemoryMB)
	case len(req.Context) > maxContext:
		return configFailure("the context has %d bytes, at most %d are allowed", len(req.Context), maxContext)
	case !isObject(req.Context):
		return configFailure("the context must be a JSON object")
	case len(req.Tools) > 0 && req.Call == nil:
		return configFailure("a request with tools needs a function that calls them")
	case len(req.Tools) > maxTools:
		return configFailure("at most %d tools are allowed", maxTools)
	case len(req.ReadPaths) > maxPaths:
		return configFailure("at most %d read paths are allowed", maxPaths)
	}
	for _, p := range req.ReadPaths {
		if !filepath.IsAbs(p) {
			return configFailure("the path %q is not absolute", p)
		}
	}
	return nil
}

func isObject(text json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && json.Valid(text)
}

func configFailure(format string, args ...any) *Failure {
	return &Failure{Name: Config, Message: fmt.Sprintf(format, args...)}
}

// Names of failures. Timeout and Memory are from AgentCards (errors); the others follow their form.
const (
	// Timeout is a run that did not finish in time.
	Timeout = "SANDBOX_TIMEOUT"
	// Memory is a run that needed more memory than it had.
	Memory = "SANDBOX_MEMORY"
	// Syntax is code that does not compile.
	Syntax = "SANDBOX_SYNTAX"
	// Error is code that threw an exception, or whose result is not JSON.
	Error = "SANDBOX_ERROR"
	// ResultTooLarge is a result over the limit.
	ResultTooLarge = "SANDBOX_RESULT_TOO_LARGE"
	// CodeTooLarge is code over MaxCode.
	CodeTooLarge = "SANDBOX_CODE_TOO_LARGE"
	// Crashed is a child that ended unexpectedly or violated the protocol.
	Crashed = "SANDBOX_CRASHED"
	// Busy is a run that got no slot within its timeout.
	Busy = "SANDBOX_BUSY"
	// ToolCalls is code with too many tool calls and file reads.
	ToolCalls = "SANDBOX_TOOL_CALLS"
	// PathDenied is a file that the code may not read. The code can catch this error.
	PathDenied = "SANDBOX_PATH_DENIED"
	// Config is a request that the sandbox does not allow.
	Config = "SANDBOX_CONFIG"
)

// Failure is a run without a result. Its texts are for the author of the code.
type Failure struct {
	Name    string
	Message string
	// Line and Column are the position in the caller's code, from 1; 0 where it is unknown.
	Line, Column int
	// Stack is the call stack, innermost first, one call per line.
	Stack string
	// Logs is the output of the code so far.
	Logs    []Log
	Metrics Metrics
}

func (f *Failure) Error() string {
	if f.Line == 0 {
		return f.Name + ": " + f.Message
	}
	return fmt.Sprintf("%s: %s (line %d, column %d)", f.Name, f.Message, f.Line, f.Column)
}

const outOfMemory = "the code needs more memory than it was given"
