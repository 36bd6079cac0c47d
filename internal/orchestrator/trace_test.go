package orchestrator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"comet/internal/orchestrator"
	"comet/store/storetest"
)

// TestTraces checks that the trace of a request contains the submission, each attempt and the
// task, whichever process writes them.
func TestTraces(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
		h := start(t, db, &orchestrator.Options{Tracer: provider.Tracer("test")})
		h.worker(t, "w-1", 1, "code_write")
		const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		task := h.submit(t, "code_write", func(s *orchestrator.Submission) { s.Traceparent = "00-" + trace + "-" + parent + "-01" })
		_, err := h.Complete(t.Context(), "w-1", task.ID, orchestrator.Result{Failure: orchestrator.FailureWork, Text: "no"})
		require.NoError(t, err)

		spans := map[string]sdktrace.ReadOnlySpan{}
		for _, s := range recorder.Ended() {
			require.Equal(t, trace, s.SpanContext().TraceID().String(), s.Name())
			spans[s.Name()] = s
		}
		require.Len(t, spans, 3)
		submit := spans["task.submit"]
		require.Equal(t, parent, submit.Parent().SpanID().String())
		for _, name := range []string{"task.attempt", "task"} {
			require.Equal(t, submit.SpanContext().SpanID(), spans[name].Parent().SpanID(), name)
			require.Equal(t, "failed", spans[name].Status().Description, name)
		}
		ended, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.True(t, ended.EndedAt.Equal(spans["task"].EndTime()))
		require.True(t, ended.CreatedAt.Equal(spans["task"].StartTime()))
	})
}
