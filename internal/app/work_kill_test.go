package app_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/testkit/loopback"
)

// TestWorkSurvivesKill9 kills the server repeatedly while clients submit tasks and agents work, on
// the same data. Every accepted task must end once, with its result; no tokens may stay reserved
// and none may be charged twice. One agent speaks the envelope protocol, one PROTOCOL_V5 on a
// WebSocket, and one PROTOCOL_V5 over TCP.
func TestWorkSurvivesKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data, address, tcpAddress := t.TempDir(), loopback.Address(t), loopback.Address(t)
		p := serveAt(t, data, address, database, v5Listen(tcpAddress))
		c := newClient(t, p.url(t), adminToken(t, data))
		var agents []string
		runner := &jobRunner{tokens: 7}
		for name, start := range runner.starters() {
			agents = append(agents, "infra-"+name)
			start(t, c.URL, tcpAddress, c.registerInfra(t, "infra-"+name, "job"), 4)
		}
		a := startSubmitters(t, c)
		for range kills(t) {
			target := a.accepted.Load() + 1 + rand.Int64N(80)
			eventually(t, func() bool { return a.accepted.Load() >= target }, "tasks are accepted")
			p.kill()
			p = serveAt(t, data, address, database, v5Listen(tcpAddress))
			p.url(t)
		}
		a.stop()
		charged, done, again := c.settle(t, a.all...), 0, 0
		for _, d := range charged.tasks {
			if d.State == "done" {
				done++
			}
			again += len(d.Attempts) - 1
		}
		charged.requireSettled(t, agents...)
		require.Positive(t, done)
		counts := charged.doneBy()
		require.Len(t, counts, len(agents), "each agent has done some")
		t.Logf("%d tasks were accepted, %d of them done (%v), with %d further attempts; the agents' function ran %d times", len(a.all), done, counts, again, runner.runs.Load())
		p.stop(t)
	})
}

// submitters submit jobs until they are stopped.
type submitters struct {
	accepted atomic.Int64
	mu       sync.Mutex
	all      []*job // accepted jobs
	stop     func()
}

const submitterCount = 6

func startSubmitters(t *testing.T, c *client) *submitters {
	t.Helper()
	a := &submitters{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	var stopped atomic.Bool
	a.stop = func() { // a job is submitted until the server has answered
		stopped.Store(true)
		running.Wait()
	}
	t.Cleanup(func() {
		cancel()
		a.stop()
	})
	sender, err := comet.NewClient(c.URL, c.Token, c.HTTP)
	require.NoError(t, err)
	var n atomic.Int64
	for range submitterCount {
		running.Go(func() {
			for !stopped.Load() {
				j := newJob(int(n.Add(1)), 50)
				if !submitUntilAccepted(ctx, sender, j) {
					return
				}
				a.mu.Lock()
				a.all = append(a.all, j)
				a.mu.Unlock()
				a.accepted.Add(1)
			}
		})
	}
	return a
}
