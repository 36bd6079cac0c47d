package transport_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/httpkit"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

const messagePath = "/api/agent/message"

func TestPostMessage(t *testing.T) {
	t.Parallel()
	runCase(t, "passes the message to the protocol and returns its reply", nil, func(t *testing.T, f *fixture) {
		a := f.do(t, "POST", messagePath, f.agent(t, "ada"), `{"id":"m1","do":"reply"}`, "Content-Type", "application/json; charset=utf-8")
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Equal(t, "/made/m1", a.Header.Get("Location"))
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.JSONEq(t, `{"reply":"m1"}`, a.body)
		received := f.protocol.messages()
		require.Equal(t, `{"id":"m1","do":"reply"}`, received[0].raw)
		require.Equal(t, "ada", *received[0].from.AgentID)
		f.waitForMetric(t, 1, "comet_transport_messages_total", "in", "http")
	})
	runCase(t, "requires an agent or the scope messages:send", nil, func(t *testing.T, f *fixture) {
		for scope, status := range map[models.Scope]int{
			models.ScopeMessagesSend: 202, models.ScopeAdmin: 202, models.ScopeTasksRead: 401, models.ScopeAgentsWrite: 401,
		} {
			a := f.do(t, "POST", messagePath, f.token(t, "", scope).Secret, `{"id":"m1"}`)
			require.Equal(t, status, a.StatusCode, scope)
		}
	})
	runCase(t, "returns the refusal of the protocol", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		a := f.do(t, "POST", messagePath, token, `{"id":"m1","do":"refuse"}`)
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, "invalid-request")
		a = f.do(t, "POST", messagePath, token, `{"id":"m1"}`, "Content-Type", "text/plain")
		require.Equal(t, http.StatusUnsupportedMediaType, a.StatusCode)
		require.Contains(t, a.body, "unsupported-media-type")
		require.Len(t, f.protocol.messages(), 1)
	})
	runCase(t, "limits the length of a message", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		body := func(size int) string { return `{"id":"` + strings.Repeat("x", size-len(`{"id":""}`)) + `"}` }
		require.Equal(t, http.StatusAccepted, f.do(t, "POST", messagePath, token, body(transport.MaxMessageBytes)).StatusCode)
		a := f.do(t, "POST", messagePath, token, body(transport.MaxMessageBytes+1))
		require.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
		require.Contains(t, a.body, "body-too-large")
	})
	runCase(t, "waits as long as Prefer says, at most a minute", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		for prefer, want := range map[string]struct {
			wait    time.Duration
			applied string
		}{
			"":                           {0, ""},
			"wait=7":                     {7 * time.Second, "wait=7"},
			"respond-async, Wait=8; x=1": {8 * time.Second, "wait=8"},
			`wait="9"`:                   {9 * time.Second, "wait=9"},
			"wait=3600":                  {time.Minute, "wait=60"},
			"wait=4294967296":            {time.Minute, "wait=60"},
			"wait=soon,;":                {0, ""},
		} {
			before := len(f.protocol.messages())
			a := f.do(t, "POST", messagePath, token, `{"id":"m1"}`, "Prefer", prefer)
			require.Equal(t, want.applied, a.Header.Get("Preference-Applied"), prefer)
			require.Equal(t, want.wait, f.protocol.messages()[before].wait, prefer)
		}
	})
	runCase(t, "stops waiting soon after Drain", &transport.Options{CloseTimeout: 50 * time.Millisecond}, func(t *testing.T, f *fixture) {
		got := f.doAsync(t.Context(), "POST", messagePath, f.agent(t, "ada"), `{"id":"m1","do":"wait"}`, "Prefer", "wait=60")
		require.Eventually(t, func() bool { return len(f.protocol.messages()) == 1 }, time.Minute, 5*time.Millisecond)
		f.transports.Drain()
		require.Equal(t, http.StatusAccepted, (<-got).StatusCode)
	})
}

