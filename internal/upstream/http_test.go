//go:build unix

package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/loopback"
	"comet/internal/upstream"
)

// serve starts an HTTP server that ends with the test, after its connections.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func sdkHandler(held chan<- error, o *mcp.StreamableHTTPOptions) http.Handler {
	server := newSDKServer(held)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
}

func TestEverythingElseOfAnAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options  mcp.StreamableHTTPOptions
		protocol string
	}{
		"Newest":        {mcp.StreamableHTTPOptions{Stateless: true}, "2026-07-28"},
		"Session":       {mcp.StreamableHTTPOptions{}, "2025-11-25"},
		"WholeMessages": {mcp.StreamableHTTPOptions{JSONResponse: true}, "2025-11-25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, sdkHandler(make(chan error, 1), &c.options))
			b := setup(t, upstream.Options{MaxMessage: 1 << 20}, upstream.Server{ID: "a", URL: server.URL})
			require.Equal(t, c.protocol, b.ready(t, "a").Protocol)
			everything(t, b)
		})
	}
}

func TestCancellationAndProgressOverHTTP(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*mcp.StreamableHTTPOptions{"Newest": {Stateless: true, PropagateRequestCancellation: true}, "Session": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := make(chan error, 1)
			b := setup(t, upstream.Options{}, upstream.Server{ID: "a", URL: serve(t, sdkHandler(held, o)).URL})
			ctx, cancel := context.WithCancel(t.Context())
			_, err := b.Call(ctx, "a", "held", nil, &upstream.CallOptions{Progress: func(p upstream.Progress) {
				if p.Progress == 1 && p.Total == 2 {
					cancel()
				}
			}})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, <-held, context.Canceled)
			require.Equal(t, "{}", b.call(t, "a", "echo", ""))
		})
	}
}

// TestProgressPrecedesTheResult checks that all progress that an upstream sends before a result is
// delivered before the call returns, even if the result follows immediately.
func TestProgressPrecedesTheResult(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]upstream.Server{
		"Stdio":    fakeServer("a", "sdk"),
		"Newest":   {ID: "a", URL: serve(t, sdkHandler(nil, &mcp.StreamableHTTPOptions{Stateless: true})).URL},
		"Sessions": {ID: "a", URL: serve(t, sdkHandler(nil, nil)).URL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, upstream.Options{}, server)
			for range 20 {
				var received []float64
				_, err := b.Call(t.Context(), "a", "steps", nil, &upstream.CallOptions{Progress: func(p upstream.Progress) { received = append(received, p.Progress) }})
				require.NoError(t, err)
				require.Len(t, received, 50)
				require.IsIncreasing(t, received)
			}
		})
	}
}

func TestHeadersGoToTheirAddressOnly(t *testing.T) {
	t.Parallel()
	var stolen atomic.Bool
	thief := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Store(true) }))
	var tokens sync.Map
	inner := sdkHandler(nil, nil)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
			return
		}
		if r.URL.Path == "/near" {
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
			return
		}
		tokens.Store(r.Header.Get("Authorization")+" "+r.Header.Get("X-Key"), true)
		inner.ServeHTTP(w, r)
	}))
	lookup := func(name string) (string, bool) { return "s3cr3t-value", name == "TOKEN" }
	def := upstream.Server{Bearer: "${TOKEN}", Headers: map[string]string{"x-key": "key-${env:TOKEN}"}}
	near, away := def, def
	near.ID, near.URL, away.ID, away.URL = "near", server.URL+"/near", "away", server.URL+"/away"
	b := setup(t, upstream.Options{LookupEnv: lookup}, near, away)
	b.ready(t, "near")
	require.Equal(t, "{}", b.call(t, "near", "echo", ""))
	tokens.Range(func(k, _ any) bool {
		require.Equal(t, "Bearer s3cr3t-value key-s3cr3t-value", k)
		return true
	})
	s := b.await(t, "away", func(s upstream.Status) bool { return s.Error != "" })
	require.Contains(t, s.Error, "it redirects to another host ("+strings.TrimPrefix(thief.URL, "http://")+"), which is not followed")
	require.False(t, stolen.Load())
}

