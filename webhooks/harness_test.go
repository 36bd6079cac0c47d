package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/events"
	"comet/internal/netguard"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, h *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, newFixture(t, db, nil)) })
	})
}

// overlapping runs one case on the databases that several replicas may share.
func overlapping(t *testing.T, name string, fn func(t *testing.T, h *fixture)) {
	t.Helper()
	for _, database := range storetest.Databases() {
		if database == "sqlite" {
			continue
		}
		t.Run(name+"/"+database, func(t *testing.T) {
			t.Parallel()
			fn(t, newFixture(t, storetest.Open(t, database), nil))
		})
	}
}

// fixture is one replica: a store, a relay and the webhooks, which are not started.
type fixture struct {
	*webhooks.Webhooks
	db *storetest.DB
}

func ops() models.Principal {
	return models.Principal{Name: "ops", Scopes: []models.Scope{models.ScopeWebhooksWrite}}
}

// options are those of a replica that looks often, because the clock is moved by hand,
// and whose retries come exactly when the schedule says.
func options() *webhooks.Options {
	return &webhooks.Options{
		Guard:   netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}),
		Timeout: time.Minute / 4, Poll: 10 * time.Millisecond, Random: func() float64 { return 0.5 },
	}
}

func newFixture(t *testing.T, db *storetest.DB, opts *webhooks.Options) *fixture {
	t.Helper()
	if opts == nil {
		opts = options()
	}
	h := &fixture{webhooks.New(db.Store, opts), db}
	relayOpts := &events.Options{Poll: 10 * time.Millisecond, Deliveries: h}
	relay := events.NewRelay(db.Store, events.NewFeed(db.Store, relayOpts), relayOpts)
	require.NoError(t, relay.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, h.Stop(context.Background()))
		require.NoError(t, relay.Stop(context.Background()))
	})
	return h
}

// replica is another fixture over the same database, started.
func (h *fixture) replica(t *testing.T, opts *webhooks.Options) *fixture {
	t.Helper()
	s, err := store.Open(t.Context(), h.db.Options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	db := *h.db
	db.Store = s
	other := newFixture(t, &db, opts)
	other.start(t)
	return other
}

func (h *fixture) start(t *testing.T) {
	t.Helper()
	require.NoError(t, h.Start(t.Context()))
}

// hook registers a webhook; change changes its draft.
func (h *fixture) hook(t *testing.T, url string, change func(d *webhooks.WebhookDraft)) models.Webhook {
	t.Helper()
	d := webhooks.WebhookDraft{URL: &url, Events: []models.EventType{events.AgentUpdated}}
	if change != nil {
		change(&d)
	}
	created, err := h.Create(t.Context(), ops(), d, nil)
	require.NoError(t, err)
	return created.Webhook
}

func ordered(d *webhooks.WebhookDraft) { d.Ordering = new(models.OrderingAgent) }

// emit commits one agent.updated for each key, in their order.
func (h *fixture) emit(t *testing.T, keys ...string) {
	t.Helper()
	require.NoError(t, emit(h.db.Store, events.AgentUpdated, keys...))
}

func emit(s *store.Store, kind models.EventType, keys ...string) error {
	return s.Write(context.Background(), func(tx *store.Tx) error {
		for i, key := range keys {
			if err := tx.Events().Emit(kind, key, map[string]any{"id": key, "n": i}); err != nil {
				return err
			}
		}
		return nil
	})
}

// deliveries returns all of a webhook's, the oldest first.
func (h *fixture) deliveries(t *testing.T, id string) []models.Delivery {
	t.Helper()
	all, err := h.Deliveries(context.Background(), ops(), id, store.DeliveryQuery{Limit: 100_000})
	require.NoError(t, err)
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// await waits until the deliveries of a webhook are as wanted.
func (h *fixture) await(t *testing.T, id string, want func(all []models.Delivery) bool, why ...any) []models.Delivery {
	t.Helper()
	var all []models.Delivery
	require.Eventually(t, func() bool {
		all = h.deliveries(t, id)
		return want(all)
	}, time.Minute, 2*time.Millisecond, why...)
	return all
}

// settled is what a webhook's deliveries are when n have ended.
func settled(n int) func([]models.Delivery) bool {
	return func(all []models.Delivery) bool {
		ended := 0
		for _, d := range all {
			if d.State != models.DeliveryPending {
				ended++
			}
		}
		return ended >= n
	}
}

func attempted(n int) func([]models.Delivery) bool {
	return func(all []models.Delivery) bool {
		sum := 0
		for _, d := range all {
			sum += d.Attempts
		}
		return sum >= n
	}
}

// request is what a receiver got.
type request struct {
	ID     string // webhook-id
	Key    string // the id in the data
	Type   string
	Status int // what it answered
}

// receiver is a server that receives deliveries.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	log []request
}

// receive starts a server that answers with what answer returns, 200 for nil; it is
// called with the lock held and may not block.
func receive(t *testing.T, answer func(r request, header http.Header) int) *receiver {
	t.Helper()
	rec := &receiver{}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := read(r)
		rec.mu.Lock()
		got.Status = http.StatusOK
		if answer != nil {
			got.Status = answer(got, w.Header())
		}
		rec.log = append(rec.log, got)
		rec.mu.Unlock()
		w.WriteHeader(got.Status)
	}))
	t.Cleanup(rec.Close)
	return rec
}