func TestRejectedToken(t *testing.T) {
	t.Parallel()
	runCase(t, "gets a refusal of the protocol that names the message", nil, func(t *testing.T, f *fixture) {
		for _, headers := range [][]string{nil, {"Authorization", "Basic x"}, {"Authorization", "Bearer nonsense"}, {"Authorization", "Bearer"}} {
			a := f.do(t, "POST", messagePath, "", `{"id":"m1"}`, headers...)
			require.Equal(t, http.StatusUnauthorized, a.StatusCode)
			require.JSONEq(t, `{"refused":"unauthenticated","of":"{\"id\":\"m1\"}"}`, a.body)
			require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"))
		}
		require.Empty(t, f.protocol.messages())
		f.waitForMetric(t, 1, "comet_transport_authentication_failures_total")
	})
	runCase(t, "does not read a long message", nil, func(t *testing.T, f *fixture) {
		a := f.do(t, "POST", messagePath, "nonsense", strings.Repeat("x", 1<<20))
		require.JSONEq(t, `{"refused":"unauthenticated","of":""}`, a.body)
	})
	runCase(t, "includes the token of a deactivated agent", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.deactivate(t, "ada")
		require.Eventually(t, func() bool {
			return f.do(t, "GET", "/api/agent/inbox", token, "").StatusCode == http.StatusUnauthorized
		}, time.Minute, 50*time.Millisecond)
	})
	runCase(t, "throttles the address for a minute after too many failures", &transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3})}, func(t *testing.T, f *fixture) {
		known, late := f.agent(t, "ada"), f.agent(t, "bob")
		require.Equal(t, http.StatusAccepted, f.do(t, "POST", messagePath, known, `{"id":"m1"}`).StatusCode)
		for i := range 3 {
			require.Equal(t, http.StatusUnauthorized, f.do(t, "POST", messagePath, "wrong"+strconv.Itoa(i), "{}").StatusCode)
		}
		f.DB.Clock.Advance(20 * time.Second)
		a := f.do(t, "POST", messagePath, "wrong", `{"id":"m1"}`)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.Equal(t, "40", a.Header.Get("Retry-After"))
		require.Contains(t, a.body, "unauthenticated", "the refusal reveals nothing else")
		require.Equal(t, http.StatusAccepted, f.do(t, "POST", messagePath, known, `{"id":"m2"}`).StatusCode, "a token that was accepted before is not throttled")
		require.Equal(t, http.StatusAccepted, f.do(t, "POST", messagePath, late, `{"id":"m1"}`).StatusCode, "nor is another valid token")
		f.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		f.DB.Clock.Advance(40 * time.Second)
		require.Equal(t, http.StatusUnauthorized, f.do(t, "POST", messagePath, "wrong", "{}").StatusCode)
	})
	runCase(t, "counts a revoked token that was accepted before", &transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 1})}, func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		require.Equal(t, http.StatusAccepted, f.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
		require.NoError(t, f.auth.Revoke(context.Background(), testkit.Admin(), issued.Token.ID, nil))
		require.Equal(t, http.StatusUnauthorized, f.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
		require.Equal(t, http.StatusTooManyRequests, f.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
	})
}

// everyRoute returns a request to every route of the agents.
func everyRoute() map[string][2]string {
	return map[string][2]string{
		"message": {"POST", messagePath}, "connect": {"GET", "/api/agent/connect"}, "stream": {"GET", "/api/agent/stream"},
		"inbox": {"GET", "/api/agent/inbox"}, "ack": {"POST", "/api/agent/inbox/ack"},
		"put push": {"PUT", pushPath}, "get push": {"GET", pushPath}, "delete push": {"DELETE", pushPath},
	}
}

// withEnvelopes runs a case on a fixture with the envelope protocol.
func withEnvelopes(t *testing.T, opts *transport.Options, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		fn(t, openFixture(t, startWork(t, db), opts, func(c *transport.Core) { c.Protocols = []protocol.Protocol{envelope.New(c.Work, nil)} }))
	})
}

// failure is an error of the envelope protocol.
type failure struct {
	Type      string `json:"type"`
	RequestID string `json:"request_id"`
	Payload   struct {
		Code    int            `json:"error_code"`
		Context map[string]any `json:"error_context"`
	} `json:"payload"`
}

func (a response) failure(t *testing.T) (f failure) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), &f), "%s", a.body)
	require.Equal(t, "error", f.Type)
	return f
}

// requestFor returns a work_request with the given request_id.
func requestFor(t *testing.T, requestID string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"protocol_version": "1.0", "message_id": uuid.NewString(), "trace_id": uuid.NewString(), "request_id": requestID,
		"from_agent": "orchestrator", "to_agent": "infra", "timestamp": "2026-01-19T04:21:04Z", "type": "work_request",
		"payload": map[string]any{"task_id": uuid.NewString(), "work_type": "dig", "parameters": map[string]any{}},
	})
	require.NoError(t, err)
	return string(b)
}

