package app_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
)

// interopWorkers returns the kinds of workers in the table.
func interopWorkers() []string {
	return append(append([]string{"envelope"}, v5WorkerKinds()...), "genesis", "genesis polling", "mcp", "a2a")
}

// protocolOf returns the protocol of a requester or of a kind of workers.
func protocolOf(name string) string {
	switch {
	case name == "websocket", name == "tcp":
		return "v5"
	case strings.HasPrefix(name, "genesis"):
		return "genesis"
	}
	return name
}

// canAsk says that workers of a protocol can ask the requester.
func canAsk(worker string) bool { return worker != "envelope" && worker != "mcp" }

// showsParts says that a requester receives a part of the result that a worker sends before the end. The partial results of
// Genesis are values of their own, and what a worker of package agent writes is the log of the task. A remote A2A agent's text is
// stored as JSON, and the pieces of PROTOCOL_V5 have no known lengths: A2A sends both when they are complete.
func showsParts(requester, worker string) bool {
	switch requester {
	case "REST":
		return worker != "mcp"
	case "genesis":
		return worker == "genesis"
	}
	return false
}

// maxCells is how many cells are tested at a time.
const maxCells = 8

// runCell tests a pair of protocols with all that the table says of it, then that the worker's agent was charged once for each task.
func runCell(t *testing.T, f *protocolFixture, req requester, kind string) {
	w := f.newWorker(t, kind)
	from, to := protocolOf(req.name()), protocolOf(kind)
	want := func(text string) string { // a remote A2A agent's text is an object in the core
		if to == "a2a" && from != "a2a" {
			return `{"text":"` + text + `"}`
		}
		return text
	}
	var tasks []protocolTask
	done := func(got outcome, text string) protocolTask {
		t.Helper()
		require.Equal(t, "done", got.state, "%+v", got)
		require.Equal(t, want(text), got.text)
		d := f.detail(t, got.task)
		require.Equal(t, []string{"succeeded"}, d.attempts())
		tasks = append(tasks, d)
		return d
	}

	trace := uuid.NewString()
	d := done(req.submit(t, testRequest{capability: w.capability, action: "ok", budget: 100, trace: trace}), "n is 5")
	w.requireTrace(t, f, d, trace)
	if to == "mcp" { // comet counts what the call contains
		require.Positive(t, d.Tokens)
	} else {
		require.EqualValues(t, 30, d.Tokens, "the agent has reported them")
	}

	got := req.submit(t, testRequest{capability: w.capability, action: "fail"})
	require.Equal(t, "failed", got.state, "%+v", got)
	d = f.detail(t, got.task)
	require.Equal(t, []any{"failed", "failed", []string{"failed"}}, []any{d.State, *d.Failure, d.attempts()})
	tasks = append(tasks, d)

	switch {
	case canAsk(to):
		d = done(req.submit(t, testRequest{capability: w.capability, action: "ask", reply: "txt"}), "in txt")
		require.Equal(t, 1, d.questions())
	case to == "mcp": // the question of the tool is declined
		d = done(req.submit(t, testRequest{capability: w.capability, action: "ask"}), "in decline")
		require.Zero(t, d.questions())
	}

	got = req.submit(t, testRequest{capability: w.capability, action: "hang", cancel: w.started})
	d = f.detail(t, got.task)
	require.Equal(t, "cancelled", d.State)
	require.Equal(t, w.id, testkit.Receive(t, w.stopped), "the worker is notified")
	tasks = append(tasks, d)

	part := &partialResult{sent: w.started, shown: showsParts(from, to), proceed: func() { w.proceed <- struct{}{} }}
	d = done(req.submit(t, testRequest{capability: w.capability, action: "parts", part: part}), "one two")
	if to == "mcp" {
		require.Equal(t, "one ", d.StepName, "its progress")
	}

	require.NotZero(t, get[agent](t, f.client, "/api/v1/agents/"+w.id).TokenBudget)
	got = req.submit(t, testRequest{capability: w.capability, action: "ok", budget: 9000})
	require.Equal(t, "over budget", got.state, "%+v", got)

	sum := int64(0)
	eventually(t, func() bool { // the attempt at a task that was cancelled may report its usage late
		sum = 0
		for _, d := range tasks {
			sum += f.detail(t, d.ID).Tokens
		}
		return sum == f.used(t, w.id)
	}, "the agent is charged once for each task")
	require.Positive(t, sum)
	held := get[struct{ Reservations []any }](t, f.client, "/api/v1/agents/"+w.id+"/reservations?state=held")
	require.Empty(t, held.Reservations)
	require.Empty(t, w.stopped, "nothing else has happened to the worker")
}

// requireTrace requires that the trace of a request is that of its task, and that the worker has received it. The messages of
// PROTOCOL_V5 and the calls of MCP do not contain it.
func (w *protocolWorker) requireTrace(t *testing.T, f *protocolFixture, d protocolTask, trace string) {
	t.Helper()
	id := strings.ReplaceAll(trace, "-", "")
	require.Contains(t, d.Request.Traceparent, id)
	switch protocolOf(w.kind) {
	case "v5":
	case "mcp":
		calls := f.calls(t, "?task_id="+d.ID)
		require.Len(t, calls, 1)
		require.Equal(t, id, calls[0].TraceID)
	default:
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Len(t, w.traces, 1)
		require.Contains(t, strings.ReplaceAll(w.traces[0], "-", ""), id)
	}
}

// interopTable returns the table of docs/interop.md.
func interopTable() string {
	names := []string{"REST", "envelope", "v5", "genesis", "mcp", "a2a"}
	titles := map[string]string{"REST": "REST", "envelope": "envelope", "v5": "V5", "genesis": "Genesis", "mcp": "MCP", "a2a": "A2A"}
	var b strings.Builder
	b.WriteString("| requester ↓ worker → |")
	for _, to := range names[1:] {
		b.WriteString(" " + titles[to] + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(names)) + "\n")
	for _, from := range names {
		b.WriteString("| " + titles[from] + " |")
		for _, to := range names[1:] {
			question, part := "question", "parts"
			if !canAsk(to) {
				question = "no question"
			} else if from == "envelope" {
				question = "question over REST"
			}
			if !showsParts(from, to) {
				part = "whole result"
			}
			b.WriteString(" " + question + ", " + part + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestInteropDocument: the table in docs/interop.md is that which TestProtocolsInterwork tests.
func TestInteropDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/interop.md")
	require.NoError(t, err)
	require.Contains(t, string(text), interopTable(), "docs/interop.md must contain this table")
}
