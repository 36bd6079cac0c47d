package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
)

// sseStream is the open response of a stream.
type sseStream struct {
	resp  *http.Response
	lines *bufio.Scanner
}

// event returns the fields of the next event, nil at the end of the stream.
func (s *sseStream) event() map[string]string {
	fields := map[string]string{}
	for s.lines.Scan() {
		name, value, ok := strings.Cut(s.lines.Text(), ": ")
		switch {
		case ok && name != "":
			fields[name] = value
		case len(fields) > 0:
			return fields
		}
	}
	return nil
}

// stream sends a request and returns its response, a stream. Each stream has its own connection.
func stream(t *testing.T, url, token, method, body string, header ...string) *sseStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, url+Path, strings.NewReader(body))
	require.NoError(t, err)
	for i, h := 0, append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}, header...); i < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &sseStream{resp, bufio.NewScanner(resp.Body)}
}

// TestStreamsOfCallsResume checks that a client whose connection ends in the middle of a call receives
// every message once, also if the server does not know that the connection has ended.
func TestStreamsOfCallsResume(t *testing.T) {
	t.Parallel()
	steps := make(chan string)
	h := setup(t, func(d *Handler) {
		d.server.mcp.AddTool(&mcp.Tool{Name: "work", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for n := 1.0; ; n++ {
				step := ""
				select {
				case step = <-steps:
				case <-t.Context().Done(): // it has failed
				}
				if step == "" {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the result"}}}, nil
				}
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: n, Message: step})
			}
		})
	})
	e := endpoint{testkit.NewClient(t, h.url, h.token(t))}
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"progressToken":"p"}}}`
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		session := []string{"Mcp-Session-Id", e.begin(t, `{}`), "Mcp-Protocol-Version", version}
		for _, cut := range []bool{true, false} {
			go func() { steps <- "one" }() // without a priming event, the headers are sent with the first message
			first := stream(t, e.URL, e.Token, http.MethodPost, call, session...)
			var last map[string]string
			if version == "2025-11-25" {
				last = first.event()
				require.Equal(t, "1000", last["retry"])
				require.Empty(t, last["data"])
				require.NotEmpty(t, last["id"])
			}
			one := first.event()
			if last == nil {
				require.Equal(t, "1000", one["retry"])
			}
			require.Contains(t, one["data"], "one")
			require.NotEqual(t, last["id"], one["id"])
			if cut {
				require.NoError(t, first.resp.Body.Close())
			}
			steps <- "two"
			if !cut { // the new connection may end the old one before the message is sent
				require.Contains(t, first.event()["data"], "two")
			}
			second := stream(t, e.URL, e.Token, http.MethodGet, "", append(session, "Last-Event-ID", one["id"])...)
			require.Equal(t, http.StatusOK, second.resp.StatusCode)
			if !cut {
				require.Nil(t, first.event(), "the new connection replaces the old one")
			}
			require.Contains(t, second.event()["data"], "two")
			steps <- "three"
			require.Contains(t, second.event()["data"], "three")
			steps <- ""
			result := second.event()
			require.Contains(t, result["data"], "the result")
			require.Contains(t, result["data"], `"id":7`)
			require.Nil(t, second.event())

			again := stream(t, e.URL, e.Token, http.MethodGet, "", append(session, "Last-Event-ID", one["id"])...)
			for _, text := range []string{"two", "three", "the result"} {
				require.Contains(t, again.event()["data"], text, "a client that did not receive the response")
			}
			require.Nil(t, again.event())
			require.Nil(t, stream(t, e.URL, e.Token, http.MethodGet, "", append(session, "Last-Event-ID", result["id"])...).event())

			name, _, _ := strings.Cut(one["id"], "_")
			for id, words := range map[string]string{
				"x": "must be the id of an event", name + "_-1": "must be the id of an event",
				name + "_99": "cannot be resumed", "x_1": "cannot be resumed", "_1": "cannot be resumed",
			} {
				r := e.Do(t, http.MethodGet, Path, "", append(session, "Accept", "text/event-stream", "Last-Event-ID", id)...)
				requireRejected(t, r, http.StatusBadRequest, "INVALID_HEADER", words)
			}
			requireRejected(t, e.send(t, http.MethodPost, call, append(session, "Last-Event-ID", one["id"])...), http.StatusBadRequest, "INVALID_HEADER", "only a GET")
		}
	}

	t.Run("with the SDK", func(t *testing.T) {
		var mu sync.Mutex
		var connections []net.Conn
		transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			mu.Lock()
			defer mu.Unlock()
			connections = append(connections, c)
			return c, err
		}}
		told := make(chan string, 10)
		client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params.Message },
		})
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: e.URL + Path, HTTPClient: &http.Client{Transport: withToken{e.Token, transport}},
		}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		require.NoError(t, err)
		defer func() { _ = session.Close() }()
		go func() {
			steps <- "one"
			steps <- <-told + ", two"
			mu.Lock()
			for _, c := range connections {
				_ = c.Close()
			}
			mu.Unlock()
			steps <- <-told + ", three"
			steps <- ""
		}()
		params := &mcp.CallToolParams{Name: "work", Arguments: map[string]any{}}
		params.SetProgressToken("p")
		result, err := session.CallTool(t.Context(), params)
		require.NoError(t, err)
		require.Equal(t, "the result", result.Content[0].(*mcp.TextContent).Text)
		require.Equal(t, "one, two, three", <-told)
		require.Empty(t, told)
	})
}

// withToken adds a token to requests.
type withToken struct {
	token string
	next  http.RoundTripper
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(r)
}

// TestStreamsOfGetResume checks the stream of GET. A new one does not repeat messages.
func TestStreamsOfGetResume(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	token := h.token(t)
	session := []string{"Mcp-Session-Id", h.begin(t, token), "Mcp-Protocol-Version", "2025-11-25"}
	update := func(uri string) {
		resp, body := h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, session...)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		require.NoError(t, h.handler.server.mcp.ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: uri}))
	}
	first := stream(t, h.url, token, http.MethodGet, "", session...)
	prime := first.event()
	require.Equal(t, map[string]string{"retry": "1000", "event": "prime", "id": prime["id"], "data": ""}, prime)
	update("file:///one")
	one := first.event()
	require.Contains(t, one["data"], "file:///one")
	require.NoError(t, first.resp.Body.Close())
	update("file:///two")
	var last *sseStream
	for _, c := range []struct {
		id    string
		texts []string
	}{{prime["id"], []string{"one", "two"}}, {one["id"], []string{"two"}}} {
		last = stream(t, h.url, token, http.MethodGet, "", append(session, "Last-Event-ID", c.id)...)
		for _, text := range c.texts {
			require.Contains(t, last.event()["data"], text)
		}
		update("file:///three")
		require.Contains(t, last.event()["data"], "three")
	}

	require.NoError(t, last.resp.Body.Close())
	require.Eventually(t, func() bool {
		last = stream(t, h.url, token, http.MethodGet, "", session...)
		return last.resp.StatusCode == http.StatusOK
	}, soon, time.Millisecond)
	require.Equal(t, "prime", last.event()["event"])
	update("file:///four")
	require.Contains(t, last.event()["data"], "four", "a new stream does not repeat messages")

	resp, body := h.post(t, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", session[1])
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, id, _ := strings.Cut(body, "id: ")
	id, _, _ = strings.Cut(id, "\n")
	for _, id := range []string{id, prime["id"], one["id"]} {
		r := stream(t, h.url, h.token(t), http.MethodGet, "", append(session, "Last-Event-ID", id)...).resp
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, r.StatusCode, "%s", text)
		require.Contains(t, string(text), "FOREIGN_AGENT")
	}
}

// TestEventStoreLimits checks that whole streams are removed, the one with the oldest last event first.
func TestEventStoreLimits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	const size = 10_000
	s := newEventStore(func() time.Time { return now })
	s.maxOfSession, s.maxBytes = 5*size, 7*size
	add := func(session, id string) error { return s.Append(t.Context(), session, id, make([]byte, size)) }
	kept := func(session, id string, after int) (n int) {
		for _, err := range s.After(t.Context(), session, id, after) {
			if err != nil {
				require.ErrorIs(t, err, errNotKept)
				return -1
			}
			n++
		}
		return n
	}
	open := func(session string, ids ...string) {
		for _, id := range ids {
			require.NoError(t, s.Open(t.Context(), session, id))
		}
	}
	open("a", "", "1", "2")
	require.NoError(t, add("a", "1"))
	require.NoError(t, add("a", "2"))
	require.NoError(t, add("a", ""))
	require.NoError(t, add("a", "1"))
	open("a", "3")
	require.NoError(t, add("a", "3"))
	require.Equal(t, []int{2, -1, 1, 1}, []int{kept("a", "1", -1), kept("a", "2", -1), kept("a", "3", -1), kept("a", "", 0)}, "the limit of the session")
	require.ErrorIs(t, add("a", "2"), errNotKept)
	require.Equal(t, -1, kept("a", "1", 2), "an event that does not exist")

	open("b", "", "1")
	for range 3 {
		require.NoError(t, add("b", "1"))
	}
	require.Equal(t, []int{-1, 2, 1, 3}, []int{kept("a", "", 0), kept("a", "1", -1), kept("a", "3", -1), kept("b", "1", -1)}, "the limit of all sessions")
	require.Equal(t, "_1", s.lastEvent("a"))
	require.Equal(t, 0, kept("a", "", 1))
	require.NoError(t, add("a", ""))
	require.Equal(t, []int{-1, 1}, []int{kept("a", "", 0), kept("a", "", 1)}, "the stream of GET continues")

	require.ErrorIs(t, s.Append(t.Context(), "a", "3", make([]byte, 5*size)), errNotKept)
	require.Equal(t, -1, kept("a", "3", -1), "an event larger than the limit")

	now = now.Add(eventLifetime)
	require.NoError(t, add("b", "1"))
	now = now.Add(time.Second)
	require.NoError(t, add("b", "1"))
	require.Equal(t, []int{-1, 2}, []int{kept("b", "1", 1), kept("b", "1", 2)}, "old events of a stream")
	require.Equal(t, -1, kept("a", "", 1))
	now = now.Add(eventLifetime + time.Second)
	s.removeExpired()
	require.Zero(t, s.bytes)

	open("b", "2")
	require.NoError(t, add("b", "2"))
	require.NoError(t, s.SessionClosed(t.Context(), "b"))
	require.NoError(t, s.SessionClosed(t.Context(), "a"))
	require.NoError(t, s.Open(t.Context(), "b", "3"), "a request that arrives meanwhile")
	require.ErrorIs(t, add("b", "3"), errNotKept)
	require.Zero(t, s.bytes)
	require.Zero(t, s.recent.Len())
	require.Empty(t, s.sessions)
	require.Empty(t, s.lastEvent("b"))
}
