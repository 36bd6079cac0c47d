package workflow_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store/storetest"
)

// onDatabases runs a benchmark with tools of an upstream in this process.
func onDatabases(b *testing.B, fn func(b *testing.B, c *toolstest.Client)) {
	b.Helper()
	for _, name := range storetest.Databases() {
		b.Run(name, func(b *testing.B) {
			slow := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-time.After(100 * time.Millisecond)
				return mcptest.Texts("done"), nil
			}
			paper := mcptest.New(b, "paper").Echo().Tool(&mcp.Tool{Name: "slow", Annotations: mcptest.Reads()}, slow)
			fn(b, toolstest.Start(b, storetest.Open(b, name), nil, paper).Client(b, ""))
		})
	}
}

// tasks returns the arguments of agentcards:execute_dag for n steps, each after the one before if chained is set.
func tasks(n int, tool string, chained bool) json.RawMessage {
	list := make([]string, n)
	for i := range n {
		list[i] = fmt.Sprintf(`{"id":"t%d","tool":"paper:%s"}`, i, tool)
		if chained && i > 0 {
			list[i] = fmt.Sprintf(`{"id":"t%d","tool":"paper:%s","depends_on":["t%d"]}`, i, tool, i-1)
		}
	}
	return json.RawMessage(`{"workflow":{"tasks":[` + strings.Join(list, ",") + `]}}`)
}

// complete executes a workflow that must succeed.
func complete(b *testing.B, c *toolstest.Client, args json.RawMessage) {
	b.Helper()
	res, err := c.TryCall(b, "agentcards:execute_dag", args)
	if err != nil || res.IsError {
		b.Error(err, res)
	}
}

// BenchmarkChain measures a chain of 100 steps, relative to the same calls without a workflow.
func BenchmarkChain(b *testing.B) {
	onDatabases(b, func(b *testing.B, c *toolstest.Client) {
		const steps = 100
		args := tasks(steps, "echo", true)
		var direct, chained time.Duration
		for b.Loop() {
			begun := time.Now()
			for range steps {
				c.Call(b, "paper:echo", map[string]any{})
			}
			direct += time.Since(begun)
			begun = time.Now()
			complete(b, c, args)
			chained += time.Since(begun)
		}
		b.ReportMetric(float64(b.N*steps)/chained.Seconds(), "steps/s")
		b.ReportMetric(float64(b.N*steps)/direct.Seconds(), "direct-calls/s")
		b.ReportMetric(chained.Seconds()/direct.Seconds(), "duration/direct")
	})
}

// BenchmarkParallelSteps measures five steps of 100 ms, and the same calls at a time without a workflow, relative to one after
// the other.
func BenchmarkParallelSteps(b *testing.B) {
	onDatabases(b, func(b *testing.B, c *toolstest.Client) {
		args := tasks(5, "slow", false)
		var direct, inWorkflow time.Duration
		for b.Loop() {
			begun := time.Now()
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					_, err := c.TryCall(b, "paper:slow", nil)
					assert.NoError(b, err)
				})
			}
			all.Wait()
			direct += time.Since(begun)
			begun = time.Now()
			complete(b, c, args)
			inWorkflow += time.Since(begun)
		}
		b.ReportMetric(0.5*float64(b.N)/inWorkflow.Seconds(), "speed-up")
		b.ReportMetric(0.5*float64(b.N)/direct.Seconds(), "direct-speed-up")
	})
}

// BenchmarkManyWorkflows measures 64 workflows at a time, each a chain of 20 steps, relative to the same calls by 64 clients.
func BenchmarkManyWorkflows(b *testing.B) {
	onDatabases(b, func(b *testing.B, c *toolstest.Client) {
		const clients, steps = 64, 20
		args := tasks(steps, "echo", true)
		timed := func(do func()) time.Duration {
			begun := time.Now()
			var all sync.WaitGroup
			for range clients {
				all.Go(do)
			}
			all.Wait()
			return time.Since(begun)
		}
		var direct, inWorkflows time.Duration
		for b.Loop() {
			direct += timed(func() {
				for range steps {
					_, err := c.TryCall(b, "paper:echo", nil)
					require.NoError(b, err)
				}
			})
			inWorkflows += timed(func() { complete(b, c, args) })
		}
		b.ReportMetric(float64(b.N*clients*steps)/inWorkflows.Seconds(), "steps/s")
		b.ReportMetric(float64(b.N*clients*steps)/direct.Seconds(), "direct-calls/s")
		b.ReportMetric(inWorkflows.Seconds()/direct.Seconds(), "duration/direct")
	})
}

// timed has an upstream that reports when it is called, and a client.
type timed struct {
	*toolstest.Client
	tools *toolstest.Tools
	db    *storetest.DB
	began chan time.Time
}

// onTimed runs a benchmark with the tools look, which reads, and act, which may act.
func onTimed(b *testing.B, fn func(b *testing.B, f *timed)) {
	b.Helper()
	for _, name := range storetest.Databases() {
		b.Run(name, func(b *testing.B) {
			began := make(chan time.Time, 100)
			call := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				began <- time.Now()
				return mcptest.Texts("done"), nil
			}
			db := storetest.Open(b, name)
			s := toolstest.Start(b, db, &toolstest.Options{Workflows: workflow.Options{MaxActive: 1_000_000}},
				mcptest.New(b, "paper").Tool(&mcp.Tool{Name: "look", Annotations: mcptest.Reads()}, call).Tool(&mcp.Tool{Name: "act"}, call))
			fn(b, &timed{s.Client(b, "", models.ScopeToolsCall), s, db, began})
		})
	}
}

