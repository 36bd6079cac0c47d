package transport_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/transport"
	"comet/store/storetest"
)

// TestStoppingWhileLinesComeAndGo: nobody is forgotten who came at the last moment.
func TestStoppingWhileLinesComeAndGo(t *testing.T) {
	t.Parallel()
	runCase(t, "ends all of them", nil, func(t *testing.T, h *fixture) {
		var tokens []string
		for i := range 4 {
			tokens = append(tokens, h.agent(t, fmt.Sprintf("agent-%d", i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 12 { // several an agent, so that they replace each other too
			callers.Go(func() {
				for ctx.Err() == nil {
					if i%3 == 0 {
						_, _ = request(ctx, "GET", h.url+"/api/agent/inbox?wait=1", tokens[i%4], "")
						continue
					}
					conn, _, err := websocket.Dial(ctx, h.url+"/api/agent/connect", &websocket.DialOptions{
						HTTPHeader: http.Header{"Authorization": {"Bearer " + tokens[i%4]}},
					})
					if err != nil {
						continue
					}
					_, _, _ = conn.Read(ctx) // the hello
					if i%3 == 1 {
						_, _, _ = conn.Read(ctx) // the good-bye
					}
					_ = conn.CloseNow()
				}
			})
		}
		require.Eventually(t, func() bool { return h.metric(t, "comet_transport_connections", "websocket") > 2 }, time.Minute, time.Millisecond)
		require.NoError(t, h.transports.Stop(t.Context()))
		for _, link := range []string{"websocket", "poll"} {
			require.Zero(t, h.metric(t, "comet_transport_connections", link), link)
		}
		cancel()
		callers.Wait()
		require.NoError(t, h.transports.Stop(t.Context()), "twice is fine")
		h.transports.Drain()
	})
	runCase(t, "is fine before anything began", nil, func(t *testing.T, h *fixture) {
		require.NoError(t, h.transports.Start(t.Context()), "as is starting twice")
		require.NoError(t, h.transports.Stop(t.Context()))
	})
}

// TestAnInboxThatCannotBeReadIsSaidOnceAMinute: an operator sees a database that does not
// answer, and still has a log that can be read.
func TestAnInboxThatCannotBeReadIsSaidOnceAMinute(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const line = "cannot read inboxes"
		var log logBuffer
		h := openFixture(t, newBackend(t, db), &transport.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		ada, bob := h.connect(t, h.agent(t, "ada"), ""), h.connect(t, h.agent(t, "bob"), "")
		require.Empty(t, ada.barrier("a"))
		require.Empty(t, bob.barrier("b"))
		require.NoError(t, db.Close())

		h.OnWake(orchestrator.WakeInbox, "ada")
		require.Eventually(t, func() bool { return strings.Count(log.String(), line) == 1 }, time.Minute, time.Millisecond)
		h.OnWake(orchestrator.WakeInbox, "bob")
		db.Clock.Advance(time.Minute)
		require.Eventually(t, func() bool {
			h.OnWake(orchestrator.WakeInbox, "bob")
			return strings.Count(log.String(), line) == 2
		}, time.Minute, time.Millisecond)
		for range 100 {
			h.OnWake(orchestrator.WakeInbox, "bob")
		}
		require.Equal(t, 2, strings.Count(log.String(), line))
	})
}
