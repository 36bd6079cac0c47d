package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/models"
)

// recordRefusal records a call that reached no tool and returns its error.
func (svc *Service) recordRefusal(c *Invocation, name string, err error) error {
	if c.tool == nil { // the tool is unknown or hidden from the caller
		c.tool = &Tool{}
		server, bare, ok := splitID(name)
		if !ok {
			server, bare = "", name
		}
		c.tool.Server, c.tool.Name = truncate(server, MaxToolName), truncate(bare, MaxToolName)
	}
	record := svc.auditRecord(c, err)
	record.Outcome = outcomeRejected
	svc.finish(c, callRecord{ToolCall: record})
	return err
}

// auditRecord returns the audit record of a finished call.
func (svc *Service) auditRecord(c *Invocation, err error) models.ToolCall {
	sum := sha256.Sum256(c.Arguments)
	out := models.ToolCall{
		ID: c.ID, At: c.at.UTC().Truncate(time.Microsecond), Source: c.Caller.Source, TokenID: c.Caller.Principal.TokenID, Actor: c.Caller.Principal.Name, AgentID: c.Caller.payer(),
		Server: c.tool.Server, Tool: c.tool.Name, Class: c.tool.Class, Digest: hex.EncodeToString(sum[:]),
		Outcome: outcomeSuccess, Duration: svc.opts.Clock().Sub(c.at), ParentID: c.Caller.Parent, TaskID: c.Caller.TaskID, TraceID: c.Caller.TraceID,
	}
	switch {
	case err != nil:
		e := toCallError(err)
		out.Outcome, out.Error = outcomeError, ErrorName(e)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			out.Error = "CANCELLED"
		}
		if isRefusal(e) {
			out.Outcome = outcomeRejected
		}
	case c.failed:
		out.Outcome, out.Error = outcomeError, "TOOL_ERROR"
	}
	return out
}

// finish records a finished call.
func (svc *Service) finish(c *Invocation, e callRecord) {
	svc.metrics.count(e.ToolCall)
	svc.auditLog.add(e)
	if e.Outcome == outcomeSuccess && c.tool.builtin == nil && c.Caller.Source != SourceCode {
		svc.sequences.note(c.Caller, c.tool.ID, svc.RecordRun)
	}
	if svc.opts.WaitForAudit {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := svc.auditLog.Flush(ctx); err != nil {
			svc.log.Warn("a tool call returns before its audit record is written", "call", c.ID, "error", err)
		}
	}
}

// callMetrics are the metrics of tool calls.
type callMetrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCallMetrics(to prometheus.Registerer) callMetrics {
	c := callMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_tool_calls_total", Help: "Tool calls by source (API) and outcome.",
		}, []string{"source", "outcome"}),
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
	c.calls.WithLabelValues(record.Source, record.Outcome).Inc()
	c.duration.WithLabelValues(record.Outcome).Observe(record.Duration.Seconds())
}
