package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/netguard"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

// newHooks returns the webhooks of a fixture, which deliver once they are started.
func newHooks(s *store.Store, loopback bool) *webhooks.Webhooks {
	var allow []netip.Prefix
	if loopback {
		allow = append(allow, netip.MustParsePrefix("127.0.0.0/8"))
	}
	return webhooks.New(s, &webhooks.Options{
		Guard: netguard.New(allow), Poll: 10 * time.Millisecond,
		Random: func() float64 { return 0.5 }, // no jitter
	})
}

// seedReceiver starts a server that answers with one status after the other.
func (p *transcriptPlayer) seedReceiver(name, statuses string) {
	p.t.Helper()
	answers := make([]int, 0, 1)
	for status := range strings.SplitSeq(statuses, ",") {
		answers = append(answers, p.number(status))
	}
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := min(int(count.Add(1)), len(answers)) - 1
		w.WriteHeader(answers[i])
		_, _ = io.WriteString(w, http.StatusText(answers[i]))
	}))
	p.t.Cleanup(server.Close)
	p.ids[name] = server.URL
}

// seedDeliver does what the relay does, then lets the webhooks deliver until
// nothing is due.
func (p *transcriptPlayer) seedDeliver() {
	p.t.Helper()
	p.h.numberEvents(p.t)
	p.h.deliverDue(p.t)
}

// numberEvents gives the events that were committed their positions and deliveries.
func (h *fixture) numberEvents(t testing.TB) {
	t.Helper()
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		after, upTo, err := tx.Events().Number(1000)
		if err != nil || after == upTo {
			return err
		}
		return h.webhooks.Numbered(tx, after, upTo)
	}))
}

// deliverDue delivers until nothing is due. The fixture's own webhooks are not
// started, so that nothing is sent at another time.
func (h *fixture) deliverDue(t testing.TB) {
	t.Helper()
	hooks := newHooks(h.db.Store, h.loopback)
	require.NoError(t, hooks.Start(t.Context()))
	for late := time.After(30 * time.Second); h.dueDeliveries(t); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-late:
			require.Fail(t, "something is still due")
		}
	}
	require.NoError(t, hooks.Stop(t.Context()))
}

// dueDeliveries reports whether an enabled webhook has something to deliver now.
func (h *fixture) dueDeliveries(t testing.TB) bool {
	t.Helper()
	hooks, err := h.webhooks.List(t.Context(), models.System(), "", 100)
	require.NoError(t, err)
	for _, hook := range hooks {
		pending, err := h.webhooks.Deliveries(t.Context(), models.System(), hook.ID, store.DeliveryQuery{State: models.DeliveryPending, Limit: 1000})
		require.NoError(t, err)
		for _, d := range pending {
			if hook.Enabled && d.NextAttemptAt != nil && !d.NextAttemptAt.After(h.db.Clock.Now()) {
				return true
			}
		}
	}
	return false
}
