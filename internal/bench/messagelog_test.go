package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/telemetry"
	"comet/internal/transport"
	"comet/webhooks"
)

// loggedCallers are the callers of BenchmarkMessageLog.
const loggedCallers = 16

// BenchmarkMessageLog compares the V5 round trip of BenchmarkTask with and without the message log:
// what the log costs. A server always has it.
func BenchmarkMessageLog(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		m := measurement{what: "round trips in results, " + database, against: []comparison{{subject: "not logged", metric: "of_not_logged"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			logged, unlogged := openTaskServer(b, database, true), openTaskServer(b, database, false)
			startV5Workers(b, logged)
			startV5Workers(b, unlogged)
			return []*subject{v5RoundTrips(b, "logged", logged.addr, loggedCallers), v5RoundTrips(b, "not logged", unlogged.addr, loggedCallers)}
		}
		results = append(results, m.run(b)...)
	})
	printTable(os.Stdout, fmt.Sprintf("%d callers; messages are logged, or not.", loggedCallers), results)
}

// openTaskServer starts a server with or without the V5 message log.
func openTaskServer(b *testing.B, database string, logs bool) *cometServer {
	b.Helper()
	m := newServer(b, newDatabase(b, database))
	tokens := auth.New(m.store, nil)
	_, err := tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	feed := events.NewFeed(m.store, nil)
	work := orchestrator.New(m.store, m.ledger, &orchestrator.Options{
		Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy()}, Registry: m.registry, Feed: feed, MaxQueue: 1 << 30, MaxWaiters: 1 << 30, MaxWaitersPerToken: 1 << 30,
	})
	runner := jobs.New(m.store, nil)
	work.RegisterJobs(runner)
	messageBus, err := bus.New(nil)
	require.NoError(b, err)
	messages := messagelog.New(m.store, nil)
	options := v5.Options{MessageLog: messages}
	if !logs {
		options.MessageLog = nil
	}
	protocols := []protocol.Protocol{envelope.New(work, nil), v5.New(work, m.store, &options)}
	connections := transport.New(transport.Core{Work: work, Auth: tokens, Bus: messageBus, Protocols: protocols}, nil)
	var all background.Group
	all.Add("bus", messageBus)
	all.Add("relay", events.NewRelay(m.store, feed, nil))
	all.Add("work", work)
	all.Add("jobs", runner)
	all.Add("message log", messages)
	all.Add("connections", connections)
	require.NoError(b, all.Start(b.Context()))
	b.Cleanup(func() { require.NoError(b, all.Stop(detached())) })
	require.Eventually(b, func() bool { return work.Check(b.Context()) == nil }, time.Minute, 5*time.Millisecond)
	metrics := telemetry.NewMetrics(telemetry.Build{})
	core := api.Services{Registry: m.registry, Auth: tokens, Usage: m.ledger, Webhooks: webhooks.New(m.store, nil), Orchestrator: work, Feed: feed}
	core.Messages.AgentNumbers = func(ctx context.Context, ids []string) (map[string]int64, error) {
		return shortid.AgentNumbers(ctx, m.store, ids)
	}
	handler := api.New(core, &api.Options{
		Logger: accessLog(b), Measure: metrics.Measure(routePattern), Untimed: connections.IsStreaming, MountPublic: func(r chi.Router) { connections.Mount(r) },
	})
	addr := serve(b, handler)
	b.Cleanup(func() {
		connections.Drain()
		handler.Drain()
	})
	return &cometServer{addr: addr}
}
