package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
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

// BenchmarkParallelSteps measures five steps of 100 ms, relative to one after the other.
func BenchmarkParallelSteps(b *testing.B) {
	onDatabases(b, func(b *testing.B, c *toolstest.Client) {
		args := tasks(5, "slow", false)
		begun := time.Now()
		for b.Loop() {
			complete(b, c, args)
		}
		b.ReportMetric(0.5*float64(b.N)/time.Since(begun).Seconds(), "speed-up")
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
