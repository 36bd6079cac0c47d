package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/models"
)

const (
	toolCallers = 32
	toolSlice   = 700 * time.Millisecond
	// pacedInterval is how often a caller calls that does not call again at once, and
	// pacedSlice how long: the 99th percentile needs some hundred calls.
	pacedInterval = 100 * time.Millisecond
	pacedSlice    = 2 * time.Second
)

// route is one path to the tool. do makes one call.
type route struct {
	name string
	base string // the direct route to compare with, "" for none
	aim  bool
	do   func(caller int) error
}

// BenchmarkToolCall measures a call of a no-op tool with one caller, with 32 callers without
// pause, and with 32 callers at ten calls per second each: directly, through each API of the gateway,
// through a thin relay, and through a bare relay of the SDK's client and server without tokens,
// policies, ledger and storage.
func BenchmarkToolCall(b *testing.B) {
	w := openToolServer(b, -1)
	all := w.routes(b)
	for _, load := range []struct {
		name    string
		callers int
		every   time.Duration
	}{{"1", 1, 0}, {"32", toolCallers, 0}, {"32_unhurried", toolCallers, pacedInterval}} {
		b.Run(load.name, func(b *testing.B) {
			measured := map[string][]toolRound{}
			for _, v := range all {
				run(b, v, load.callers, load.every)
			}
			for round := 0; b.Loop(); round++ {
				for i := range all {
					v := all[(round+i)%len(all)]
					measured[v.name] = append(measured[v.name], run(b, v, load.callers, load.every))
				}
			}
			b.ReportMetric(0, "ns/op")
			printToolRounds(os.Stdout, load.name, all, measured)
		})
	}
}

// BenchmarkOneWay makes calls over one route at a time, for the profiler:
// -bench 'OneWay/comet,_2026-07-28_→_stdio' -cpuprofile cpu.out.
func BenchmarkOneWay(b *testing.B) {
	w := openToolServer(b, -1)
	for _, v := range w.routes(b) {
		b.Run(v.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := processorTime()
			together(b, toolCallers, b.N, func(n int) error { return v.do(n % toolCallers) })
			b.ReportMetric(float64((processorTime()-cpu).Microseconds())/float64(b.N), "cpu_µs/op")
		})
	}
}

// routes returns all routes to the tool, of both upstreams.
func (w *toolServer) routes(b *testing.B) []route {
	b.Helper()
	token := w.token(b, "bench", nil)
	ruled := w.token(b, "ruled", &models.ToolPolicy{Allow: fiftyRules()})
	own, stream := spawn(b), w.stream(b)
	direct := rawCallers(b, w.upstream, "", newRevision, "read_file")
	thin := rawCallers(b, thinRelay(b, w.upstream, token), token, newRevision, "read_file")
	bare := map[string][]*rawCaller{
		overStdio: rawCallers(b, relay(b, own), "", newRevision, "read_file"),
		overHTTP:  rawCallers(b, relay(b, dial(b, w.upstream, "", newRevision)), "", newRevision, "read_file"),
	}
	first := "direct, http"
	out := []route{
		{name: first, do: func(c int) error { return direct[c].call() }},
		{name: "direct, stdio by the SDK", do: func(int) error { return call(own, "read_file") }},
		{name: "thin relay → http", base: first, do: func(c int) error { return thin[c].call() }},
	}
	for _, over := range []string{overStdio, overHTTP} {
		tool := toolOver(over)
		fresh, old := rawCallers(b, w.url, token, newRevision, tool), rawCallers(b, w.url, token, oldRevision, tool)
		out = append(out,
			route{name: "bare relay → " + over, base: first, do: func(c int) error { return bare[over][c].call() }},
			route{name: "comet, " + newRevision + " → " + over, base: first, aim: true, do: func(c int) error { return fresh[c].call() }},
			route{name: "comet, " + oldRevision + " → " + over, base: first, aim: true, do: func(c int) error { return old[c].call() }},
			route{name: "comet, stdio → " + over, base: first, do: func(int) error { return call(stream, tool) }},
		)
	}
	withPolicy := rawCallers(b, w.url, ruled, newRevision, toolOver(overHTTP))
	slow := rawCallers(b, w.url, token, newRevision, toolOver(overHTTP))
	for _, c := range slow {
		c.head.Set("Accept", "*/*") // leaves the call to the SDK
	}
	return append(out, route{
		name: "… by the SDK's server → " + overHTTP, base: first, do: func(c int) error { return slow[c].call() },
	}, route{
		name: "… with a policy of 50 rules → " + overHTTP, base: "comet, " + newRevision + " → " + overHTTP,
		do: func(c int) error { return withPolicy[c].call() },
	})
}

