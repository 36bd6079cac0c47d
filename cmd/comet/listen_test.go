package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/webhooks/signature"
)

const created = `{"type":"agent.created","timestamp":"2026-01-10T15:30:00Z","data":{"id":"finance-personal","name":"<b>"}}`

// text is a buffer that several goroutines write.
type sharedText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *sharedText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *sharedText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// listenerFixture is a receiver with its output.
type listenerFixture struct {
	*receiver
	secret     []byte
	out, notes sharedText
}

func listening(t *testing.T, format, forward string) *listenerFixture {
	t.Helper()
	e := &listenerFixture{secret: signature.NewSecret()}
	verifier, err := signature.NewVerifier(signature.FormatSecret(e.secret))
	require.NoError(t, err)
	f, err := parseForward(forward)
	require.NoError(t, err)
	out, err := newOutput(&e.out, format, false)
	require.NoError(t, err)
	e.receiver = newReceiver(verifier, f, &printer{out: out, messages: &e.notes})
	e.started.Store(true)
	return e
}

// signed is a request with a signature of comet.
func (e *listenerFixture) signed(t *testing.T, id, body string) *http.Request {
	t.Helper()
	now := time.Now()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"comet/1"}, "Webhook-Id": {id},
		"Webhook-Timestamp": {signature.Timestamp(now)}, "Webhook-Signature": {signature.Sign(e.secret, id, now, []byte(body))},
	}
	return req
}

func (e *listenerFixture) answer(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

func TestListenerPrints(t *testing.T) {
	t.Parallel()
	t.Run("time, event, agent and data for people", func(t *testing.T) {
		t.Parallel()
		e := listening(t, formatTable, "")
		require.Equal(t, http.StatusOK, e.answer(e.signed(t, "e1", created)).Code)
		require.Equal(t, http.StatusOK, e.answer(e.signed(t, "e2", `{"type":"agent.budget_warning","timestamp":"2026-01-10T15:31:00Z","data":{"agent_id":"a","x":"\u001b[2J"}}`)).Code)
		require.Equal(t, "2026-01-10T15:30:00Z  agent.created  finance-personal\n  {\"id\":\"finance-personal\",\"name\":\"<b>\"}\n"+
			"2026-01-10T15:31:00Z  agent.budget_warning  a\n  {\"agent_id\":\"a\",\"x\":\"\\u001b[2J\"}\n", e.out.String())
	})
	t.Run("control characters escaped", func(t *testing.T) {
		t.Parallel()
		text := received{Type: "agent.created\x1b[2J", Timestamp: "t", Data: []byte(`{"id":"a\u009b"}`)}.forPeople()
		require.Equal(t, `t  agent.created\u001b[2J  a\u009b`+"\n  "+`{"id":"a\u009b"}`+"\n", text)
	})
	t.Run("one JSON document per line", func(t *testing.T) {
		t.Parallel()
		e := listening(t, formatJSON, "")
		e.answer(e.signed(t, "e1", created))
		require.Equal(t, `{"id":"e1",`+created[1:]+"\n", e.out.String())
	})
	t.Run("YAML documents", func(t *testing.T) {
		t.Parallel()
		e := listening(t, formatYAML, "")
		e.answer(e.signed(t, "e1", created))
		require.Equal(t, "---\nid: e1\ntype: agent.created\ntimestamp: \"2026-01-10T15:30:00Z\"\ndata:\n  id: finance-personal\n  name: <b>\n", e.out.String())
	})
	t.Run("a redelivered event once", func(t *testing.T) {
		t.Parallel()
		e := listening(t, formatJSON, "")
		for range 3 {
			require.Equal(t, http.StatusOK, e.answer(e.signed(t, "e1", created)).Code)
		}
		require.Equal(t, 1, strings.Count(e.out.String(), "\n"))
	})
	t.Run("no test event of its own, but those of others", func(t *testing.T) {
		t.Parallel()
		e := listening(t, formatJSON, "http://127.0.0.1:1/closed")
		e.started.Store(false)
		const test = `{"type":"webhook.test","timestamp":"2026-01-10T15:30:00Z","data":{}}`
		require.Equal(t, http.StatusOK, e.answer(e.signed(t, "t1", test)).Code)
		require.Empty(t, e.out.String())
		e.forward = nil
		e.started.Store(true)
		require.Equal(t, http.StatusOK, e.answer(e.signed(t, "t2", test)).Code)
		require.Contains(t, e.out.String(), "webhook.test")
	})
}

func TestListenerRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*http.Request) *http.Request
		body   string
		status int
		want   string // "" for nothing
	}{
		"another signature": {func(r *http.Request) *http.Request {
			r.Header.Set("Webhook-Signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
			return r
		}, created, 401, "no signature matches"},
		"no signature":    {func(r *http.Request) *http.Request { r.Header.Del("Webhook-Signature"); return r }, created, 401, "webhook-signature is missing"},
		"another id":      {func(r *http.Request) *http.Request { r.Header.Set("Webhook-Id", "e2"); return r }, created, 401, "no signature matches"},
		"another body":    {func(r *http.Request) *http.Request { r.Body = io.NopCloser(strings.NewReader("{}")); return r }, created, 401, "no signature matches"},
		"an old request":  {func(r *http.Request) *http.Request { r.Header.Set("Webhook-Timestamp", "1768059000"); return r }, created, 401, "the attempt is too old"},
		"a body too long": {nil, `"` + strings.Repeat("x", maxEvent) + `"`, 413, ""},
		"no event":        {nil, `[]`, 400, "cannot unmarshal"},
		"a GET":           {func(r *http.Request) *http.Request { r.Method = http.MethodGet; return r }, created, 405, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := listening(t, formatTable, "")
			req := e.signed(t, "e1", c.body)
			if c.change != nil {
				req = c.change(req)
			}
			require.Equal(t, c.status, e.answer(req).Code)
			require.Empty(t, e.out.String(), "an invalid request is not printed")
			if c.want == "" {
				require.Empty(t, e.notes.String())
			} else {
				require.Regexp(t, `^rejected a request from 192\.0\.2\.1:1234: .*`+c.want, e.notes.String())
			}
		})
	}
}

