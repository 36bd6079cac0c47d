package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	v5 "comet/internal/wire/v5"
)

const (
	subscribers = 1000
	// publicationsPerHeartbeat is how many publications a subscriber receives between the messages that acknowledge them.
	publicationsPerHeartbeat = 25
)

// BenchmarkPublications measures how many receivers a second get a publication at least once, from the request to the arrival
// at the last of 1,000 WebSockets, against at most once. ms/event is the time of one event at most once.
func BenchmarkPublications(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		const stored, fleeting = "at least once", "at most once"
		m := measurement{name: "Publications", what: "receivers of publications, " + database, against: []comparison{{subject: fleeting, metric: "of_at_most_once"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			publish := connectSubscribers(b, startComet(b, newStorage(b, database), nil))
			var all []*subject
			for name, guarantee := range map[string]string{stored: "at-least-once", fleeting: "at-most-once"} {
				s := &subject{name: name, callers: 1, batch: func(b *testing.B) int {
					b.Helper()
					publish(b, guarantee)
					return subscribers
				}}
				if all = append(all, s); name == stored {
					all[0], all[len(all)-1] = s, all[0]
				}
			}
			return all
		}
		m.also = func(r rates) {
			b.ReportMetric(r.rate(stored), "receivers/s")
			b.ReportMetric(1000*subscribers/r.rate(fleeting), "ms/event")
			b.Logf("%s: %.0f receivers/s at least once (aim 5,000); an event reaches %d connections at most once in %.1f ms (aim 50)", database, r.rate(stored), subscribers, 1000*subscribers/r.rate(fleeting))
		}
		b.Run(database, func(b *testing.B) { results = append(results, m.run(b)...) })
	})
	printTable(os.Stdout, "Publications to 1,000 connections.", results)
}

// connectSubscribers connects agents that subscribe to everything. It returns a function that publishes and waits until all
// have received it.
func connectSubscribers(b *testing.B, s *cometServer) (publish func(b *testing.B, guarantee string)) {
	b.Helper()
	received := make(chan string, subscribers)
	for range subscribers {
		id, token := s.registerAgent(b, "v5", v5Work)
		var set struct{ Chosen bool }
		s.call(b, []byte(strings.Replace(string(post("/api/v1/agents/"+id+"/subscriptions", adminToken, []byte(`{"patterns":[{"pattern":"*"}]}`))), "POST", "PUT", 1)), 200, &set)
		conn := dialAgent(b, s.addr, "v5", token)
		require.NoError(b, conn.Write(detached(), websocket.MessageText, []byte("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=v5")))
		number := 1
		serveAgent(b, conn, func(ctx context.Context, text []byte) error {
			m, err := v5.Parse(string(text))
			if err != nil || m.Type != v5.Broadcast {
				return nil //nolint:nilerr // an ACK needs no reply
			}
			received <- string(m.Data)
			if number++; number%publicationsPerHeartbeat > 0 {
				return nil
			}
			return conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "M%d|%s>O1|H|T0|-|-|-|0|S0|-|load=5%%", number%v5.MaxNumber+1, m.To))
		})
		s.awaitOnline(b, id)
	}
	return func(b *testing.B, guarantee string) {
		b.Helper()
		var out struct{ Subscribers int }
		s.call(b, post("/api/v1/publications", adminToken, fmt.Appendf(nil, `{"type":"order.paid","payload":81,"guarantee":%q,"retry":{"initial_interval_ms":3600000}}`, guarantee)), 202, &out)
		require.Equal(b, subscribers, out.Subscribers)
		for range subscribers {
			testkit.Receive(b, received)
		}
	}
}