// fiftyRules allow the call by the last rule, which checks the arguments.
func fiftyRules() []models.ToolRule {
	var out []models.ToolRule
	for n := range 49 {
		out = append(out, models.ToolRule{Tool: fmt.Sprintf("server-%d:read_*", n), Arguments: map[string]string{"path": "/srv/*"}})
	}
	return append(out, models.ToolRule{Tool: "*:read_*", Arguments: map[string]string{"path": "/srv/*"}})
}

// relay starts a server that only forwards calls to an upstream and returns its address.
func relay(b *testing.B, to *mcp.ClientSession) string {
	b.Helper()
	s := mcp.NewServer(&mcp.Implementation{Name: "relay", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "read_file", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return to.CallTool(ctx, &mcp.CallToolParams{Name: r.Params.Name, Arguments: r.Params.Arguments})
	})
	return "http://" + serve(b, http.HandlerFunc(bothRevisions(s).ServeHTTP))
}

// toolRound is the result of one route in one round.
type toolRound struct {
	p50, p99 time.Duration
	rate     float64
	cpu      float64 // microseconds per call of clients and server, without the upstream
}

// run has callers call for one slice, without pause or at an interval.
func run(b *testing.B, v route, callers int, every time.Duration) toolRound {
	b.Helper()
	runtime.GC() // start without garbage of the previous route
	took, failures := make([][]time.Duration, callers), make([]error, callers)
	var running sync.WaitGroup
	begun, cpu := time.Now(), processorTime()
	for c := range callers {
		running.Go(func() {
			took[c], failures[c] = calls(v, c, begun.Add(every*time.Duration(c)/time.Duration(callers)), every)
		})
	}
	running.Wait()
	whole := time.Since(begun)
	cpu = processorTime() - cpu
	for _, err := range failures {
		if err != nil {
			b.Fatal(v.name, err)
		}
	}
	all := slices.Concat(took...)
	return toolRound{p50: at(all, .5), p99: at(all, .99), rate: float64(len(all)) / whole.Seconds(), cpu: cpu.Seconds() * 1e6 / float64(len(all))}
}

// calls makes the calls of one caller, which starts at from.
func calls(v route, caller int, from time.Time, every time.Duration) (took []time.Duration, err error) {
	slice := toolSlice
	if every > 0 {
		slice = pacedSlice
	}
	for turn := 0; ; turn++ {
		if early := time.Until(from.Add(every * time.Duration(turn))); early > 0 {
			<-time.After(early)
		}
		start := time.Now()
		if start.Sub(from) >= slice {
			return took, nil
		}
		if err := v.do(caller); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
}

// printToolRounds prints the medians over the rounds and the added latency.
func printToolRounds(out io.Writer, load string, all []route, measured map[string][]toolRound) {
	_, _ = fmt.Fprintf(out, "\nCallers: %s. Callers, server and upstream share %d processors.\n", load, runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "route\tcalls/s\tcpu µs\tp50 ms\tp99 ms\tadded p50\tadded p99\tquartiles\taim\t")
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	for _, v := range all {
		toolRounds := measured[v.name]
		median := func(of func(toolRound) float64) float64 {
			m, _, _ := quartiles(func(i int) float64 { return of(toolRounds[i]) }, len(toolRounds))
			return m
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%.2f\t", v.name, median(func(l toolRound) float64 { return l.rate }), median(func(l toolRound) float64 { return l.cpu }),
			median(func(l toolRound) float64 { return ms(l.p50) }), median(func(l toolRound) float64 { return ms(l.p99) }))
		if v.base == "" {
			_, _ = fmt.Fprintln(w, "\t\t\t\t")
			continue
		}
		base := measured[v.base]
		p50, _, _ := quartiles(func(i int) float64 { return ms(toolRounds[i].p50 - base[i].p50) }, len(toolRounds))
		p99, low, high := quartiles(func(i int) float64 { return ms(toolRounds[i].p99 - base[i].p99) }, len(toolRounds))
		aim := ""
		if v.aim && load != "1" {
			if aim = "< 1 ms met"; p99 >= 1 {
				aim = "< 1 ms NOT MET"
			}
		}
		_, _ = fmt.Fprintf(w, "%+.2f\t%+.2f\t%.2f-%.2f\t%s\t\n", p50, p99, low, high, aim)
	}
	_ = w.Flush()
}