func TestListenerForwards(t *testing.T) {
	t.Parallel()
	t.Run("forwards the request unchanged and returns the response", func(t *testing.T) {
		t.Parallel()
		var got *http.Request
		var body []byte
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Clone(r.Context())
			body, _ = io.ReadAll(r.Body)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "later")
		}))
		t.Cleanup(other.Close)
		e := listening(t, formatTable, other.URL+"/hook?a=b")
		req := e.signed(t, "e1", created)
		req.Header.Set("Connection", "close")
		answer := e.answer(req)
		require.Equal(t, http.StatusServiceUnavailable, answer.Code)
		require.Equal(t, "7", answer.Header().Get("Retry-After"))
		require.Equal(t, "later", answer.Body.String())
		require.Equal(t, "/hook?a=b", got.RequestURI)
		require.Equal(t, created, string(body))
		for name := range e.signed(t, "e1", created).Header {
			require.Equal(t, req.Header.Values(name), got.Header.Values(name), name)
		}
		require.Regexp(t, `finance-personal  -> 503 Service Unavailable in \d+ ms\n`, e.out.String())
	})
	t.Run("forwards an event until it is accepted", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int64
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		t.Cleanup(other.Close)
		e := listening(t, formatJSON, other.URL)
		for _, want := range []int{500, 200, 200} {
			require.Equal(t, want, e.answer(e.signed(t, "e1", created)).Code)
		}
		require.EqualValues(t, 2, calls.Load())
		require.Equal(t, 2, strings.Count(e.out.String(), "\n"))
	})
	t.Run("responds 502 if the other server is down", func(t *testing.T) {
		t.Parallel()
		socket, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := socket.Addr().String()
		require.NoError(t, socket.Close())
		e := listening(t, formatJSON, "http://user:password@"+address)
		require.Equal(t, http.StatusBadGateway, e.answer(e.signed(t, "e1", created)).Code)
		var shown received
		require.NoError(t, json.Unmarshal([]byte(e.out.String()), &shown))
		require.Contains(t, shown.Forwarded.Error, "refused")
		require.NotContains(t, e.out.String(), "password")
	})
	t.Run("returns redirects", func(t *testing.T) {
		t.Parallel()
		other := httptest.NewServer(http.RedirectHandler("/elsewhere", http.StatusFound))
		t.Cleanup(other.Close)
		e := listening(t, formatJSON, other.URL)
		require.Equal(t, http.StatusFound, e.answer(e.signed(t, "e1", created)).Code)
	})
	t.Run("requires a URL", func(t *testing.T) {
		t.Parallel()
		for _, address := range []string{"localhost:3000", "/webhook", "ftp://127.0.0.1/", "http://", "%"} {
			_, err := parseForward(address)
			require.Equal(t, exitUsage, exitCode(err), address)
		}
	})
}

func TestListenerForgetsOldEvents(t *testing.T) {
	t.Parallel()
	r := newReceiver(nil, nil, nil)
	for i := range maxSeen + 1 {
		require.True(t, r.remember(time.Unix(int64(i), 0).String()))
	}
	require.Equal(t, maxSeen, r.seen.Len())
	require.False(t, r.remember(time.Unix(1, 0).String()))
	require.True(t, r.remember(time.Unix(0, 0).String()), "the oldest is forgotten")
}
