package bench

import (
	"fmt"
	"net/http"

	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// mcpSessions is the number of sessions of BenchmarkSession.
const mcpSessions = 2000

// BenchmarkSession measures the heap and stack memory of an idle session of the older revisions,
// without a stream, which would be a connection. The client stores only the session id.
func BenchmarkSession(b *testing.B) {
	w := openToolServer(b, -1)
	client := &http.Client{Transport: bearerTransport{w.token(b, "sessions", nil), &http.Transport{MaxIdleConnsPerHost: 1}}}
	b.Cleanup(client.CloseIdleConnections)
	var added []float64
	for b.Loop() {
		before := heap()
		ids := make([]string, mcpSessions)
		for i := range ids {
			ids[i] = w.session(b, client, http.MethodPost, "")
		}
		added = append(added, float64(heap()-before)/1024/mcpSessions)
		for _, id := range ids {
			w.session(b, client, http.MethodDelete, id)
		}
	}
	slices.Sort(added)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(added[len(added)/2], "KB_a_session")
}

// session starts or ends a session.
func (w *toolServer) session(b *testing.B, client *http.Client, method, id string) string {
	b.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + oldRevision + `","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	r, err := http.NewRequestWithContext(detached(), method, w.url, strings.NewReader(body))
	require.NoError(b, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if id != "" {
		r.Header.Set("Mcp-Session-Id", id)
	}
	resp, err := client.Do(r)
	require.NoError(b, err)
	require.Less(b, resp.StatusCode, http.StatusBadRequest)
	require.NoError(b, resp.Body.Close())
	return resp.Header.Get("Mcp-Session-Id")
}

// heap returns the bytes in use by heap and stacks.
func heap() int64 {
	runtime.GC()
	runtime.GC() // frees what the first run finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// BenchmarkOwnTools measures comet's own tools through /mcp, one caller: a search among few tools
// (internal/toolsearch measures many), and code that calls one tool, in an idle sandbox process
// and in a new one.
func BenchmarkOwnTools(b *testing.B) {
	warm, cold := openToolServer(b, 2), openToolServer(b, -1)
	ready, started := dial(b, warm.url, warm.token(b, "warm", nil), newRevision), dial(b, cold.url, cold.token(b, "cold", nil), newRevision)
	code := map[string]any{"code": `(await ` + overStdio + `.readFile({path: "/srv/data/november.txt"})).length`}
	took := map[string][]time.Duration{}
	own := func(what string, s *mcp.ClientSession, tool string, args map[string]any) {
		from := time.Now()
		res, err := s.CallTool(detached(), &mcp.CallToolParams{Name: tool, Arguments: args})
		require.NoError(b, err)
		require.False(b, res.IsError, "%+v", res.StructuredContent)
		took[what] = append(took[what], time.Since(from))
	}
	for n := 0; b.Loop(); n++ {
		own("search", ready, "agentcards:search_tools", map[string]any{"query": fmt.Sprintf("read the file number %d", n)})
		own("search_remembered", ready, "agentcards:search_tools", map[string]any{"query": "read a file"})
		own("code_warm", ready, "agentcards:execute_code", code)
		own("code_cold", started, "agentcards:execute_code", code)
		<-time.After(60 * time.Millisecond) // the next process becomes idle
	}
	b.ReportMetric(0, "ns/op")
	for what, all := range took {
		b.ReportMetric(float64(at(all, .5))/float64(time.Millisecond), "ms_"+what)
		b.ReportMetric(float64(at(all, .99))/float64(time.Millisecond), "ms_p99_"+what)
	}
}

// BenchmarkHostileCode measures calls of a cheap tool, ten per second by each of four callers,
// with and without hostile code in the sandbox, and the heap of the server afterwards.
func BenchmarkHostileCode(b *testing.B) {
	w := openToolServer(b, 2)
	const callers = 4
	token := w.token(b, "cheap", nil)
	cheap, hostile := dialAll(b, callers, w.url, token, newRevision), dial(b, w.url, token, newRevision)
	v := route{name: "cheap", do: func(c int) error { return call(cheap[c], toolOver(overStdio)) }}
	run(b, v, callers, pacedInterval)
	var calm, busy []toolRound
	before := heap()
	for b.Loop() {
		calm = append(calm, run(b, v, callers, pacedInterval))
		var running sync.WaitGroup
		for i, code := range hostileCodes() {
			running.Go(func() {
				res, err := hostile.CallTool(detached(), &mcp.CallToolParams{Name: "agentcards:execute_code", Arguments: map[string]any{
					"code": code, "sandbox_config": map[string]any{"timeout": 2000, "memoryLimit": 64},
				}})
				if err != nil || !res.IsError {
					b.Errorf("hostile code %d ends with %v %+v", i, err, res)
				}
			})
		}
		busy = append(busy, run(b, v, callers, pacedInterval))
		running.Wait()
	}
	grown := heap() - before
	b.ReportMetric(0, "ns/op")
	for name, toolRounds := range map[string][]toolRound{"calm": calm, "hostile": busy} {
		p50, _, _ := quartiles(func(i int) float64 { return float64(toolRounds[i].p50) / 1e6 }, len(toolRounds))
		p99, _, _ := quartiles(func(i int) float64 { return float64(toolRounds[i].p99) / 1e6 }, len(toolRounds))
		b.ReportMetric(p50, "ms_p50_"+name)
		b.ReportMetric(p99, "ms_p99_"+name)
	}
	b.ReportMetric(float64(grown)/(1<<20), "MB_heap_grown")
}

// hostileCodes are endless loops, excessive allocations and endless promises.
func hostileCodes() (out []string) {
	for range 8 {
		out = append(out, "while (true) {}")
	}
	for range 4 {
		out = append(out, "const all = []; while (true) { all.push(new Array(10000).fill(all.length)) }")
	}
	return append(out, "const again = () => Promise.resolve().then(again); await again()")
}
