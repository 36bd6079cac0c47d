package transport_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/transport"
	"comet/models"
)

// TestWhoCannotBeSpokenTo: an agent that the dialect does not accept is refused when it
// comes, and is given no work.
func TestWhoCannotBeSpokenTo(t *testing.T) {
	t.Parallel()
	runCase(t, "is refused on every way that comes over HTTP", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.protocol.rejectAgent("ada")
		for _, path := range []string{"/api/agent/inbox", "/api/agent/stream"} {
			a := h.do(t, "GET", path, token, "")
			require.Equal(t, http.StatusBadRequest, a.StatusCode, path)
			require.Contains(t, a.body, "invalid-request")
		}
		c, err := h.dial(t, token, "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusBadRequest, c.resp.StatusCode)
		require.Equal(t, http.StatusBadRequest, h.do(t, "PUT", pushPath, token, `{"url":"https://example.com/in"}`).StatusCode)
		require.False(t, online(h.CachedWorker("ada")))
	})
	runCase(t, "is not pushed to", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		h.protocol.rejectAgent("ada")
		m.respondWith("POST", http.StatusInternalServerError)
		h.enqueue(t, "ada", 1)
		h.waitForWorker(t, "ada", offline)
		m.respondWith("POST", http.StatusOK)
		before := m.probes()
		require.Eventually(t, func() bool { return m.probes() > before+3 }, time.Minute, time.Millisecond, "it is tried")
		require.Equal(t, models.WorkerOffline, h.CachedWorker("ada").State)
	})
	runNATSCase(t, "is refused on the queue, also where it was online", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		_, err := h.Join(t.Context(), "ada", joinRequest(transport.Poll, "poll"))
		require.NoError(t, err)
		h.protocol.rejectAgent("ada")
		require.Equal(t, "invalid-request", g.request(note{ID: "h1", Do: "present"}).Refused)
		h.waitForWorker(t, "ada", offline)
	})
}
