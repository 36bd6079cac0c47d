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
	rule(t, "is refused on every way that comes over HTTP", nil, func(t *testing.T, h *house) {
		token := h.agent(t, "ada")
		h.speech.refuses("ada")
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
	rule(t, "is not pushed to", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		h.speech.refuses("ada")
		m.answer("POST", http.StatusInternalServerError)
		h.tell(t, "ada", 1)
		h.worker(t, "ada", offline)
		m.answer("POST", http.StatusOK)
		before := m.probes()
		require.Eventually(t, func() bool { return m.probes() > before+3 }, time.Minute, time.Millisecond, "it is tried")
		require.Equal(t, models.WorkerOffline, h.CachedWorker("ada").State)
	})
	onQueue(t, "is refused on the queue, also where it was online", nil, func(t *testing.T, h *house, b *bus.Bus) {
		g := visit(t, b, "ada", h.agent(t, "ada"))
		_, err := h.Join(t.Context(), "ada", joining(transport.Poll, "poll"))
		require.NoError(t, err)
		h.speech.refuses("ada")
		require.Equal(t, "invalid-request", g.ask(note{ID: "h1", Do: "present"}).Refused)
		h.worker(t, "ada", offline)
	})
}
