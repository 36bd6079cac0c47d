package webhooks_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store/storetest"
	"comet/webhooks"
)

func agentUpdated(label) models.EventType { return events.AgentUpdated }

// TestHangingReceiversDelayNoOthers: while many receivers keep their first attempt
// hanging, others get everything.
func TestHangingReceiversDelayNoOthers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const hanging, count = 2 * (10 / costly), 24 // all that the hanging ones get fits into what hang keeps
		opts := options()
		opts.Timeout = time.Hour // no attempt ends before the test lets it
		r := newRun(t, db, opts)
		url, arrived, release := hang(t, http.StatusOK)
		var stuck []models.Webhook
		for range hanging / 2 {
			stuck = append(stuck, r.hook(t, url, nil), r.hook(t, url, ordered))
		}
		var healthy []*subscriber
		for _, ordering := range []models.Ordering{models.OrderingNone, models.OrderingAgent} {
			var p *subscriber
			p = r.join(t, "healthy", []models.EventType{events.AgentUpdated}, ordering, func(w http.ResponseWriter, _ *http.Request, s sight) {
				p.say(w, s, http.StatusOK)
			})
			healthy = append(healthy, p)
		}
		r.start(t)
		r.emit(t, agents, 0, count/agents, agentUpdated)
		for range hanging {
			take(t, arrived)
		}
		r.emit(t, agents, count/agents, 2*count/agents, agentUpdated)

		for _, p := range healthy {
			all := r.await(t, p.hook.ID, settled(2*count))
			require.Empty(t, p.wrong)
			for _, d := range all {
				require.Equal(t, models.DeliverySucceeded, d.State)
				require.Equal(t, 1, d.Attempts)
			}
		}
		// The facts are in this order: the others had everything, and only then does any
		// of these have an answer.
		for _, hook := range stuck {
			for _, d := range r.deliveries(t, hook.ID) {
				require.Equal(t, models.DeliveryPending, d.State)
				require.Zero(t, d.Attempts)
			}
		}
		require.Empty(t, arrived, "whose first attempt hangs is not asked again meanwhile")
		release()
		for _, hook := range stuck {
			require.Len(t, r.await(t, hook.ID, settled(2*count)), 2*count)
		}
	})
}

// TestFiveDaysOfFailureEndAWebhook runs the schedule of an event every few hours
// through days of continuous failure.
func TestFiveDaysOfFailureEndAWebhook(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		r := newRun(t, db, options())
		watcher := receive(t, nil)
		watching := r.hook(t, watcher.URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.WebhookDisabled} })
		refusing := r.joinFailing(t, "refusing", models.OrderingNone, nil)
		inLine := r.joinFailing(t, "queued", models.OrderingAgent, nil)
		once := &onDayThree{run: r}
		lucky := r.joinFailing(t, "lucky", models.OrderingNone, once.now)
		absent := r.hook(t, unusedURL(t), nil)
		r.start(t)

		const day, often = 24 * time.Hour, costly * 6 * time.Hour
		ended := []string{refusing.hook.ID, inLine.hook.ID, absent.ID}
		for n := 0; db.Now().Sub(r.begun) < 5*day; n++ {
			r.requireFailing(t, r.begun, ended...)
			r.emit(t, 1, n, n+1, agentUpdated)
			r.drive(t, often)
		}
		r.emit(t, 1, 1000, 1001, agentUpdated)
		r.drive(t, 2*often)

		told := map[string]webhooks.WebhookDisabled{}
		for _, d := range r.deliveries(t, watching.ID) {
			full, _, err := r.Delivery(t.Context(), ops(), watching.ID, d.ID)
			require.NoError(t, err)
			var data webhooks.WebhookDisabled
			require.NoError(t, json.Unmarshal(full.Data, &data))
			require.NotContains(t, told, data.ID, "one event per webhook")
			told[data.ID] = data
		}
		require.Len(t, told, len(ended))
		require.Len(t, watcher.got(), len(ended))
		for _, id := range ended {
			r.requireEnded(t, id, told[id])
		}
		require.True(t, once.done)
		r.requireFailing(t, once.next, lucky.hook.ID)
	})
}

// joinFailing adds a receiver that responds with 500 unless well returns true.
func (r *run) joinFailing(t *testing.T, name string, ordering models.Ordering, well func() bool) *subscriber {
	t.Helper()
	var p *subscriber
	p = r.join(t, name, []models.EventType{events.AgentUpdated}, ordering, func(w http.ResponseWriter, _ *http.Request, s sight) {
		p.say(w, s, statusOf(well != nil && well()))
	})
	return p
}

// onDayThree makes a receiver succeed for one request.
type onDayThree struct {
	*run
	mu   sync.Mutex
	done bool
	next time.Time // the first failure after it
}

func (o *onDayThree) now() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.db.Now()
	switch {
	case !o.done && now.Sub(o.begun) > 3*24*time.Hour:
		o.done = true
		return true
	case o.done && o.next.IsZero():
		o.next = now
	}
	return false
}

// unusedURL returns a URL without a listener.
func unusedURL(t *testing.T) string {
	t.Helper()
	o := newOutage(t, http.NotFoundHandler())
	o.begin()
	require.True(t, strings.HasPrefix(o.addr, "127.0.0.1:"))
	_, err := net.Dial("tcp", o.addr)
	require.Error(t, err)
	return "http://" + o.addr
}

// requireFailing proves that webhooks fail since a time and are not ended.
func (r *run) requireFailing(t *testing.T, since time.Time, ids ...string) {
	t.Helper()
	for _, id := range ids {
		hook, err := r.Get(t.Context(), ops(), id)
		require.NoError(t, err)
		require.True(t, hook.Enabled)
		require.Empty(t, hook.DisabledReason)
		if since.Before(r.db.Now()) {
			require.NotNil(t, hook.FailingSince)
			require.Equal(t, since, *hook.FailingSince)
		}
	}
}

// requireEnded proves that a webhook was ended by the first failure after five days,
// that the event says so, and that nothing is kept for it from then on.
func (r *run) requireEnded(t *testing.T, id string, told webhooks.WebhookDisabled) {
	t.Helper()
	const patience = 5 * 24 * time.Hour
	hook, err := r.Get(t.Context(), ops(), id)
	require.NoError(t, err)
	require.False(t, hook.Enabled)
	require.Equal(t, "no delivery succeeded for 5 days", hook.DisabledReason)
	require.Equal(t, r.begun, *hook.FailingSince)
	require.GreaterOrEqual(t, hook.DisabledAt.Sub(r.begun), patience)
	require.Equal(t, webhooks.WebhookDisabled{ID: id, Origin: hook.URL, Description: hook.Description, Reason: hook.DisabledReason, FailingSince: &r.begun}, told)
	attempted := 0
	for _, d := range r.deliveries(t, id) {
		require.NotEqual(t, models.DeliverySucceeded, d.State)
		require.False(t, d.CreatedAt.After(*hook.DisabledAt))
		_, attempts, err := r.Delivery(t.Context(), ops(), id, d.ID)
		require.NoError(t, err)
		for _, a := range attempts {
			attempted++
			require.True(t, a.At.Sub(r.begun) < patience || a.At.Equal(*hook.DisabledAt), "the first failure after five days is the last one")
		}
	}
	require.Greater(t, attempted, 10)
}
