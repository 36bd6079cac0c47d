package workflow

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"comet/internal/telemetry"
	"comet/internal/workflow/plan"
	"comet/store/workflows"
)

// observer counts what this process has committed, and writes the spans of steps.
type observer struct {
	tracer            trace.Tracer
	started, ended    *prometheus.CounterVec
	steps             *prometheus.HistogramVec
	open, checkpoints *prometheus.Desc // read at each scrape
}

func newObserver(tracer trace.Tracer) *observer {
	return &observer{
		tracer:  tracer,
		started: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "comet_workflows_started_total", Help: "Workflows that were started, by source (API)."}, []string{"source"}),
		ended:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "comet_workflows_ended_total", Help: "Workflows that ended, by status."}, []string{"status"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comet_workflow_step_duration_seconds", Help: "Duration of the attempts of workflow steps, by type and outcome.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 30, 60, 300, 1800},
		}, []string{"type", "outcome"}),
		open:        prometheus.NewDesc("comet_workflows_open", "Workflows that have not ended, by status.", []string{"status"}, nil),
		checkpoints: prometheus.NewDesc("comet_workflow_checkpoints_open", "Checkpoints that wait for a decision, by what they ask.", []string{"pause"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (e *Engine) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{e.observer.started, e.observer.ended, e.observer.steps} {
		c.Describe(to)
	}
	to <- e.observer.open
	to <- e.observer.checkpoints
}

// scrapeTimeout limits how long a scrape waits for the database.
const scrapeTimeout = 2 * time.Second

// Collect implements prometheus.Collector. It omits the gauges if the database fails.
func (e *Engine) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{e.observer.started, e.observer.ended, e.observer.steps} {
		c.Collect(to)
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	running, waiting, err := workflows.CountOpen(e.Store.Reads(ctx))
	if err != nil {
		e.opts.Logger.Warn("counting the open workflows failed", "error", err)
		return
	}
	paused := 0
	for _, kind := range []plan.Pause{plan.PauseLayer, plan.PauseApproval, plan.PauseUncertain, plan.PauseBudget} {
		n := waiting[string(kind)]
		paused += n
		to <- prometheus.MustNewConstMetric(e.observer.checkpoints, prometheus.GaugeValue, float64(n), string(kind))
	}
	to <- prometheus.MustNewConstMetric(e.observer.open, prometheus.GaugeValue, float64(running), "running")
	to <- prometheus.MustNewConstMetric(e.observer.open, prometheus.GaugeValue, float64(paused), "paused")
}

// startSpan starts the span of a start, and stores it in the settings: the spans of the steps are its children, whichever
// process writes them.
func (e *Engine) startSpan(ctx context.Context, x *execution, traceparent string) trace.Span {
	ctx, span := e.observer.tracer.Start(telemetry.WithTraceparent(ctx, traceparent), "workflow.start", trace.WithAttributes(attribute.String("comet.workflow.id", x.row.ID)))
	x.settings.Traceparent = cmp.Or(telemetry.Traceparent(ctx), traceparent)
	x.row.TraceID = cmp.Or(x.row.TraceID, telemetry.TraceID(x.settings.Traceparent))
	return span
}

// observe counts the committed events of an execution, and writes the spans of the attempts that have ended.
func (x *execution) observe() {
	o := x.env.observer
	for _, event := range x.events {
		d, _ := event.Data.(EventData)
		switch event.Type {
		case EventStarted:
			o.started.WithLabelValues(x.row.Source).Inc()
		case EventEnded:
			o.ended.WithLabelValues(d.Status).Inc()
		case EventStepEnded:
			if i := x.position(d.Step); i >= 0 && !x.steps[i].StartedAt.IsZero() && d.StepStatus != "skipped" {
				o.observeStep(x, i, d)
			}
		}
	}
}

func (o *observer) observeStep(x *execution, i int, d EventData) {
	s, step := x.steps[i], x.plan.Steps[i]
	o.steps.WithLabelValues(string(step.Type), d.StepStatus).Observe(s.EndedAt.Sub(s.StartedAt).Seconds())
	_, span := o.tracer.Start(telemetry.WithTraceparent(context.Background(), x.settings.Traceparent), "workflow.step", trace.WithTimestamp(s.StartedAt), trace.WithAttributes(
		attribute.String("comet.workflow.id", x.row.ID), attribute.String("comet.step.id", d.Step), attribute.String("comet.step.type", string(step.Type)),
		attribute.String("comet.step.state", d.StepStatus), attribute.Int("comet.attempt", d.Attempt), attribute.String("comet.tool.id", step.Tool),
	))
	if s.ErrorCode != "" {
		span.SetStatus(codes.Error, s.ErrorCode)
	}
	span.End(trace.WithTimestamp(s.EndedAt))
}
