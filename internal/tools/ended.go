package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/models"
)

// callRecord is a call that has ended, to be written.
type callRecord struct {
	models.ToolCall
	// texts are what was said, to be counted.
	texts []string
	// payer pays for it, estimated at charged so far; nil for a call that costs nothing.
	payer    *prepaidAccount
	estimate int64
}

// textSize is how long what was said is, in bytes.
func (e *callRecord) textSize() (n int) {
	for _, text := range e.texts {
		n += len(text)
	}
	return n
}

// recordRefusal notes a call that reached no tool.
func (h *Service) recordRefusal(c *call, name string, err error) error {
	if c.tool == nil { // it names nothing, or nothing that may be known
		c.tool = &tool{}
		server, bare, ok := splitID(name)
		if !ok {
			server, bare = "", name
		}
		c.tool.server, c.tool.name = truncate(server, models.MaxToolName), truncate(bare, models.MaxToolName)
	}
	line := h.auditRecord(c, nil, err)
	line.Outcome = models.ToolRefused
	h.finish(c, callRecord{ToolCall: line})
	return err
}

// auditRecord is how a call stands in the audit trail.
func (h *Service) auditRecord(c *call, res *mcp.CallToolResult, err error) models.ToolCall {
	sum := sha256.Sum256(c.args)
	out := models.ToolCall{
		ID: c.id, At: c.at.UTC().Truncate(time.Microsecond), Door: c.by.Via, TokenID: c.by.Principal.TokenID, Actor: c.by.Principal.Name, AgentID: c.by.payer(),
		Server: c.tool.server, Tool: c.tool.name, Class: c.tool.class, Digest: hex.EncodeToString(sum[:]),
		Outcome: models.ToolSucceeded, Duration: h.opts.Clock().Sub(c.at), ParentID: c.by.Parent, TaskID: c.by.TaskID, TraceID: c.by.TraceID,
	}
	switch {
	case err != nil:
		out.Outcome, out.Error = models.ToolFailed, toError(err).Code
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			out.Error = "CANCELLED"
		}
		if toError(err).refused {
			out.Outcome = models.ToolRefused
		}
	case res != nil && res.IsError:
		out.Outcome, out.Error = models.ToolFailed, "TOOL_ERROR"
	}
	return out
}

// finish writes a call down and tells who listens.
func (h *Service) finish(c *call, e callRecord) {
	h.metrics.count(e.ToolCall)
	h.auditLog.add(e)
	if e.Outcome == models.ToolSucceeded && c.tool.builtin == nil && c.by.Via != ViaCode {
		h.sequences.note(c.by, c.tool.id, func(tools []string) { h.recordRun(tools) })
	}
	if h.opts.WaitForAudit {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := h.auditLog.Flush(ctx); err != nil {
			h.log.Warn("a call is answered before it is written down", "call", c.id, "error", err)
		}
	}
}

// callText is what is counted of a call.
type callText struct {
	texts    []string
	estimate int64 // of the result
}

// textOf returns the texts of a call: its arguments and what a model reads of the result.
func textOf(args json.RawMessage, res *mcp.CallToolResult) (s callText) {
	s.texts = []string{string(args)}
	if res == nil {
		return s
	}
	size := 0
	for _, c := range res.Content {
		text := ""
		switch c := c.(type) {
		case *mcp.TextContent:
			text = c.Text
		case *mcp.EmbeddedResource:
			if c.Resource != nil {
				text = c.Resource.Text
			}
		}
		if text != "" {
			s.texts, size = append(s.texts, text), size+len(text)
		}
	}
	if size == 0 && res.StructuredContent != nil {
		if text, err := json.Marshal(res.StructuredContent); err == nil {
			s.texts, size = append(s.texts, string(text)), len(text)
		}
	}
	if size > 0 {
		s.estimate = estimateTokens(size)
	}
	return s
}
