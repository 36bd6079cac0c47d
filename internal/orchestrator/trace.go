package orchestrator

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"comet/internal/telemetry"
	"comet/models"
)

// The trace of a task is the one of its submission. The submission is a span, which is stored in
// the task, and the spans of the attempts and of the task are its children, whichever process
// makes them. They are written at their end, because another process may have seen their start.

// startSubmitSpan starts the span of a submission and stores it in the submission.
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

// endSpan ends a span with the status of err.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// traceAttempt writes the span of an ended attempt after the commit.
func (op *operation) traceAttempt(t models.Task, a models.Attempt) error {
	if !op.tracesEnabled {
		return nil
	}
	in, err := op.tx.Tasks().Input(t)
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

// traceTask writes the span of an ended task after the commit.
func (op *operation) traceTask(t models.Task, in models.TaskInput) {
	if !op.tracesEnabled {
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
