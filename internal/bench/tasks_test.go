package bench

import (
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const (
	// taskSlice is the time of one subject in a round.
	taskSlice = 500 * time.Millisecond
	// acceptBatch is the number of requests of a slice of BenchmarkAccept. It is below the slots of
	// the workers.
	acceptBatch = 2000
	// aimedRequesters is the number of requesters whose ratios have an aim.
	aimedRequesters = 64
)

// The subjects of the benchmarks of tasks.
const (
	inEnvelopes   = "envelopes"
	inREST        = "REST"
	inV5          = "V5"
	inGenesis     = "Genesis, signed"
	bare          = "bare server"
	jetStreamName = "JetStream, sync always"
	earlier       = "before, envelopes"
)

// requesterCounts are the numbers of requesters that wait at the same time.
func requesterCounts() []int { return []int{1, 16, 64, 256} }

// BenchmarkTask measures the whole life of a task, from the POST of a request through a worker on a
// WebSocket that answers at once to the response with the result: in envelopes, over REST and in
// PROTOCOL_V5, against the bare server and against a JetStream work queue.
func BenchmarkTask(b *testing.B) {
	var results []result
	var times []latencies
	eachDatabase(b, func(b *testing.B, database string) {
		for _, requesters := range requesterCounts() {
			m := roundTripMeasurement(database, requesters, &times)
			b.Run(fmt.Sprint(requesters), func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, fmt.Sprintf("Requesters wait for the results of %d workers, which answer at once.", taskWorkers), results)
	printLatencies(os.Stdout, "Each call waits for the result. "+durability(b), times)
}

func roundTripMeasurement(database string, requesters int, times *[]latencies) measurement {
	m := measurement{what: fmt.Sprintf("%s, %d requesters", database, requesters)}
	m.against = []comparison{
		{subject: bare, metric: "of_bare"}, {subject: jetStreamName, metric: "of_jetstream"}, {subject: earlier, metric: "of_before"},
		{of: inREST, subject: inEnvelopes, metric: "rest_of_envelopes"}, {of: inV5, subject: inEnvelopes, metric: "v5_of_envelopes"},
		{subject: riverPipeline, metric: "of_river_pipeline"}, {subject: riverWaiting, metric: "of_river_waiting"},
	}
	if requesters == aimedRequesters && database == sqlite {
		m.against[0].aim, m.against[1].aim, m.against[2].aim = 0.6, 2, 3.5
	}
	if requesters == aimedRequesters {
		m.against[3].aim, m.against[4].aim = 0.85, 0.85
	}
	var names []string
	m.open = func(b *testing.B) []*subject {
		b.Helper()
		all := roundTripSubjects(b, database, requesters)
		for _, s := range all {
			names = append(names, s.name)
		}
		return all
	}
	m.also = func(r rates) {
		for _, name := range names {
			row := latencies{what: database, subject: name, callers: requesters, rate: r.rate(name), median: r.latency(name, .5), high: r.latency(name, .99), cpu: r.cpu(name)}
			if name == inEnvelopes && database == sqlite && requesters == 1 {
				row.most = 1.2
			}
			if name == inEnvelopes && database == postgres && requesters == aimedRequesters {
				row.least = 2000
			}
			*times = append(*times, row)
		}
	}
	return m
}

// roundTripSubjects starts the servers. JetStream, which has no database, runs beside SQLite, and
// River beside PostgreSQL.
func roundTripSubjects(b *testing.B, database string, requesters int) []*subject {
	b.Helper()
	comet := startComet(b, newStorage(b, database), nil)
	startEnvelopeWorkers(b, comet)
	startV5Workers(b, comet)
	all := []*subject{
		envelopeRoundTrips(b, inEnvelopes, comet.addr, requesters),
		envelopeRoundTrips(b, bare, startBareServer(b, database).addr, requesters),
		restRoundTrips(b, inREST, comet.addr, requesters),
		v5RoundTrips(b, inV5, comet.addr, requesters),
	}
	if database == sqlite {
		all = append(all, jetStreamRoundTrips(b, jetStreamName, requesters))
	} else {
		all = append(all, riverSubjects(b, requesters)...)
	}
	if old, ok := before(b, database); ok {
		startEnvelopeWorkers(b, old)
		s := envelopeRoundTrips(b, earlier, old.addr, requesters)
		s.cpu = old.cpu
		all = append(all, s)
	}
	return all
}

// BenchmarkAccept measures work_requests that are durable and assigned before the response, while
// the workers answer them, against the bare server; and signed REQUESTs of the Genesis protocol.
func BenchmarkAccept(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		m := measurement{what: "work_requests accepted, " + database, against: []comparison{
			{subject: bare, metric: "of_bare"}, {of: inGenesis, subject: inEnvelopes, metric: "genesis_of_envelopes", aim: 0.85},
		}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			comet, plain := startComet(b, newStorage(b, database), nil), startBareServer(b, database)
			answered, sent := startEnvelopeWorkers(b, comet), new(int64)
			envelope := func() []byte { return post("/api/agent/message", adminToken, workRequest(uuid.New())) }
			return []*subject{
				accepted(b, inEnvelopes, comet.addr, answered, sent, envelope),
				accepted(b, bare, plain.addr, &plain.answered, new(int64), envelope),
				accepted(b, inGenesis, comet.addr, answered, sent, signedRequests(b)),
			}
		}
		b.Run("message", func(b *testing.B) { results = append(results, m.run(b)...) })
	})
	printTable(os.Stdout, fmt.Sprintf("%d callers do not wait for results.", writers), results)
}

// accepted is a subject that sends requests and does not wait for their results. A slice begins when
// the workers have answered those of the one before. sent counts the requests of all subjects of a server.
func accepted(b *testing.B, name, addr string, answered *atomic.Int64, sent *int64, request func() []byte) *subject {
	b.Helper()
	callers, requests := newCallers(b, addr, writers), make([][]byte, acceptBatch)
	return &subject{
		name: name, callers: writers,
		prepare: func(b *testing.B) {
			b.Helper()
			require.Eventually(b, func() bool { return answered.Load() == *sent }, time.Minute, 5*time.Millisecond, "the workers of %s do not get all tasks", name)
			for i := range requests {
				requests[i] = request()
			}
		},
		batch: func(b *testing.B) int {
			b.Helper()
			*sent += acceptBatch
			var next atomic.Int64
			together(b, writers, writers, func(c int) error {
				for {
					n := next.Add(1)
					if n > acceptBatch {
						return nil
					}
					status, body, err := callers[c].exchange(requests[n-1])
					if err == nil && status != http.StatusAccepted {
						err = fmt.Errorf("%s: %d %s", name, status, body)
					}
					if err != nil {
						return err
					}
				}
			})
			return acceptBatch
		},
	}
}
