package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// TracingOptions configures NewTracing; nil is the zero value.
type TracingOptions struct {
	// Endpoint is where a collector takes OTLP over HTTP, such as
	// http://127.0.0.1:4318; "" sends nothing, and traces are carried on all the same.
	Endpoint string
	// Sample is the part of the traces that begin here and are sent, 0 to 1. A trace
	// that began elsewhere is sent as it was decided there.
	Sample float64
	// Exporter takes the spans instead of Endpoint, for tests.
	Exporter sdktrace.SpanExporter
	// Build names the program in each span.
	Build Build
	// Logger receives failures of the collector; default discards.
	Logger *slog.Logger
}

// Tracing sends spans to a collector. It is a background.Service: Stop sends what is left.
type Tracing struct {
	provider trace.TracerProvider
	stop     func(context.Context) error
}

// spanTimeout bounds how long a batch of spans may take to be sent.
const spanTimeout = 5 * time.Second

// NewTracing returns what makes spans. Its error names an endpoint that is none; a
// collector that is away is no error, then or later: spans are dropped.
func NewTracing(opts *TracingOptions) (*Tracing, error) {
	o := *cmp.Or(opts, &TracingOptions{})
	if o.Endpoint == "" && o.Exporter == nil {
		return &Tracing{provider: noop.NewTracerProvider(), stop: func(context.Context) error { return nil }}, nil
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	exporter := o.Exporter
	if exporter == nil {
		client, err := newCollector(o.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("traces to %s: %w", o.Endpoint, err)
		}
		if exporter, err = otlptrace.New(context.Background(), client); err != nil {
			return nil, err
		}
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(quiet{exporter, o.Logger}, sdktrace.WithExportTimeout(spanTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Sample))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "comet"), attribute.String("service.version", o.Build.Version),
		)),
	)
	return &Tracing{provider: provider, stop: provider.Shutdown}, nil
}

// quiet logs what cannot be sent instead of telling a global error handler.
type quiet struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (q quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := q.SpanExporter.ExportSpans(ctx, spans); err != nil {
		q.log.WarnContext(ctx, "spans could not be sent and are dropped", "spans", len(spans), "error", err)
	}
	return nil
}

// Tracer returns the tracer of a package.
func (t *Tracing) Tracer(name string) trace.Tracer { return t.provider.Tracer("comet/" + name) }

// Start implements background.Service.
func (t *Tracing) Start(context.Context) error { return nil }

// Stop implements background.Service.
func (t *Tracing) Stop(ctx context.Context) error { return t.stop(ctx) }

// WithTraceparent returns a context below the span that a traceparent names; one that
// names none leaves ctx as it is.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// IsTraceparent reports whether a text is a traceparent of version 00 (Trace Context
// §3.2), whose flags may be any.
func IsTraceparent(text string) bool {
	const untilFlags, length = 53, 55
	if len(text) != length || text[:3] != "00-" || strings.Trim(text[untilFlags:], "0123456789abcdef") != "" {
		return false
	}
	return trace.SpanContextFromContext(WithTraceparent(context.Background(), text[:untilFlags]+"00")).IsValid()
}

// TraceID is the trace of a traceparent, in hex; "" for what is none.
func TraceID(traceparent string) string {
	if !IsTraceparent(traceparent) {
		return ""
	}
	return strings.Split(traceparent, "-")[1]
}

// Traceparent names the span of a context, "" where it has none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}
