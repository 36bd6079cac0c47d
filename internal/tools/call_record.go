package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"

	"comet/models"
)

// callRecord is a finished call that waits to be written.
type callRecord struct {
	models.ToolCall
	// texts are the arguments and the result, whose tokens are not counted yet.
	texts []string
	// payer is charged; estimate was charged so far. payer is nil for a call without a charge.
	payer    *prepaidAccount
	estimate int64
}

// textSize returns the length of texts in bytes.
func (e *callRecord) textSize() (n int) {
	for _, text := range e.texts {
		n += len(text)
	}
	return n
}

// recordRefusal records a call that reached no tool and returns its error.
func (svc *Service) recordRefusal(c *call, name string, err error) error {
	if c.tool == nil { // the tool is unknown or hidden from the caller
		c.tool = &tool{}
		server, bare, ok := splitID(name)
		if !ok {
			server, bare = "", name
		}
		c.tool.server, c.tool.name = truncate(server, models.MaxToolName), truncate(bare, models.MaxToolName)
	}
	record := svc.auditRecord(c, nil, err)
	record.Outcome = models.ToolRefused
	svc.finish(c, callRecord{ToolCall: record})
	return err
}

// auditRecord returns the audit record of a finished call.
func (svc *Service) auditRecord(c *call, res *mcp.CallToolResult, err error) models.ToolCall {
	sum := sha256.Sum256(c.args)
	out := models.ToolCall{
		ID: c.id, At: c.at.UTC().Truncate(time.Microsecond), Door: c.by.Source, TokenID: c.by.Principal.TokenID, Actor: c.by.Principal.Name, AgentID: c.by.payer(),
		Server: c.tool.server, Tool: c.tool.name, Class: c.tool.class, Digest: hex.EncodeToString(sum[:]),
		Outcome: models.ToolSucceeded, Duration: svc.opts.Clock().Sub(c.at), ParentID: c.by.Parent, TaskID: c.by.TaskID, TraceID: c.by.TraceID,
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

// finish records a finished call.
func (svc *Service) finish(c *call, e callRecord) {
	svc.metrics.count(e.ToolCall)
	svc.auditLog.add(e)
	if e.Outcome == models.ToolSucceeded && c.tool.builtin == nil && c.by.Source != SourceCode {
		svc.sequences.note(c.by, c.tool.id, func(tools []string) { svc.recordRun(tools) })
	}
	if svc.opts.WaitForAudit {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := svc.auditLog.Flush(ctx); err != nil {
			svc.log.Warn("a tool call returns before its audit record is written", "call", c.id, "error", err)
		}
	}
}

// callText is the text of a call whose tokens are charged.
type callText struct {
	texts    []string
	estimate int64 // tokens of the result
}

// textOf returns the text of a call: its arguments, and the parts of the result that a model
// reads.
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

// callMetrics are the metrics of tool calls.
type callMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCallMetrics(to prometheus.Registerer) callMetrics {
	c := callMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tool_calls_total", Help: "Tool calls by API (label door) and outcome.",
		}, []string{"door", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_tool_call_duration_seconds", Help: "Duration of tool calls by outcome.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"outcome"}),
	}
	if to != nil {
		to.MustRegister(c.calls, c.duration)
	}
	return c
}

// count adds a call to the metrics. The labels have few values: no names that clients choose.
func (c callMetrics) count(record models.ToolCall) {
	c.calls.WithLabelValues(record.Door, string(record.Outcome)).Inc()
	c.duration.WithLabelValues(string(record.Outcome)).Observe(record.Duration.Seconds())
}
