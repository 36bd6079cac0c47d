package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// TestStopWhileAgentsConnect: Stop ends connections that are opened at the last moment.
func TestStopWhileAgentsConnect(t *testing.T) {
	t.Parallel()
	runCase(t, "ends every connection", nil, func(t *testing.T, f *fixture) {
		var tokens []string
		for i := range 4 {
			tokens = append(tokens, f.agent(t, fmt.Sprintf("agent-%d", i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 12 { // several for each agent, which replace each other
			callers.Go(func() {
				for ctx.Err() == nil {
					if i%3 == 0 {
						_, _ = request(ctx, "GET", f.url+"/api/agent/inbox?wait=1", tokens[i%4], "")
						continue
					}
					conn, _, err := websocket.Dial(ctx, f.url+"/api/agent/connect", &websocket.DialOptions{
						HTTPHeader: http.Header{"Authorization": {"Bearer " + tokens[i%4]}},
					})
					if err != nil {
						continue
					}
					_, _, _ = conn.Read(ctx) // the hello
					if i%3 == 1 {
						_, _, _ = conn.Read(ctx) // the bye
					}
					_ = conn.CloseNow()
				}
			})
		}
		require.Eventually(t, func() bool { return f.metric(t, "comet_transport_connections", "websocket") > 2 }, time.Minute, 5*time.Millisecond)
		require.NoError(t, f.transports.Stop(t.Context()))
		for _, name := range []string{"websocket", "poll"} {
			require.Zero(t, f.metric(t, "comet_transport_connections", name), name)
		}
		cancel()
		callers.Wait()
		require.NoError(t, f.transports.Stop(t.Context()), "twice is fine")
		f.transports.Drain()
	})
	runCase(t, "succeeds without connections", nil, func(t *testing.T, f *fixture) {
		require.NoError(t, f.transports.Start(t.Context()), "as is starting twice")
		require.NoError(t, f.transports.Stop(t.Context()))
	})
}

// TestReasonIsLogged: a response to a token without permission does not give the reason, so the log
// does.
func TestReasonIsLogged(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var log logBuffer
		f := openFixture(t, startWork(t, db), &transport.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		token := f.token(t, "", models.ScopeAdmin)
		for _, path := range []string{"/api/agent/inbox", "/api/agent/connect"} {
			require.Equal(t, http.StatusUnauthorized, f.do(t, "GET", path, token.Secret, "").StatusCode)
			require.Contains(t, log.String(), `level=INFO msg="a request was refused" reason="the token `)
			require.Contains(t, log.String(), `is bound to no agent; this endpoint is for agents" path=`+path)
		}
		require.NotContains(t, log.String(), token.Secret)
	})
}

// TestInboxFailureIsLoggedOnceAMinute: the log shows that the database is unavailable and stays
// readable.
func TestInboxFailureIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const text = "cannot read inboxes"
		var log logBuffer
		f := openFixture(t, startWork(t, db), &transport.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		ada, bob := f.connect(t, f.agent(t, "ada"), ""), f.connect(t, f.agent(t, "bob"), "")
		require.Empty(t, ada.barrier("a"))
		require.Empty(t, bob.barrier("b"))
		require.NoError(t, db.Close())

		f.OnWake(orchestrator.WakeInbox, "ada")
		require.Eventually(t, func() bool { return strings.Count(log.String(), text) == 1 }, time.Minute, 5*time.Millisecond)
		f.OnWake(orchestrator.WakeInbox, "bob")
		db.Clock.Advance(time.Minute)
		require.Eventually(t, func() bool {
			f.OnWake(orchestrator.WakeInbox, "bob")
			return strings.Count(log.String(), text) == 2
		}, time.Minute, 5*time.Millisecond)
		for range 100 {
			f.OnWake(orchestrator.WakeInbox, "bob")
		}
		require.Equal(t, 2, strings.Count(log.String(), text))
	})
}

// brokenWriter is the response writer of an agent that has disconnected after its request.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, net.ErrClosed }

// Hijack returns a connection that the agent has closed.
func (brokenWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	server, agent := net.Pipe()
	err := agent.Close()
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), err
}

// TestFailedHello: an agent that cannot receive the hello frame has joined, and goes offline.
func TestFailedHello(t *testing.T) {
	t.Parallel()
	for via, path := range map[string]string{transport.WebSocket: "connect", transport.SSE: "stream"} {
		runCase(t, "takes the agent offline/"+via, nil, func(t *testing.T, f *fixture) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/agent/"+path, nil)
			req.Header = http.Header{
				"Authorization": {"Bearer " + f.agent(t, "ada")}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"},
				"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
			}
			f.server.Config.Handler.ServeHTTP(brokenWriter{httptest.NewRecorder()}, req)
			w := f.WaitForWorker(t, "ada", offline)
			require.Equal(t, via, w.Transport, "it had joined")
			f.waitForMetric(t, 0, "comet_transport_connections", via)
		})
	}
}
