package bench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// resumes is the number of kills over which BenchmarkResume reports the median and the maximum.
const resumes = 15

// BenchmarkResume measures how long a workflow takes to continue after `kill -9` of the real program on SQLite: from the start
// of the new process to the repeated call of the step that was interrupted. The baseline is the start of the same program with
// the same folder and upstream, but without a running workflow: from the start of the process to the first positive /readyz.
// It measures once, however many rounds are requested.
func BenchmarkResume(b *testing.B) {
	r := &resumption{path: buildProgram(b), data: emptyStorage(b, sqlite), called: make(chan time.Time), proceed: make(chan struct{})}
	r.servers = filepath.Join(b.TempDir(), "servers.json")
	mcptest.WriteServers(b, r.servers, mcptest.New(b, "paper").Echo().Tool(&mcp.Tool{Name: "look", Annotations: mcptest.Reads()}, r.look))
	var ready, resumed []float64
	for range resumes {
		resumed = append(resumed, r.resume(b))
		begun := time.Now()
		p := r.start(b)
		awaitReady(b, p.addr)
		ready = append(ready, time.Since(begun).Seconds()*1e3)
		p.stop()
	}
	for b.Loop() { // measured once
	}
	slices.Sort(ready)
	slices.Sort(resumed)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(resumed[resumes/2], "ms_resume")
	b.ReportMetric(ready[resumes/2], "ms_ready")
	printFigures(os.Stdout, "A workflow on SQLite whose server was killed, medians and maxima of 15 kills.", []figure{
		{what: "start of the process to the next call of the workflow", value: resumed[resumes/2], unit: "ms", most: 1000},
		{what: "... the longest", value: resumed[resumes-1], unit: "ms", most: 1000},
		{what: "start of the process to ready, without a workflow", value: ready[resumes/2], unit: "ms"},
		{what: "... the longest", value: ready[resumes-1], unit: "ms"},
	})
}

// resumption has a program and its upstream, whose tool look sends the time of each call to called and waits for proceed.
type resumption struct {
	path, servers string
	data          storage
	called        chan time.Time
	proceed       chan struct{}
}

func (r *resumption) look(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	select {
	case r.called <- time.Now():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-r.proceed:
		return mcptest.Texts("done"), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *resumption) start(b *testing.B) *program {
	b.Helper()
	return runProgram(b, r.path, r.data, "--mcp-servers", r.servers)
}

// resume kills the program during the second step of a workflow, starts it again, and returns the milliseconds from that start
// to the next call of the step. It waits until the workflow has ended.
func (r *resumption) resume(b *testing.B) float64 {
	b.Helper()
	first := r.start(b)
	s := &cometServer{addr: first.addr}
	c := newCaller(b, first.addr)
	require.Eventually(b, func() bool {
		status, _, err := c.exchange(post("/api/v1/tools/call", adminToken, []byte(`{"tool":"paper:echo","arguments":{}}`)))
		return err == nil && status == 200
	}, time.Minute, 5*time.Millisecond)
	var v struct {
		WorkflowID string `json:"workflow_id"`
		Status     string
	}
	s.call(b, post("/api/v1/workflows", adminToken, []byte(`{"workflow":{"tasks":[{"id":"a","tool":"paper:echo"},
		{"id":"b","tool":"paper:look","depends_on":["a"],"timeout_ms":86400000},{"id":"c","tool":"paper:echo","depends_on":["b"]}]}}`)), 202, &v)
	<-r.called
	first.stop()

	begun := time.Now()
	second := r.start(b)
	took := (<-r.called).Sub(begun)
	r.proceed <- struct{}{}
	c = newCaller(b, second.addr)
	require.Eventually(b, func() bool {
		status, body, err := c.exchange(get("/api/v1/workflows/"+v.WorkflowID, adminToken))
		return err == nil && status == 200 && json.Unmarshal(body, &v) == nil && v.Status == "complete"
	}, time.Minute, 5*time.Millisecond)
	second.stop()
	return took.Seconds() * 1e3
}
