package bench

import (
	"fmt"
	"net/http"
	"os"
	"testing"
)

// BenchmarkMessageLog compares the V5 round trip of BenchmarkProtocols with and without the
// message log: what the log costs. A server always has it.
func BenchmarkMessageLog(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		m := measurement{what: "round trips in results, " + database, against: []comparison{{subject: "not logged", metric: "of_not_logged"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			return []*subject{v5RoundTrips(b, database, "logged", true), v5RoundTrips(b, database, "not logged", false)}
		}
		results = append(results, m.run(b)...)
	})
	printTable(os.Stdout, fmt.Sprintf("%d callers, one worker of concurrency 256; messages are logged, or not.", protocolCallers), results)
}

// v5RoundTrips are V5 round trips with a separate server.
func v5RoundTrips(b *testing.B, database, name string, logs bool) *subject {
	b.Helper()
	h := openTaskServerWith(b, database, logs)
	h.startV5Worker(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: protocolCallers}}
	b.Cleanup(client.CloseIdleConnections)
	return &subject{name: name, callers: protocolCallers, slice: protocolSlice, do: func(int, int) error { return h.sendV5(client) }}
}
