package bench

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

const (
	deliveries  = 4_000 // a slice
	atOnce      = 16    // attempts, the default
	baselineNet = "net/http's client"
)

// BenchmarkWebhooks measures received and recorded deliveries against a client that posts the same
// requests without storing anything.
func BenchmarkWebhooks(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		for _, o := range []models.Ordering{models.OrderingNone, models.OrderingAgent} {
			m := deliver(database, o)
			b.Run(string(o), func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, fmt.Sprintf("%d deliveries wait for one webhook, %d are made at a time.", deliveries, atOnce), results)
}

func deliver(database string, ordering models.Ordering) measurement {
	m := measurement{what: fmt.Sprintf("deliveries, ordering %s, %s", ordering, database), against: []comparison{{subject: baselineNet, metric: "of_net"}}}
	if database == sqlite && ordering == models.OrderingNone {
		m.against[0].aim = 0.7
	}
	m.open = func(b *testing.B) []*subject {
		b.Helper()
		p := openWebhookServer(b, database, ordering)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce, MaxConnsPerHost: atOnce, DisableCompression: true}}
		b.Cleanup(client.CloseIdleConnections)
		return []*subject{
			{name: "ours", callers: atOnce, prepare: p.emit, batch: p.deliver},
			{name: baselineNet, callers: atOnce, batch: func(b *testing.B) int {
				b.Helper()
				requests := p.receiver.requests()
				require.Len(b, requests, deliveries)
				require.NoError(b, repost(client, p.receiver.url, requests, atOnce))
				return len(requests)
			}},
		}
	}
	return m
}

// webhookServer is a server that delivers to one webhook.
type webhookServer struct {
	*testServer
	hooks    *webhooks.Webhooks // makes the deliveries
	hook     models.Webhook
	receiver *receiver
	emitted  int
}

func openWebhookServer(b *testing.B, database string, ordering models.Ordering) *webhookServer {
	b.Helper()
	p := &webhookServer{testServer: newServer(b, newDatabase(b, database)), receiver: openReceiver(b, deliveries)}
	p.hooks = webhooks.New(p.store, p.options())
	opts := &events.Options{Deliveries: p.hooks}
	relay := events.NewRelay(p.store, events.NewFeed(p.store, opts), opts)
	require.NoError(b, relay.Start(b.Context()))
	b.Cleanup(func() { require.NoError(b, relay.Stop(detached())) })
	created, err := p.hooks.Create(b.Context(), models.System(), webhooks.WebhookDraft{
		URL: &p.receiver.url, Events: []models.EventType{events.BudgetWarning}, Ordering: &ordering,
	}, nil)
	require.NoError(b, err)
	p.hook = created.Webhook
	b.Cleanup(func() { p.requireDelivered(b) })
	return p
}

// options allow the loopback interface.
func (p *webhookServer) options() *webhooks.Options {
	return &webhooks.Options{Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}), Concurrency: atOnce}
}

// emit commits events and waits until the relay has created their deliveries.
func (p *webhookServer) emit(b *testing.B) {
	b.Helper()
	for left := deliveries; left > 0; left -= 100 {
		require.NoError(b, p.store.Write(b.Context(), func(tx *store.Tx) error {
			for i := range 100 {
				agent := specialist((left + i) * 37 % 500)
				if err := tx.Events().Emit(events.BudgetWarning, agent, warning(agent)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	p.emitted += deliveries
	p.await(b, func() bool {
		waiting, err := p.store.Events(b.Context()).Pending()
		require.NoError(b, err)
		return !waiting
	})
}

// warning is the payload of an event (CHE·NU §9).
func warning(agent string) usage.BudgetAlert {
	return usage.BudgetAlert{
		AgentID: agent, Day: day().Format(time.DateOnly), Budget: 25_000, Scope: models.ScopeOwn, Used: 20_250, Remaining: 4_750, Percent: 81,
		ResetAt: day().Truncate(24 * time.Hour).Add(24 * time.Hour),
	}
}

// deliver starts the engine and returns when all deliveries are received and recorded.
func (p *webhookServer) deliver(b *testing.B) int {
	b.Helper()
	before := p.receiver.got.Load()
	engine := webhooks.New(p.store, p.options())
	require.NoError(b, engine.Start(b.Context()))
	p.await(b, func() bool {
		if p.receiver.got.Load()-before < deliveries {
			return false
		}
		pending, err := engine.Deliveries(b.Context(), models.System(), p.hook.ID, store.DeliveryQuery{State: models.DeliveryPending, Limit: 1})
		require.NoError(b, err)
		return len(pending) == 0
	})
	require.NoError(b, engine.Stop(detached()))
	return deliveries
}

// requireDelivered checks that every delivery is received and recorded.
func (p *webhookServer) requireDelivered(b *testing.B) {
	b.Helper()
	all, err := p.hooks.Deliveries(detached(), models.System(), p.hook.ID, store.DeliveryQuery{State: models.DeliverySucceeded, Limit: p.emitted + 1})
	require.NoError(b, err)
	require.Len(b, all, p.emitted)
}

// await polls every millisecond.
func (p *webhookServer) await(b *testing.B, done func() bool) {
	b.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-late:
			require.FailNow(b, "the deliveries do not finish")
		}
	}
}
