package app_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
)

// TestWorkSurvivesKill9 ends the server as kill -9 does while askers ask and agents
// work, again and again on the same data. Every task that was taken on must end once, with
// its result, no tokens may stay held and none be charged twice. One of the agents speaks
// envelopes, one PROTOCOL_V5 on a WebSocket, and one over TCP.
func TestWorkSurvivesKill9(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, database setting) {
		data, address, text := t.TempDir(), freeAddress(t), freeAddress(t)
		p := serveAt(t, data, address, database, v5Listen(text))
		c := newClient(t, p.url(t), adminToken(t, data))
		var agents []string
		work := &jobRunner{tokens: 7}
		for dialect, works := range work.starters() {
			agents = append(agents, "infra-"+dialect)
			works(t, c.url, text, c.registerInfra(t, "infra-"+dialect, "job"), 4)
		}
		a := startSubmitters(t, c)
		for range kills(t) {
			target := a.accepted.Load() + 1 + rand.Int64N(80)
			eventually(t, func() bool { return a.accepted.Load() >= target }, "work is taken on")
			p.kill()
			p = serveAt(t, data, address, database, v5Listen(text))
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
		by := charged.doneBy()
		require.Len(t, by, len(agents), "each has done some")
		t.Logf("%d tasks were taken on, %d of them done (%v), with %d further attempts; the agents' function ran %d times", len(a.all), done, by, again, work.runs.Load())
		p.stop(t)
	})
}

// submitters ask for jobs until they are stopped.
type submitters struct {
	accepted atomic.Int64
	mu       sync.Mutex
	all      []*job // taken on
	stop     func()
}

const submitterCount = 6

func startSubmitters(t *testing.T, c *client) *submitters {
	t.Helper()
	a := &submitters{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	var stopped atomic.Bool
	a.stop = func() { // what was asked for is asked for until it is heard of
		stopped.Store(true)
		running.Wait()
	}
	t.Cleanup(func() {
		cancel()
		a.stop()
	})
	speak, err := comet.NewClient(c.url, c.token, c.http)
	require.NoError(t, err)
	var n atomic.Int64
	for range submitterCount {
		running.Go(func() {
			for !stopped.Load() {
				j := newJob(int(n.Add(1)), 50)
				if !submitUntilAccepted(ctx, speak, j) {
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