// always answers with one status.
func always(status int) func(request, http.Header) int {
	return func(request, http.Header) int { return status }
}

func read(r *http.Request) request {
	body, _ := io.ReadAll(r.Body)
	var payload struct {
		Type string `json:"type"`
		Data struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &payload); err != nil {
		return request{Type: fmt.Sprint(err)}
	}
	return request{ID: r.Header.Get("webhook-id"), Key: payload.Data.ID, Type: payload.Type}
}

func (r *receiver) got() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.log...)
}

// hang starts a server that tells of each request and answers it with the status once
// the returned function is called, at the latest at the end of the test.
func hang(t *testing.T, status int) (url string, arrived <-chan request, release func()) {
	t.Helper()
	requests, gate := make(chan request, 1000), make(chan struct{})
	var once sync.Once
	release = func() { once.Do(func() { close(gate) }) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- read(r)
		<-gate
		w.WriteHeader(status)
	}))
	t.Cleanup(func() { release(); server.Close() })
	return server.URL, requests, release
}

func take[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(time.Minute):
		require.FailNow(t, "nothing came")
	}
	return v
}

// receiveBlocking starts a server that answers with 200 once meet has returned.
func receiveBlocking(t *testing.T, meet func(r request)) *receiver {
	t.Helper()
	rec := &receiver{}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := read(r)
		meet(got)
		rec.mu.Lock()
		got.Status = http.StatusOK
		rec.log = append(rec.log, got)
		rec.mu.Unlock()
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(rec.Close)
	return rec
}

// receiveAsking starts a server that answers each request with the status that answer
// returns, in the request's own goroutine.
func receiveAsking(t *testing.T, answer func() int) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer()) }))
	t.Cleanup(server.Close)
	return server.URL
}

// watchedContext reports when a caller begins to wait for its end.
type watchedContext struct {
	context.Context
	once   sync.Once
	waited chan struct{}
}

func (c *watchedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	return c.Context.Done()
}

// sqliteFixture is for cases that have nothing to do with the database.
func sqliteFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, storetest.Open(t, "sqlite"), nil)
}

// sibling is a fixture over the same store; the caller stops it.
func sibling(h *fixture) *fixture { return &fixture{webhooks.New(h.db.Store, options()), h.db} }

// rotation asks for a secret, "" for a generated one.
func rotation(secret string, grace time.Duration) webhooks.SecretRotation {
	d := webhooks.SecretRotation{GraceSeconds: new(int64(grace / time.Second))}
	if secret != "" {
		d.Secret = &secret
	}
	return d
}
