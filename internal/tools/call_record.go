package tools

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/errs"
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
		c.tool.Server, c.tool.Name = server[:min(len(server), MaxToolName)], bare[:min(len(bare), MaxToolName)]
	}
	record := svc.auditRecord(c, err)
	record.Outcome = outcomeRejected
	svc.finish(c, callRecord{ToolCall: record})
	return err
}

func (svc *Service) auditRecord(c *Invocation, err error) models.ToolCall {
	out := models.ToolCall{
		ID: c.ID, At: c.at.UTC().Truncate(time.Microsecond), Source: c.Caller.Source, TokenID: c.Caller.Principal.TokenID, Actor: c.Caller.Principal.Name, AgentID: c.Caller.payer(),
		Server: c.tool.Server, Tool: c.tool.Name, Class: c.tool.Class, Digest: hexDigest(c.Arguments),
		Outcome: outcomeSuccess, Duration: svc.opts.Clock().Sub(c.at), ParentID: c.Caller.Parent, TaskID: c.Caller.TaskID, TraceID: c.Caller.TraceID,
	}
	switch {
	case err != nil:
		e := toCallError(err)
		out.Outcome, out.Error = outcomeError, ErrorName(e)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			out.Error = "CANCELLED"
		}
		if slices.Contains([]errs.Code{errs.NotFound, errs.InvalidRequest, errs.ToolDenied, errs.BudgetExceeded, errs.Unavailable}, e.Code) { // no tool was reached
			out.Outcome = outcomeRejected
		}
	case c.failed:
		out.Outcome, out.Error = outcomeError, "TOOL_ERROR"
	}
	return out
}

func (svc *Service) finish(c *Invocation, e callRecord) {
	svc.metrics.count(e.ToolCall)
	if bill := c.Caller.Bill; bill != nil {
		e.Tokens = svc.auditLog.tokens.count(e.texts...)
		bill.add(e.ToolCall, e.admitted)
	} else {
		svc.auditLog.add(e)
	}
	if e.Outcome == outcomeSuccess && c.tool.builtin == nil && c.Caller.Source != SourceCode {
		svc.recordSequence(c.Caller, c.tool.ID)
	}
	if svc.opts.WaitForAudit && c.Caller.Bill == nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := svc.auditLog.Flush(ctx); err != nil {
			svc.log.Warn("a tool call returns before its audit record is written", "call", c.ID, "error", err)
		}
	}
}

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

const (
	// maxSequences is the number of clients that are tracked, and sequenceGap the pause after which a
	// client's next call begins a new sequence.
	maxSequences = 2000
	sequenceGap  = 5 * time.Minute
)

type lastCall struct {
	tool string
	at   time.Time
}

// recordSequence adds a successful call together with the client's previous one to the usage graph.
func (svc *Service) recordSequence(by Caller, tool string) {
	key, now := cmp.Or(by.Session, by.Principal.TokenID), time.Now()
	before, ok := svc.lastCalls.Get(key)
	svc.lastCalls.Add(key, lastCall{tool, now})
	if ok && before.tool != tool && now.Sub(before.at) < sequenceGap {
		svc.RecordRun([]string{before.tool, tool})
	}
}

// RecordRun adds tools that were used together to the usage graph; one tool adds nothing.
func (svc *Service) RecordRun(tools []string) {
	if len(tools) < 2 {
		return
	}
	if err := svc.index.Record(tools); err != nil {
		svc.log.Debug("record a run in the usage graph", "error", err)
	}
}