func TestAHostileAddress(t *testing.T) {
	t.Parallel()

	t.Run("AnAnswerOverTheLimitOrBrokenFailsItsCallOnly", func(t *testing.T) {
		t.Parallel()
		for _, stream := range []bool{false, true} {
			b := setup(t, upstream.Options{MaxMessage: 100_000}, upstream.Server{ID: "a", URL: serve(t, rawHTTP(stream)).URL})
			b.ready(t, "a")
			_, err := b.Call(t.Context(), "a", "big", nil, nil)
			requireReason(t, upstream.ReasonTooLarge, err)
			_, err = b.Call(t.Context(), "a", "broken", nil, &upstream.CallOptions{Timeout: time.Second})
			require.Error(t, err)
			require.Equal(t, "ok", b.call(t, "a", "fine", ""))
			s := b.status(t, "a")
			require.Zero(t, s.Restarts)
			require.Len(t, s.Warnings, 1)
			require.Contains(t, s.Warnings[0], `message of the protocol; the first one began with "<html>"`)
		}
	})

	t.Run("ARefusalIsShown", func(t *testing.T) {
		t.Parallel()
		server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
		b := setup(t, upstream.Options{}, upstream.Server{ID: "a", URL: server.URL})
		s := b.await(t, "a", func(s upstream.Status) bool { return s.Error != "" })
		require.Contains(t, s.Error, "it responds 401 Unauthorized")
	})

	t.Run("TheErrorOfAnUnreachableOneHasItsCause", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(nil)
		gone.Close()
		b := setup(t, upstream.Options{}, upstream.Server{ID: "a", URL: gone.URL + "/mcp"})
		s := b.await(t, "a", func(s upstream.Status) bool { return s.Error != "" })
		require.Equal(t, "cannot connect to "+gone.URL+"/mcp: connection refused", s.Error)
	})

	t.Run("OneThatHasGoneIsNoticedAndFoundAgain", func(t *testing.T) {
		t.Parallel()
		address := loopback.Address(t)
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: sdkHandler(nil, &mcp.StreamableHTTPOptions{Stateless: true}), ReadHeaderTimeout: long}}
		server.Start()
		b := setup(t, upstream.Options{}, upstream.Server{ID: "a", URL: "http://" + address})
		b.ready(t, "a")
		server.CloseClientConnections()
		server.Close()
		_, err = b.Call(t.Context(), "a", "echo", nil, nil)
		requireReason(t, upstream.ReasonDown, err)
		b.await(t, "a", func(s upstream.Status) bool { return s.State == upstream.Failed })
		listener, err = net.Listen("tcp", address)
		require.NoError(t, err)
		again := &httptest.Server{Listener: listener, Config: &http.Server{Handler: sdkHandler(nil, &mcp.StreamableHTTPOptions{Stateless: true}), ReadHeaderTimeout: long}}
		again.Start()
		t.Cleanup(func() { again.CloseClientConnections(); again.Close() })
		b.ready(t, "a")
		require.Equal(t, "{}", b.call(t, "a", "echo", ""))
	})

	t.Run("AForgottenSessionIsBegunAgain", func(t *testing.T) {
		t.Parallel()
		var inner atomic.Pointer[http.Handler]
		renew := func() { h := sdkHandler(nil, nil); inner.Store(&h) }
		renew()
		b := setup(t, upstream.Options{}, upstream.Server{ID: "a", URL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			(*inner.Load()).ServeHTTP(w, r)
		})).URL})
		b.ready(t, "a")
		renew()
		_, err := b.Call(t.Context(), "a", "echo", nil, nil)
		require.Error(t, err)
		b.await(t, "a", func(s upstream.Status) bool { return isReady(s) && s.Restarts > 0 })
		require.Equal(t, "{}", b.call(t, "a", "echo", ""))
	})

}

// rawHTTP responds with hand-written JSON, as one message or as a stream of events.
func rawHTTP(stream bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var asked rpc
		if r.Method != http.MethodPost || json.Unmarshal(body, &asked) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if len(asked.ID) == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answer := func(result string) string {
			return fmt.Sprintf(`{"result":%s,"jsonrpc":"2.0","id":%s}`, result, asked.ID)
		}
		var text string
		switch {
		case asked.Method == "initialize":
			text = answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case asked.Method == "tools/list":
			text = answer(`{"tools":[` + tool("big") + "," + tool("broken") + "," + tool("fine") + `]}`)
		case asked.Params.Name == "big":
			text = answer(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 200_000) + `"}]}`)
		case asked.Params.Name == "broken":
			text = "<html>"
		case asked.Params.Name == "fine":
			text = answer(`{"content":[{"type":"text","text":"ok"}]}`)
		default:
			text = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, asked.ID)
		}
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, ": hello\nnonsense\n\nevent: message\ndata: %s\n\n", text)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	})
}
