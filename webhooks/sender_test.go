package webhooks

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/netguard"
	"comet/models"
	"comet/webhooks/signature"
)

var sentAt = time.Date(2026, 1, 10, 15, 30, 42, 987_000_000, time.UTC)

// loopback allows what the receivers of these tests listen on.
func loopback() *netguard.Guard {
	return netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")})
}

// testSender has a long timeout, so that tests do not fail on slow machines.
func testSender(t testing.TB) *sender {
	t.Helper()
	s := newSender((&Options{Timeout: time.Minute, Guard: loopback(), UserAgent: "comet/v1.2.3"}).orDefaults())
	t.Cleanup(s.close)
	return s
}

// receiver starts a server on loopback.
func receiver(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func hookTo(url string) models.Webhook {
	return models.Webhook{ID: "hook", URL: url, Keys: models.WebhookKeys{Secret: key("n")}}
}

func delivery() models.Delivery {
	return models.Delivery{
		ID: "delivery", EventID: "01890a5d-ac96-774b-bcce-b302099a8057", Type: "agent.created",
		EventAt: time.Date(2026, 1, 10, 16, 30, 0, 123_456_000, time.FixedZone("CET", 3600)), Data: []byte(`{"z":1, "a":"<é>"}`),
	}
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	type request struct {
		*http.Request
		body []byte
	}
	received := make(chan request, 1)
	server := receiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- request{r.Clone(context.Background()), body}
	})
	out := testSender(t).send(t.Context(), hookTo(server.URL+"/in?x=1"), delivery(), sentAt)
	require.True(t, out.succeeded)
	require.Equal(t, models.DeliveryAttempt{At: sentAt, DurationMS: out.attempt.DurationMS, Status: 200}, out.attempt)

	got := <-received
	require.Equal(t, "POST /in?x=1", got.Method+" "+got.RequestURI)
	require.Equal(t, `{"type":"agent.created","timestamp":"2026-01-10T15:30:00.123456Z","data":{"z":1, "a":"<é>"}}`, string(got.body))
	v, err := signature.NewVerifier(signature.FormatSecret(key("n")))
	require.NoError(t, err)
	require.NoError(t, v.Verify(got.Header, got.body, sentAt))
	require.NotEmpty(t, got.Header.Get("Webhook-Signature"))
	got.Header.Del("Webhook-Signature")
	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"93"}, "User-Agent": {"comet/v1.2.3"},
		"Webhook-Id": {"01890a5d-ac96-774b-bcce-b302099a8057"}, "Webhook-Timestamp": {"1768059042"},
	}, got.Header)
}

func TestTheStatusDecides(t *testing.T) {
	t.Parallel()
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		for _, name := range []string{"Location", "Retry-After"} {
			if q.Has(name) {
				w.Header().Set(name, q.Get(name))
			}
		}
		status, err := strconv.Atoi(q.Get("status"))
		if err != nil {
			panic(err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, q.Get("body"))
	})
	s := testSender(t)
	for query, want := range map[string]attemptResult{
		"status=200&body=thanks":        {succeeded: true, attempt: models.DeliveryAttempt{ResponseExcerpt: "thanks"}},
		"status=204":                    {succeeded: true},
		"status=299":                    {succeeded: true},
		"status=200&Retry-After=60":     {succeeded: true},
		"status=304":                    {attempt: models.DeliveryAttempt{Error: "the server answered 304 Not Modified"}},
		"status=302&Location=/x":        {attempt: models.DeliveryAttempt{Error: "redirects are not followed: 302 to /x"}},
		"status=308&Location=http://h/": {attempt: models.DeliveryAttempt{Error: "redirects are not followed: 308 to http://h/"}},
		"status=400&body=no":            {attempt: models.DeliveryAttempt{Error: "the server answered 400 Bad Request", ResponseExcerpt: "no"}},
		"status=410":                    {gone: true, attempt: models.DeliveryAttempt{Error: "the server answered 410 Gone"}},
		"status=429&Retry-After=60":     {retryAfter: time.Minute, attempt: models.DeliveryAttempt{Error: "the server answered 429 Too Many Requests"}},
		"status=503&Retry-After=never":  {attempt: models.DeliveryAttempt{Error: "the server answered 503 Service Unavailable"}},
		"status=599":                    {attempt: models.DeliveryAttempt{Error: "the server answered 599"}},
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			got := s.send(t.Context(), hookTo(server.URL+"/?"+query), delivery(), sentAt)
			require.True(t, strings.HasPrefix(query, fmt.Sprintf("status=%d", got.attempt.Status)))
			got.attempt.Status, got.attempt.DurationMS, got.attempt.At = 0, 0, time.Time{}
			require.Equal(t, want, got)
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	target := receiver(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL+"/"+strings.Repeat("x", 500), http.StatusTemporaryRedirect)
	})
	out := testSender(t).send(t.Context(), hookTo(server.URL), delivery(), sentAt)
	require.False(t, out.succeeded)
	require.Equal(t, 307, out.attempt.Status)
	require.Regexp(t, `^redirects are not followed: 307 to http://127\.0\.0\.1:\d+/x{10,200}…$`, out.attempt.Error)
	require.Zero(t, hits.Load())
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 15, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "86400": 24 * time.Hour, "86401": 24 * time.Hour, "99999999999999999999": 24 * time.Hour,
		"-5": 0, "5.5": 0, "soon": 0, "1e3": 0, " ": 0,
		"Sat, 10 Jan 2026 15:32:00 GMT":    2 * time.Minute,
		"Saturday, 10-Jan-26 15:32:00 GMT": 2 * time.Minute, // RFC 850
		"Sat Jan 10 15:32:00 2026":         2 * time.Minute, // ANSI C
		"Sat, 10 Jan 2026 15:29:59 GMT":    0,
		"Tue, 10 Feb 2026 15:30:00 GMT":    24 * time.Hour,
	} {
		require.Equal(t, want, retryAfter(text, now), "%q", text)
	}
}

