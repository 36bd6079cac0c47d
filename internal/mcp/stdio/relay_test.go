package stdio

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRelayRetriesInitialization checks that a relay whose new session is refused initializes one
// with a later request.
func TestRelayRetriesInitialization(t *testing.T) {
	t.Parallel()
	var session, refused atomic.Int64
	var full atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		here := fmt.Sprint(session.Load())
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.Contains(string(text), `"initialize"`) && full.Load():
			refused.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"too many sessions"}}`)
		case strings.Contains(string(text), `"initialize"`):
			w.Header().Set("Mcp-Session-Id", here)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`)
		case r.Header.Get("Mcp-Session-Id") != here:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"unknown session"}}`)
		case !strings.Contains(string(text), `"id"`):
			w.WriteHeader(http.StatusAccepted)
		default:
			var asked struct{ ID int }
			_ = json.Unmarshal(text, &asked)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{}}`, asked.ID)
		}
	}))
	t.Cleanup(srv.Close)
	ask, stop := startRelay(t, srv.URL)
	ping := func(id int) string { return ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, id)) }
	require.Contains(t, ask(initialize), "2025-11-25")
	require.Contains(t, ping(1), `"result"`)

	full.Store(true)
	session.Add(1) // the server was restarted
	require.Contains(t, ping(2), "too many sessions")
	require.Positive(t, refused.Load())
	full.Store(false)
	require.Contains(t, ping(3), `"result"`, "the server accepts sessions again")
	stop()
}

// startRelay starts a relay to a server. ask sends a line and returns the response; stop disconnects the client.
func startRelay(t *testing.T, url string) (ask func(text string) string, stop func()) {
	t.Helper()
	in, client := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(t.Context(), in, out, url, "token", slog.New(slog.DiscardHandler)) }()
	lines := bufio.NewReader(answers)
	ask = func(text string) string {
		_, err := io.WriteString(client, text+"\n")
		require.NoError(t, err)
		for {
			answer, err := lines.ReadString('\n')
			require.NoError(t, err)
			if !strings.Contains(answer, `"method"`) { // a notification
				return answer
			}
		}
	}
	return ask, func() {
		require.NoError(t, client.Close())
		go func() { _, _ = io.Copy(io.Discard, answers) }()
		require.NoError(t, <-done)
	}
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// TestRelayRepeatsAnIncompleteInitialization checks that a client gets its session although the first stream ends after
// its priming event, and an error if the second one does, too.
func TestRelayRepeatsAnIncompleteInitialization(t *testing.T) { // not parallel: another server's Close would close idle connections of http.DefaultTransport
	for incomplete, want := range map[int64]string{0: `"protocolVersion":"2025-11-25"`, 1: `"protocolVersion":"2025-11-25"`, 2: "its response is incomplete"} {
		var posts atomic.Int64
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			n := posts.Add(1)
			w.Header().Set("Mcp-Session-Id", fmt.Sprint(n))
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "event: prime\nid: a_0\ndata: \n\n")
			_ = http.NewResponseController(w).Flush()
			if n <= incomplete {
				panic(http.ErrAbortHandler) // closes the connection
			}
			_, _ = fmt.Fprint(w, "id: a_1\ndata: "+`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`+"\n\n")
		}))
		ask, stop := startRelay(t, srv.URL)
		require.Contains(t, ask(initialize), want)
		require.Equal(t, min(incomplete+1, 2), posts.Load())
		stop()
		srv.Close()
	}
}
