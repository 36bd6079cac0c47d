package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/webhooks/signature"
)

// unreliableReceiver receives several webhooks. It fails at most the first delivery of each event,
// so that the first retry delay is enough.
type unreliableReceiver struct {
	server *httptest.Server

	mu    sync.Mutex
	hooks []*receivedHook
	owed  []owed
	ids   map[string]string // webhook-id by fact, the same for all webhooks
	wrong []string
}

// receivedHook is what one webhook delivered.
type receivedHook struct {
	id, path string
	keys     *signature.Verifier
	bodies   map[string]string // by webhook-id
	facts    map[string]bool
	repeated int
}

// owed is an acknowledged fact that the first hooks webhooks must deliver.
type owed struct {
	fact  string
	hooks int
}

func newUnreliableReceiver(t *testing.T) *unreliableReceiver {
	t.Helper()
	w := &unreliableReceiver{ids: map[string]string{}}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

// subscribe creates a webhook with a given secret, every second one ordered.
func (w *unreliableReceiver) subscribe(t *testing.T, c *client, n int) *receivedHook {
	t.Helper()
	secret := signature.FormatSecret(signature.NewSecret())
	keys, err := signature.NewVerifier(secret)
	require.NoError(t, err)
	hook := &receivedHook{path: fmt.Sprintf("/%d", n), keys: keys, bodies: map[string]string{}, facts: map[string]bool{}}
	w.mu.Lock()
	w.hooks = append(w.hooks, hook)
	w.mu.Unlock()
	events := slices.DeleteFunc(events.ForWebhooks(), func(e models.EventType) bool { return e == events.WebhookDisabled })
	status, body, err := c.do(t.Context(), http.MethodPost, "/api/v1/webhooks", map[string]any{
		"url": w.server.URL + hook.path, "events": events, "secret": secret, "ordering": []models.Ordering{models.OrderingNone, models.OrderingAgent}[n%2],
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	var made struct{ ID string }
	require.NoError(t, json.Unmarshal(body, &made))
	hook.id = made.ID
	return hook
}

func (w *unreliableReceiver) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server was killed during the request
	}
	first, err := w.receive(r, body)
	if err != nil {
		w.mu.Lock()
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s: %v", r.URL.Path, body, err))
		w.mu.Unlock()
	}
	switch chance := rand.IntN(20); {
	case chance < 2 && first:
		rw.WriteHeader(http.StatusInternalServerError)
	case chance < 4:
		select {
		case <-time.After(time.Duration(rand.IntN(100)) * time.Millisecond):
		case <-r.Context().Done():
		}
	}
}

// receive verifies and records a request. first reports whether the event is new to its webhook.
func (w *unreliableReceiver) receive(r *http.Request, body []byte) (first bool, err error) {
	fact, err := factOf(body)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.hooks, func(h *receivedHook) bool { return h.path == r.URL.Path })
	if i < 0 {
		return false, fmt.Errorf("no webhook has this path")
	}
	hook := w.hooks[i]
	if err := hook.keys.Verify(r.Header, body, time.Now()); err != nil {
		return false, err
	}
	id := r.Header.Get(signature.HeaderID)
	if before, ok := w.ids[fact]; ok && before != id {
		return false, fmt.Errorf("it has the ids %s and %s", before, id)
	}
	w.ids[fact] = id
	before, known := hook.bodies[id]
	if known {
		hook.repeated++
		if before != string(body) {
			return false, fmt.Errorf("an earlier body differs: %s", before)
		}
	}
	hook.bodies[id], hook.facts[fact] = string(body), true
	return !known, nil
}

// factOf returns a key of the fact in a body.
func factOf(body []byte) (string, error) {
	var b struct {
		Type models.EventType
		Data struct {
			AgentID string `json:"agent_id"`
			Changes []models.Change
		}
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return "", err
	}
	fact := fmt.Sprintf("%s %s", b.Type, b.Data.AgentID)
	for _, c := range b.Data.Changes {
		fact += fmt.Sprintf(" %s=%v", c.Field, c.To)
	}
	return fact, nil
}

// owe records acknowledged facts that were requested when there were hooks webhooks.
func (w *unreliableReceiver) owe(hooks int, facts ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range facts {
		w.owed = append(w.owed, owed{f, hooks})
	}
}

func (w *unreliableReceiver) subscribed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.hooks)
}

// count returns the number of events a webhook delivered.
func (w *unreliableReceiver) count(hook *receivedHook) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(hook.bodies)
}

// missing returns the first owed fact that has not arrived, or "".
func (w *unreliableReceiver) missing() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.owed {
		for _, hook := range w.hooks[:o.hooks] {
			if !hook.facts[o.fact] {
				return hook.path + " " + o.fact
			}
		}
	}
	return ""
}

// deliveries reads all deliveries of a webhook.
func deliveries(t *testing.T, c *client, id, filter string) (all []models.Delivery) {
	t.Helper()
	type page struct {
		Deliveries []struct {
			ID      string
			EventID string `json:"event_id"`
			Status  models.DeliveryState
		}
		NextCursor string `json:"next_cursor"`
	}
	for cursor := ""; ; {
		p := get[page](t, c, "/api/v1/webhooks/"+id+"/deliveries?limit=1000"+filter+cursor)
		for _, d := range p.Deliveries {
			all = append(all, models.Delivery{ID: d.ID, EventID: d.EventID, State: d.Status})
		}
		if p.NextCursor == "" {
			return all
		}
		cursor = "&cursor=" + p.NextCursor
	}
}

// requireDeliveredOnce checks that a webhook has exactly one delivery for each received event.
func (w *unreliableReceiver) requireDeliveredOnce(t *testing.T, c *client, hook *receivedHook) {
	t.Helper()
	require.Eventually(t, func() bool { return len(deliveries(t, c, hook.id, "&status=pending")) == 0 }, long, 50*time.Millisecond, "no delivery is pending")
	rows := map[string]bool{}
	for _, d := range deliveries(t, c, hook.id, "") {
		require.Equal(t, models.DeliverySucceeded, d.State)
		require.False(t, rows[d.EventID], "%s has two deliveries", d.EventID)
		rows[d.EventID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, rows, len(hook.bodies))
	for id := range hook.bodies {
		require.True(t, rows[id], "%s has no delivery", id)
	}
	t.Logf("%s: %d events, %d repeated", hook.path, len(hook.bodies), hook.repeated)
}
