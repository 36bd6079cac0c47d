package bench

import (
	"fmt"
	"net/http"
	"os"
	"testing"
)

// BenchmarkJournal measures the round trip in lines of BenchmarkDoors, with the lines that
// are said kept, as they always are, against the same without that: what the trace costs.
func BenchmarkJournal(b *testing.B) {
	var lines []line
	eachDatabase(b, func(b *testing.B, database string) {
		m := measurement{what: "round trips in lines, " + database, against: []comparison{{subject: "not kept", metric: "of_not_kept"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			return []*subject{lineTrips(b, database, "kept", true), lineTrips(b, database, "not kept", false)}
		}
		lines = append(lines, m.run(b)...)
	})
	printTable(os.Stdout, fmt.Sprintf("%d askers, one worker of 256 places; the lines are kept, or not.", doorAskers), lines)
}

// lineTrips are round trips in lines in a house of their own.
func lineTrips(b *testing.B, database, name string, keeps bool) *subject {
	b.Helper()
	h := openMillThat(b, database, keeps)
	h.employV5(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: doorAskers}}
	b.Cleanup(client.CloseIdleConnections)
	return &subject{name: name, callers: doorAskers, slice: doorSlice, do: func(int, int) error { return h.line(client) }}
}
