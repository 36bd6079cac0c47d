package orchestrator

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"comet/internal/telemetry"
	"comet/models"
)

// A task's trace is the one it was asked for in. The submission is a span of it, and what
// is kept on the task is that span, so that whatever happens later, in whichever process,
// lies below it: each attempt, and the task as a whole. They are written when they end,
// because the process that saw their beginning may be gone by then.

// startSubmitSpan begins the span of a submission and has the task keep it.
func (o *Orchestrator) startSubmitSpan(ctx context.Context, sub *Submission) (context.Context, trace.Span) {
	ctx, span := o.opts.Tracer.Start(telemetry.WithTraceparent(ctx, sub.Traceparent), "task.submit",
		trace.WithAttributes(attribute.String("comet.task.id", sub.ID), attribute.String("comet.task.class", sub.Class)))
	if span.SpanContext().IsValid() {
		if own := telemetry.Traceparent(ctx); own != "" {
			sub.Traceparent = own
		}
	}
	return ctx, span
}

// endSpan ends a span with what became of it.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// traceAttempt writes the span of an attempt that has ended, after the commit.
func (op *operation) traceAttempt(t models.Task, a models.Attempt) error {
	if !op.tracing() {
		return nil
	}
	in, err := op.tx.TaskInput(t.ID)
	op.commitHooks = append(op.commitHooks, func(ctx context.Context) {
		_, span := op.opts.Tracer.Start(telemetry.WithTraceparent(ctx, in.Trace), "task.attempt", trace.WithTimestamp(a.AssignedAt),
			trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
				attribute.String("comet.task.id", t.ID), attribute.Int("comet.attempt", a.Attempt), attribute.String("comet.agent.id", a.AgentID),
				attribute.String("comet.attempt.state", string(a.State)), attribute.Int64("comet.tokens", a.Tokens),
			))
		if a.ErrorCode != "" {
			span.SetStatus(codes.Error, a.ErrorCode)
		}
		span.End(trace.WithTimestamp(*a.EndedAt))
	})
	return err
}

// traceTask writes the span of a task that has ended, after the commit.
func (op *operation) traceTask(t models.Task, in models.TaskInput) {
	if !op.tracing() {
		return
	}
	op.commitHooks = append(op.commitHooks, func(ctx context.Context) {
		_, span := op.opts.Tracer.Start(telemetry.WithTraceparent(ctx, in.Trace), "task", trace.WithTimestamp(t.CreatedAt), trace.WithAttributes(
			attribute.String("comet.task.id", t.ID), attribute.String("comet.task.class", t.Class), attribute.String("comet.task.state", string(t.State)),
			attribute.Int("comet.attempts", t.Attempt), attribute.String("comet.session.id", t.SessionID), attribute.Int64("comet.tokens", t.Tokens),
		))
		if t.ErrorCode != "" {
			span.SetStatus(codes.Error, t.ErrorCode)
		}
		span.End(trace.WithTimestamp(*t.EndedAt))
	})
}

// tracing reports whether spans are sent anywhere, so that nothing is read for them
// otherwise.
func (o *Orchestrator) tracing() bool { return o.tracesEnabled }
