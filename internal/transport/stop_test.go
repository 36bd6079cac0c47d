package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
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
		require.Eventually(t, func() bool { return h.metric(t, "comet_link_lines", "websocket") > 2 }, time.Minute, time.Millisecond)
		require.NoError(t, h.transports.Stop(t.Context()))
		for _, link := range []string{"websocket", "poll"} {
			require.Zero(t, h.metric(t, "comet_link_lines", link), link)
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
