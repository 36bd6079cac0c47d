package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/store/ledgercheck"
	"comet/store/storetest"
)

// TestCommittedEventsAreDeliveredAcrossKill9 kills the server repeatedly while clients change
// agents and record usage, and an unreliable receiver gets webhooks. Every acknowledged change must
// arrive, signed, under one id, and the ledger must add up. On PostgreSQL a second replica keeps
// running; deliveries leased by the killed one continue when the lease expires, after a minute at
// most.
func TestCommittedEventsAreDeliveredAcrossKill9(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := []setting{databaseOf(t, name), env("COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.1", "COMET_EVENTS_POLL_INTERVAL=50ms")}
			data := t.TempDir()
			p := serve(t, data, settings...)
			p.url(t)
			token := adminToken(t, data)
			var others []*client
			if name != "sqlite" { // only one server may open the file
				others = append(others, newClient(t, serve(t, t.TempDir(), settings...).url(t), token))
			}
			w := newUnreliableReceiver(t)
			s := &deliveryClients{unreliableReceiver: w, attempted: map[string]bool{}, acknowledged: map[string]bool{}}
			for round := range min(3, kills(t)) {
				c := newClient(t, p.url(t), token)
				hook := w.subscribe(t, c, round)
				done := s.flow(t, append([]*client{c, c, c}, others...), round)
				target := 20 + rand.IntN(60)
				eventually(t, func() bool { return w.count(hook) >= target }, "it is delivered")
				p.kill()
				done()
				p = serve(t, data, settings...)
			}
			c := newClient(t, p.url(t), token)
			require.EventuallyWithT(t, func(collect *assert.CollectT) { require.Empty(collect, w.missing()) }, 2*long, 20*time.Millisecond, "all events are delivered") // leases expire, deliveries are retried
			for _, hook := range w.hooks {
				w.requireDeliveredOnce(t, c, hook)
			}
			require.Empty(t, w.wrong)
			s.requireBalance(t, c)
			p.stop(t)
		})
	}
}

// deliveryClients is clients that create agents and record their usage.
type deliveryClients struct {
	*unreliableReceiver
	over atomic.Bool

	facts                   sync.Mutex
	attempted, acknowledged map[string]bool // usage facts by agent
}

// flow runs the clients until their server is killed; done stops the others and waits for all.
func (s *deliveryClients) flow(t *testing.T, clients []*client, round int) (done func()) {
	t.Helper()
	s.over.Store(false)
	var wg sync.WaitGroup
	for k, c := range clients {
		wg.Go(func() {
			for i := 0; !s.over.Load() && s.spend(t, c, fmt.Sprintf("spender-%d-%d-%d", round, k, i)); i++ {
			}
		})
	}
	return func() {
		s.over.Store(true)
		wg.Wait()
	}
}

// spend takes an agent through all events that a webhook receives; false means that the server is
// down.
func (s *deliveryClients) spend(t *testing.T, c *client, id string) bool {
	t.Helper()
	const tokens = 1_000_000 // exceeds the budget
	path := "/api/v1/agents/" + id
	if !s.ask(t, c, http.MethodPost, "/api/v1/agents", specialist(id), http.StatusCreated, "agent.created "+id) {
		return false
	}
	name := fmt.Sprintf("The %s, renamed", id)
	if !s.ask(t, c, http.MethodPatch, path, map[string]any{"name": name}, http.StatusOK, "agent.updated "+id+" name="+name) {
		return false
	}
	s.note(s.attempted, id)
	usage := map[string]any{"tokens": tokens, "request_id": id}
	if !s.ask(t, c, http.MethodPost, path+"/usage", usage, http.StatusCreated, "agent.budget_warning "+id, "agent.budget_exceeded "+id) {
		return false
	}
	s.note(s.acknowledged, id)
	return s.ask(t, c, http.MethodDelete, path, nil, http.StatusNoContent, "agent.deactivated "+id+" is_active=false")
}

func (s *deliveryClients) note(facts map[string]bool, id string) {
	s.facts.Lock()
	defer s.facts.Unlock()
	facts[id] = true
}

// ask sends a request. Once it is acknowledged, the facts must be delivered.
func (s *deliveryClients) ask(t *testing.T, c *client, method, path string, body any, want int, facts ...string) bool {
	t.Helper()
	hooks := s.subscribed()
	status, answer, err := c.do(context.Background(), method, path, body)
	if err != nil && status == 0 {
		return false
	}
	if status != want {
		t.Errorf("%s %s got status %d: %s", method, path, status, answer)
		return false
	}
	s.owe(hooks, facts...)
	return true
}

// requireBalance checks that the ledger adds up and has every acknowledged fact once.
func (s *deliveryClients) requireBalance(t *testing.T, c *client) {
	t.Helper()
	v := get[ledgercheck.Verification](t, c, "/api/v1/ledger/verify")
	require.Zero(t, v.Total, "%+v", v.Differences)
	require.NotEmpty(t, s.acknowledged)
	require.GreaterOrEqual(t, v.Facts, int64(len(s.acknowledged)))
	require.LessOrEqual(t, v.Facts, int64(len(s.attempted)))
}
