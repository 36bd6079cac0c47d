package bench

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"comet/models"
)

const (
	oneProcess   = "one process"
	twoProcesses = "two processes"
	earlierOne   = "before, one process"
)

// BenchmarkReplicas measures reserve and settle over HTTP on PostgreSQL, 64 callers on 500 agents, with
// one and with two processes of the real program on the same database and message bus.
func BenchmarkReplicas(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		if database == sqlite { // has one process
			return
		}
		path := buildProgram(b)
		m := measurement{what: "reserve and settle, " + database, against: []comparison{
			{of: twoProcesses, subject: oneProcess, metric: "two_of_one"},
			{of: oneProcess, subject: earlierOne, metric: "one_of_before", aim: 2}, {of: twoProcesses, subject: earlierOne, metric: "two_of_before", aim: 3.5},
		}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			all := []*subject{settledByProcesses(b, oneProcess, path, 1), settledByProcesses(b, twoProcesses, path, 2)}
			if old := os.Getenv("COMET_BENCH_BEFORE"); old != "" {
				all = append(all, settledByProcesses(b, earlierOne, old, 1))
			}
			return all
		}
		b.Run("Settle", func(b *testing.B) { results = append(results, m.run(b)...) })
	})
	printTable(os.Stdout, fmt.Sprintf("%d callers on 500 agents, processes with a common database.", writers), results)
}

// settledByProcesses is a subject whose callers are spread over processes of a program on a new
// database.
func settledByProcesses(b *testing.B, name, path string, processes int) *subject {
	b.Helper()
	data, bus := emptyStorage(b, postgres), startNATS(b)
	agents := tree{name: "flat", heads: 500}
	var callers []*caller
	var servers []*cometServer
	for n := range processes {
		s := startProgram(b, path, storage{database: postgres, dir: b.TempDir(), url: data.url}, "--nats-url", bus)
		servers = append(servers, s)
		if n == 0 {
			agents.insert(b, data.testDatabase().raw(b, 1))
		}
		callers = append(callers, newCallers(b, s.addr, writers/processes)...)
	}
	spend := &ledgerCallers{callers: callers, prefix: ours, agents: agents.all(models.LevelOrchestrator), last: new(atomic.Int64)}
	subject := spend.settled(name)
	subject.cpu = func() (total time.Duration) {
		for _, s := range servers {
			total += s.cpu()
		}
		return total
	}
	return subject
}

// startNATS starts a message bus for several processes and returns its URL.
func startNATS(b *testing.B) string {
	b.Helper()
	server, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	require.NoError(b, err)
	server.Start()
	b.Cleanup(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	require.True(b, server.ReadyForConnections(time.Minute), "nats-server does not start")
	return server.ClientURL()
}
