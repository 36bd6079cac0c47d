package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// Bounds that are not for the operator to set. A call's arguments and the result have
// Options.MaxResult.
const (
	minTimeout  = time.Millisecond
	minMemoryMB = 16
	mostResult  = 64 << 20
	maxContext  = 8 << 20 // bytes of JSON
	maxAnswer   = 8 << 20 // bytes of a tool's result, as JSON
	maxFile     = 4 << 20 // bytes of a file
	maxTools    = 20_000
	maxPaths    = 100
	maxLogs     = 1000 // messages
	maxMessage  = 8 << 10
	// outstanding is how many calls of a run are under way at once. The child keeps
	// further ones back, in its own memory.
	outstanding = 16
)

// Tool is something the code may call: as server.name(args) and mcp.server.name(args), by
// its exact name, in camelCase and in snake_case.
type Tool struct {
	Server string `json:"server"`
	Name   string `json:"name"`
}

// Request is code to be run, and what it may use.
type Request struct {
	Code string
	// Context is a JSON object; nil is an empty one. At most 8 MiB.
	Context json.RawMessage
	// Timeout is wall-clock time from when the code is handed to a child; 0 is the
	// sandbox's own.
	Timeout time.Duration
	// MemoryMB is the engine's memory in MiB; 0 is the sandbox's own.
	MemoryMB int
	// ReadPaths are the directories and files that may be read, with what is below them.
	// Each must be within one of the sandbox's, or hold one.
	ReadPaths []string
	Tools     []Tool
	// Call calls a tool; 16 calls are under way at once at most. The arguments are JSON,
	// and so is the result, of at most 8 MiB; an error becomes an exception in the code,
	// with the error's text. It must return soon after its context ends, for Run waits for
	// it; the context ends with the run.
	Call func(ctx context.Context, server, tool string, args json.RawMessage) (json.RawMessage, error)
}

// Result is what code returned.
type Result struct {
	Value   json.RawMessage
	Logs    []Log
	Metrics Metrics
}

// Log is one call of a function of console. Output beyond the sandbox's limit is left out,
// and the last entry says so.
type Log struct {
	Level   string `json:"level"` // log, info, warn, error, debug
	Message string `json:"message"`
}

// Metrics say what a run took.
type Metrics struct {
	// Execution is wall-clock time from when the code was handed to a child.
	Execution time.Duration
	// CPU is the processor time of the child during that, in whatever thread. Where a
	// process cannot be asked for it while it lives, that of its start is part of it.
	CPU time.Duration
	// MemoryMB is the most memory the child had resident at a time, in MiB, its own
	// program included; 0 where that is not known.
	MemoryMB float64
	// ToolCalls are the calls of tools that reached Request.Call.
	ToolCalls int
	// Warm is a run whose child was ready.
	Warm bool
}

// prepare fills in what the request leaves to the sandbox, and refuses what is out of bounds.
func (s *Sandbox) prepare(req *Request) *Failure {
	if len(req.Code) > MaxCode {
		return &Failure{Name: CodeTooLarge, Message: fmt.Sprintf("the code has %d bytes, at most %d are allowed", len(req.Code), MaxCode)}
	}
	if req.Timeout == 0 {
		req.Timeout = s.opts.Timeout
	}
	if req.MemoryMB == 0 {
		req.MemoryMB = s.opts.MemoryMB
	}
	if len(req.Context) == 0 {
		req.Context = json.RawMessage("{}")
	}
	switch {
	case req.Timeout < minTimeout || req.Timeout > s.opts.MaxTimeout:
		return misconfigured("the timeout must be from 1 to %d ms", s.opts.MaxTimeout.Milliseconds())
	case req.MemoryMB < minMemoryMB || req.MemoryMB > s.opts.MaxMemoryMB:
		return misconfigured("the memory limit must be from %d to %d MB", minMemoryMB, s.opts.MaxMemoryMB)
	case len(req.Context) > maxContext:
		return misconfigured("the context has %d bytes, at most %d are allowed", len(req.Context), maxContext)
	case !isObject(req.Context):
		return misconfigured("the context must be a JSON object")
	case len(req.Tools) > 0 && req.Call == nil:
		return misconfigured("there are tools, but nothing that calls them")
	case len(req.Tools) > maxTools:
		return misconfigured("at most %d tools can be given to the code", maxTools)
	case len(req.ReadPaths) > maxPaths:
		return misconfigured("at most %d paths can be asked for", maxPaths)
	}
	for _, p := range req.ReadPaths {
		if !filepath.IsAbs(p) {
			return misconfigured("the path %q is not absolute", p)
		}
	}
	return nil
}

func isObject(text json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && json.Valid(text)
}

func misconfigured(format string, args ...any) *Failure {
	return &Failure{Name: Config, Message: fmt.Sprintf(format, args...)}
}