// TestRefusalStatusMatchesCode (docs/protocol-envelope.md, "Errors").
func TestRefusalStatusMatchesCode(t *testing.T) {
	t.Parallel()

	t.Run("a token without permission is 5004 and 401 on every route", func(t *testing.T) {
		t.Parallel()
		withEnvelopes(t, nil, func(t *testing.T, f *fixture) {
			token := f.token(t, "", models.ScopeTasksRead).Secret
			for name, r := range everyRoute() {
				a := f.do(t, r[0], r[1], token, "")
				require.Equal(t, http.StatusUnauthorized, a.StatusCode, name)
				require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"), name)
				f := a.failure(t)
				require.Equal(t, 5004, f.Payload.Code, name)
				require.Equal(t, "invalid", f.Payload.Context["token_status"], name)
			}
			id := uuid.NewString()
			require.Equal(t, id, f.do(t, "POST", messagePath, token, requestFor(t, id)).failure(t).RequestID)
		})
	})

	t.Run("a token over its rate limit is 5002 and 429 on every route", func(t *testing.T) {
		t.Parallel()
		withEnvelopes(t, &transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{RateLimit: 1, RateWindow: time.Hour})}, func(t *testing.T, f *fixture) {
			token := f.agent(t, "ada")
			require.Equal(t, http.StatusOK, f.do(t, "GET", "/api/agent/inbox", token, "").StatusCode)
			for name, r := range everyRoute() {
				a := f.do(t, r[0], r[1], token, "")
				require.Equal(t, http.StatusTooManyRequests, a.StatusCode, name)
				require.NotEmpty(t, a.Header.Get("Retry-After"), name)
				require.Equal(t, "0", a.Header.Get("RateLimit-Remaining"), name)
				f := a.failure(t)
				require.Equal(t, 5002, f.Payload.Code, name)
				require.Equal(t, "orchestrator", f.Payload.Context["agent_id"], name)
			}
			id := uuid.NewString()
			require.Equal(t, id, f.do(t, "POST", messagePath, token, requestFor(t, id)).failure(t).RequestID)
		})
	})

	t.Run("too many rejected tokens are 5004 and 429", func(t *testing.T) {
		t.Parallel()
		withEnvelopes(t, &transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 1})}, func(t *testing.T, f *fixture) {
			require.Equal(t, http.StatusUnauthorized, f.do(t, "POST", messagePath, "wrong", "{}").StatusCode)
			a := f.do(t, "POST", messagePath, "wrong", "{}")
			require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
			require.Equal(t, "60", a.Header.Get("Retry-After"))
			require.Equal(t, 5004, a.failure(t).Payload.Code)
		})
	})
}

// TestRateLimit checks that every request with a valid token counts once.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		limits := httpkit.NewLimits(&httpkit.LimitOptions{RateLimit: 2, RateWindow: time.Hour})
		f := openFixture(t, startWork(t, db), &transport.Options{Limits: limits}, nil)
		token := f.agent(t, "ada")
		require.Equal(t, http.StatusUnauthorized, f.do(t, "POST", messagePath, "wrong", "{}").StatusCode)
		for i, id := range []string{"m1", "m2"} {
			a := f.do(t, "POST", messagePath, token, `{"id":"`+id+`"}`)
			require.Equal(t, http.StatusAccepted, a.StatusCode)
			require.Equal(t, strconv.Itoa(1-i), a.Header.Get("RateLimit-Remaining"))
		}
		a := f.do(t, "POST", messagePath, token, `{"id":"m3"}`)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.JSONEq(t, `{"refused":"rate-limited","of":"{\"id\":\"m3\"}"}`, a.body)
		require.Len(t, f.protocol.messages(), 2)
	})
}

// TestRejectedAgent: an agent that the protocol does not accept is refused when it connects and
// gets no tasks.
func TestRejectedAgent(t *testing.T) {
	t.Parallel()
	runCase(t, "is refused by every HTTP transport", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.protocol.rejectAgent("ada")
		for _, path := range []string{"/api/agent/inbox", "/api/agent/stream"} {
			a := f.do(t, "GET", path, token, "")
			require.Equal(t, http.StatusBadRequest, a.StatusCode, path)
			require.Contains(t, a.body, "invalid-request")
		}
		c, err := f.dial(t, token, "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusBadRequest, c.resp.StatusCode)
		require.Equal(t, http.StatusBadRequest, f.do(t, "PUT", pushPath, token, `{"url":"https://example.com/in"}`).StatusCode)
		require.False(t, online(f.CachedWorker("ada")))
	})
	runCase(t, "receives no pushes", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		f.protocol.rejectAgent("ada")
		m.respondWith("POST", http.StatusInternalServerError)
		f.enqueue(t, "ada", 1)
		f.WaitForWorker(t, "ada", offline)
		m.respondWith("POST", http.StatusOK)
		before := m.probes()
		require.Eventually(t, func() bool { return m.probes() > before+3 }, time.Minute, 5*time.Millisecond, "the pusher retries")
		require.Equal(t, models.WorkerOffline, f.CachedWorker("ada").State)
	})
	runNATSCase(t, "is refused over NATS and goes offline", nil, func(t *testing.T, f *fixture, b *bus.Bus) {
		c := newNATSClient(t, b, "ada", f.agent(t, "ada"))
		_, err := f.Join(t.Context(), "ada", joinRequest(transport.Poll, "poll"))
		require.NoError(t, err)
		f.protocol.rejectAgent("ada")
		require.Equal(t, "invalid-request", c.request(note{ID: "h1", Do: "present"}).Refused)
		f.WaitForWorker(t, "ada", offline)
	})
}