func TestTheGuardStandsBeforeEveryConnection(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := receiver(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	s := newSender((&Options{Timeout: time.Minute}).orDefaults())
	t.Cleanup(s.close)
	out := s.send(t.Context(), hookTo(server.URL), delivery(), sentAt)
	require.False(t, out.succeeded)
	require.Zero(t, out.attempt.Status)
	require.Equal(t, "127.0.0.1 is a loopback address; comet connects to it only if webhooks.allow_networks permits it", out.attempt.Error)
	require.Zero(t, hits.Load())
	require.Nil(t, s.transport.Proxy, "a proxy would connect for it")
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		most   int64
	}{
		"after an empty answer":         {"", 1},
		"after a long one":              {strings.Repeat("x", maxBody-1), 1},
		"but not after one without end": {strings.Repeat("x", 4*maxBody), 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var made atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					made.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			s := testSender(t)
			for range 20 {
				require.True(t, s.send(t.Context(), hookTo(server.URL), delivery(), sentAt).succeeded)
			}
			require.Equal(t, c.most, made.Load())
		})
	}
}

func BenchmarkSend(b *testing.B) {
	server := receiver(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	hook, d := hookTo(server.URL), delivery()
	d.Data = []byte(`{"id":"` + strings.Repeat("x", 400) + `"}`)
	b.Run("sender", func(b *testing.B) {
		s := testSender(b)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if out := s.send(context.Background(), hook, d, sentAt); !out.succeeded {
					b.Error(out.attempt.Error)
				}
			}
		})
	})
	b.Run("net/http", func(b *testing.B) {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}
		b.Cleanup(client.CloseIdleConnections)
		body := string(payload(d))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				resp, err := client.Post(hook.URL, "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	})
}

func TestOwnHeadersAndTimeout(t *testing.T) {
	t.Parallel()
	received, release := make(chan http.Header, 1), make(chan struct{})
	hook := hookTo(receiver(t, func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Clone() }).URL)
	hook.Headers = map[string]string{"authorization": "Bearer x", "X-Tenant": "a"}
	require.True(t, testSender(t).send(t.Context(), hook, delivery(), sentAt).succeeded)
	header := <-received
	require.Equal(t, "Bearer x", header.Get("Authorization"))
	require.Equal(t, "a", header.Get("X-Tenant"))

	hook = hookTo(receiver(t, func(http.ResponseWriter, *http.Request) { <-release }).URL)
	t.Cleanup(func() { close(release) })
	hook.TimeoutSeconds = 1
	out := testSender(t).send(t.Context(), hook, delivery(), sentAt)
	require.Contains(t, out.attempt.Error, "there was no answer within 1", "the sender's own limit is a minute")
}