// begin starts a workflow of one step without waiting for its end, and returns its id.
func (f *timed) begin(b *testing.B, step plan.Step) workflow.View {
	b.Helper()
	step.ID = "a"
	v, _, err := f.tools.Workflows.Begin(b.Context(), f.Caller, workflow.Request{Workflow: new(graph(step))}, nil)
	require.NoError(b, err)
	return v
}

func milliseconds(b *testing.B, total time.Duration) float64 {
	b.Helper()
	return float64(total.Microseconds()) / 1000 / float64(b.N)
}

// BenchmarkStart measures the time from the start of a workflow to its first call, relative to the same call without one.
func BenchmarkStart(b *testing.B) {
	onTimed(b, func(b *testing.B, f *timed) {
		var direct, started time.Duration
		for b.Loop() {
			begun := time.Now()
			f.Call(b, "paper:look", nil)
			direct += (<-f.began).Sub(begun)
			begun = time.Now()
			f.begin(b, plan.Step{Tool: "paper:look"})
			started += (<-f.began).Sub(begun)
		}
		b.ReportMetric(milliseconds(b, started), "start-ms")
		b.ReportMetric(milliseconds(b, direct), "direct-ms")
	})
}

// BenchmarkDecision measures the time from an approval to the call that it allows.
func BenchmarkDecision(b *testing.B) {
	onTimed(b, func(b *testing.B, f *timed) {
		var total time.Duration
		for b.Loop() {
			v := f.begin(b, plan.Step{Tool: "paper:act", Approve: true})
			begun := time.Now()
			require.NoError(b, f.tools.Workflows.Decide(b.Context(), f.Principal, v.WorkflowID, v.CheckpointID, workflow.Decision{Approved: true}))
			total += (<-f.began).Sub(begun)
		}
		b.ReportMetric(milliseconds(b, total), "decision-ms")
	})
}

// BenchmarkPaused measures what 10,000 paused workflows cost: goroutines and processor time, relative to none.
func BenchmarkPaused(b *testing.B) {
	onTimed(b, func(b *testing.B, f *timed) {
		idle := func() time.Duration { // the processor time of two seconds
			before := processorTime(b)
			<-time.After(2 * time.Second)
			return processorTime(b) - before
		}
		for b.Loop() {
			goroutines, none := runtime.NumGoroutine(), idle()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					for range 200 {
						_, _, err := f.tools.Workflows.Begin(b.Context(), f.Caller, workflow.Request{Workflow: new(graph(plan.Step{ID: "a", Tool: "paper:act", Approve: true}))}, nil)
						assert.NoError(b, err)
					}
				})
			}
			all.Wait()
			<-time.After(time.Second) // until the events of the starts have their positions
			paused := idle()
			b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
			b.ReportMetric(float64(none.Milliseconds())/20, "%cpu-without")
			b.ReportMetric(float64(paused.Milliseconds())/20, "%cpu-paused")
		}
	})
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkDBOS measures workflows of no-op steps against DBOS Transact on the same PostgreSQL (tools/dbosbench). The steps of
// comet are calls of a tool. Those of DBOS are calls of the same tool, and functions that do nothing.
func BenchmarkDBOS(b *testing.B) {
	if !slices.Contains(storetest.Databases(), "postgres") {
		return
	}
	path := filepath.Join(b.TempDir(), "dbosbench")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..", "tools", "dbosbench")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	for _, c := range []struct {
		name             string
		workflows, steps int
	}{{"a chain of 100", 1, 100}, {"64 chains of 20", 64, 20}} {
		b.Run(c.name, func(b *testing.B) {
			paper := mcptest.New(b, "paper").Echo()
			client := toolstest.Start(b, storetest.Open(b, "postgres"), nil, paper).Client(b, "")
			calls, nothing := startDBOS(b, path, paper.URL), startDBOS(b, path)
			args := tasks(c.steps, "echo", true)
			var own, called, empty time.Duration
			round := func() {
				begun := time.Now()
				var all sync.WaitGroup
				for range c.workflows {
					all.Go(func() { complete(b, client, args) })
				}
				all.Wait()
				own += time.Since(begun)
				called += calls(c.workflows, c.steps)
				empty += nothing(c.workflows, c.steps)
			}
			round() // fills caches and pools
			own, called, empty = 0, 0, 0
			for b.Loop() {
				round()
			}
			rate := func(d time.Duration) float64 { return float64(b.N*c.workflows*c.steps) / d.Seconds() }
			b.ReportMetric(rate(own), "steps/s")
			b.ReportMetric(rate(called), "dbos-calls/s")
			b.ReportMetric(rate(empty), "dbos-no-ops/s")
		})
	}
}

// startDBOS starts the program on a database of its own and returns a function that measures workflows in it.
func startDBOS(b *testing.B, path string, upstream ...string) func(workflows, steps int) time.Duration {
	b.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), path, append([]string{storetest.EmptyPostgres(b)}, upstream...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close() // ends the program
		if err := cmd.Wait(); err != nil {
			b.Errorf("dbosbench: %v", err)
		}
	})
	lines := bufio.NewReader(out)
	return func(workflows, steps int) time.Duration {
		_, err := fmt.Fprintln(in, workflows, steps)
		require.NoError(b, err)
		line, err := lines.ReadBytes('\n')
		require.NoError(b, err, "dbosbench has ended")
		var got struct{ Took time.Duration }
		require.NoError(b, json.Unmarshal(line, &got), "%s", line)
		return got.Took
	}
}
