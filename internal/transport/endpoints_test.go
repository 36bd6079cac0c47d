package transport_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

const messagePath = "/api/agent/message"

func TestTheMessageDoor(t *testing.T) {
	t.Parallel()
	runCase(t, "passes on what an agent says, and what becomes of it", nil, func(t *testing.T, h *fixture) {
		a := h.do(t, "POST", messagePath, h.agent(t, "ada"), `{"id":"m1","do":"reply"}`, "Content-Type", "application/json; charset=utf-8")
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Equal(t, "/made/m1", a.Header.Get("Location"))
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.JSONEq(t, `{"reply":"m1"}`, a.body)
		heard := h.protocol.messages()
		require.Equal(t, `{"id":"m1","do":"reply"}`, heard[0].raw)
		require.Equal(t, "ada", *heard[0].from.AgentID)
		h.waitForMetric(t, 1, "comet_transport_messages_total", "in", "http")
	})
	runCase(t, "is open to whoever may send messages, and to no other", nil, func(t *testing.T, h *fixture) {
		for scope, status := range map[models.Scope]int{
			models.ScopeMessagesSend: 202, models.ScopeAdmin: 202, models.ScopeTasksRead: 401, models.ScopeAgentsWrite: 401,
		} {
			a := h.do(t, "POST", messagePath, h.token(t, "", scope).Secret, `{"id":"m1"}`)
			require.Equal(t, status, a.StatusCode, scope)
		}
	})
	runCase(t, "answers as the dialect refuses", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		a := h.do(t, "POST", messagePath, token, `{"id":"m1","do":"refuse"}`)
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, "invalid-request")
		a = h.do(t, "POST", messagePath, token, `{"id":"m1"}`, "Content-Type", "text/plain")
		require.Equal(t, http.StatusUnsupportedMediaType, a.StatusCode)
		require.Contains(t, a.body, "unsupported-media-type")
		require.Len(t, h.protocol.messages(), 1)
	})
	runCase(t, "takes a message as long as may be, and none that is longer", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		body := func(size int) string { return `{"id":"` + strings.Repeat("x", size-len(`{"id":""}`)) + `"}` }
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, token, body(transport.MaxMessageBytes)).StatusCode)
		a := h.do(t, "POST", messagePath, token, body(transport.MaxMessageBytes+1))
		require.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
		require.Contains(t, a.body, "body-too-large")
	})
	runCase(t, "waits as long as is preferred, and a minute at most", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		for prefer, want := range map[string]struct {
			wait    time.Duration
			applied string
		}{
			"":                             {0, ""},
			"wait=7":                       {7 * time.Second, "wait=7"},
			"respond-async, Wait=8; x=1":   {8 * time.Second, "wait=8"},
			`wait="9"`:                     {9 * time.Second, "wait=9"},
			"wait=3600":                    {time.Minute, "wait=60"},
			"wait=4294967296, wait=soon,;": {0, ""},
		} {
			before := len(h.protocol.messages())
			a := h.do(t, "POST", messagePath, token, `{"id":"m1"}`, "Prefer", prefer)
			require.Equal(t, want.applied, a.Header.Get("Preference-Applied"), prefer)
			require.Equal(t, want.wait, h.protocol.messages()[before].wait, prefer)
		}
	})
	runCase(t, "ends a wait soon after the server began to stop", &transport.Options{CloseTimeout: 50 * time.Millisecond}, func(t *testing.T, h *fixture) {
		got := h.doAsync(t.Context(), "POST", messagePath, h.agent(t, "ada"), `{"id":"m1","do":"wait"}`, "Prefer", "wait=60")
		require.Eventually(t, func() bool { return len(h.protocol.messages()) == 1 }, time.Minute, time.Millisecond)
		h.transports.Drain()
		require.Equal(t, http.StatusAccepted, (<-got).StatusCode)
	})
}

func TestATokenThatIsNotAccepted(t *testing.T) {
	t.Parallel()
	runCase(t, "is refused in the dialect's words, which name the message", nil, func(t *testing.T, h *fixture) {
		for _, headers := range [][]string{nil, {"Authorization", "Basic x"}, {"Authorization", "Bearer nonsense"}, {"Authorization", "Bearer"}} {
			a := h.do(t, "POST", messagePath, "", `{"id":"m1"}`, headers...)
			require.Equal(t, http.StatusUnauthorized, a.StatusCode)
			require.JSONEq(t, `{"refused":"unauthenticated","of":"{\"id\":\"m1\"}"}`, a.body)
			require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"))
		}
		require.Empty(t, h.protocol.messages())
		h.waitForMetric(t, 1, "comet_transport_authentication_failures_total")
	})
	runCase(t, "is not read with a long message", nil, func(t *testing.T, h *fixture) {
		a := h.do(t, "POST", messagePath, "nonsense", strings.Repeat("x", 1<<20))
		require.JSONEq(t, `{"refused":"unauthenticated","of":""}`, a.body)
	})
	runCase(t, "of a deactivated agent is none", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.deactivate(t, "ada")
		require.Eventually(t, func() bool {
			return h.do(t, "GET", "/api/agent/inbox", token, "").StatusCode == http.StatusUnauthorized
		}, time.Minute, 50*time.Millisecond)
	})
	runCase(t, "is not looked up any more after too many of them, until a minute has passed", &transport.Options{MaxFailures: 3}, func(t *testing.T, h *fixture) {
		known, late := h.agent(t, "ada"), h.agent(t, "bob")
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, known, `{"id":"m1"}`).StatusCode)
		for i := range 3 {
			require.Equal(t, http.StatusUnauthorized, h.do(t, "POST", messagePath, "wrong"+strconv.Itoa(i), "{}").StatusCode)
		}
		h.db.Clock.Advance(20 * time.Second)
		for _, token := range []string{"wrong", late} {
			a := h.do(t, "POST", messagePath, token, `{"id":"m1"}`)
			require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
			require.Equal(t, "40", a.Header.Get("Retry-After"))
			require.Contains(t, a.body, "unauthenticated", "and not more than that")
		}
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, known, `{"id":"m2"}`).StatusCode, "who was accepted before is not shut out by others")
		h.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		h.db.Clock.Advance(40 * time.Second)
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, late, `{"id":"m1"}`).StatusCode)
	})
	runCase(t, "that was accepted before is looked up and counted", &transport.Options{MaxFailures: 1}, func(t *testing.T, h *fixture) {
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
		require.NoError(t, h.auth.Revoke(context.Background(), ops(), issued.Token.ID))
		require.Equal(t, http.StatusUnauthorized, h.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
		require.Equal(t, http.StatusTooManyRequests, h.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
	})
}

// rateLimiter admits tokens a number of times, and remembers who came.
type rateLimiter struct {
	mu   sync.Mutex
	seen []string
	left int
}

func (g *rateLimiter) admit(w http.ResponseWriter, _ *http.Request, tokenID string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, tokenID)
	w.Header().Set("RateLimit-Remaining", "0")
	if g.left--; g.left < 0 {
		return errs.New(errs.RateLimited, "too often").With("retry_after", 7)
	}
	return nil
}

// everyRoute are the requests of the door, as an agent makes them.
func everyRoute() map[string][2]string {
	return map[string][2]string{
		"message": {"POST", messagePath}, "connect": {"GET", "/api/agent/connect"}, "stream": {"GET", "/api/agent/stream"},
		"inbox": {"GET", "/api/agent/inbox"}, "ack": {"POST", "/api/agent/inbox/ack"},
		"put push": {"PUT", pushPath}, "get push": {"GET", pushPath}, "delete push": {"DELETE", pushPath},
	}
}

// withEnvelopes opens a house whose dialect is the one the door was made for.
func withEnvelopes(t *testing.T, opts *transport.Options, fn func(t *testing.T, h *fixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		fn(t, openFixture(t, newBackend(t, db), opts, func(c *transport.Core) { c.Protocols = []protocol.Protocol{envelope.New(c.Work, nil)} }))
	})
}

// failure is what a refusal says in the envelope protocol.
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

// requestFor is a message of which only its ids are of interest.
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

// TestTheStatusAndTheCodeOfARefusalAgree (docs/protocol-envelope.md, "Errors").
func TestTheStatusAndTheCodeOfARefusalAgree(t *testing.T) {
	t.Parallel()

	t.Run("a token without the right is 5004 and 401 on every route", func(t *testing.T) {
		t.Parallel()
		withEnvelopes(t, nil, func(t *testing.T, h *fixture) {
			token := h.token(t, "", models.ScopeTasksRead).Secret
			for name, r := range everyRoute() {
				a := h.do(t, r[0], r[1], token, "")
				require.Equal(t, http.StatusUnauthorized, a.StatusCode, name)
				require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"), name)
				f := a.failure(t)
				require.Equal(t, 5004, f.Payload.Code, name)
				require.Equal(t, "invalid", f.Payload.Context["token_status"], name)
			}
			id := uuid.NewString()
			require.Equal(t, id, h.do(t, "POST", messagePath, token, requestFor(t, id)).failure(t).RequestID)
		})
	})

	t.Run("a token that is too fast is 5002 and 429 on every route", func(t *testing.T) {
		t.Parallel()
		g := &rateLimiter{}
		withEnvelopes(t, &transport.Options{Admit: g.admit}, func(t *testing.T, h *fixture) {
			token := h.agent(t, "ada")
			for name, r := range everyRoute() {
				a := h.do(t, r[0], r[1], token, "")
				require.Equal(t, http.StatusTooManyRequests, a.StatusCode, name)
				require.Equal(t, "7", a.Header.Get("Retry-After"), name)
				require.Equal(t, "0", a.Header.Get("RateLimit-Remaining"), name)
				f := a.failure(t)
				require.Equal(t, 5002, f.Payload.Code, name)
				require.Equal(t, "orchestrator", f.Payload.Context["agent_id"], name)
			}
			id := uuid.NewString()
			require.Equal(t, id, h.do(t, "POST", messagePath, token, requestFor(t, id)).failure(t).RequestID)
		})
	})

	t.Run("too many tokens that are not accepted are 5004 and 429", func(t *testing.T) {
		t.Parallel()
		withEnvelopes(t, &transport.Options{MaxFailures: 1}, func(t *testing.T, h *fixture) {
			require.Equal(t, http.StatusUnauthorized, h.do(t, "POST", messagePath, "wrong", "{}").StatusCode)
			a := h.do(t, "POST", messagePath, "wrong", "{}")
			require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
			require.Equal(t, "60", a.Header.Get("Retry-After"))
			require.Equal(t, 5004, a.failure(t).Payload.Code)
		})
	})
}

// TestAdmission is asked for by every request whose token is accepted, and refuses it in
// the dialect's words.
func TestAdmission(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		g := &rateLimiter{left: 1}
		h := openFixture(t, newBackend(t, db), &transport.Options{Admit: g.admit}, nil)
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		require.Equal(t, http.StatusUnauthorized, h.do(t, "POST", messagePath, "wrong", "{}").StatusCode)
		require.Equal(t, http.StatusAccepted, h.do(t, "POST", messagePath, issued.Secret, `{"id":"m1"}`).StatusCode)
		a := h.do(t, "POST", messagePath, issued.Secret, `{"id":"m2"}`)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.JSONEq(t, `{"refused":"rate-limited","of":"{\"id\":\"m2\"}"}`, a.body)
		require.Len(t, h.protocol.messages(), 1)
		g.mu.Lock()
		defer g.mu.Unlock()
		require.Equal(t, []string{issued.Token.ID, issued.Token.ID}, g.seen, "once a request, and not where the token is not accepted")
	})
}

// TestWhoCannotBeSpokenTo: an agent that the dialect does not accept is refused when it
// comes, and is given no work.
func TestWhoCannotBeSpokenTo(t *testing.T) {
	t.Parallel()
	runCase(t, "is refused on every way that comes over HTTP", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.protocol.rejectAgent("ada")
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
	runCase(t, "is not pushed to", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		h.protocol.rejectAgent("ada")
		m.respondWith("POST", http.StatusInternalServerError)
		h.enqueue(t, "ada", 1)
		h.waitForWorker(t, "ada", offline)
		m.respondWith("POST", http.StatusOK)
		before := m.probes()
		require.Eventually(t, func() bool { return m.probes() > before+3 }, time.Minute, time.Millisecond, "it is tried")
		require.Equal(t, models.WorkerOffline, h.CachedWorker("ada").State)
	})
	runNATSCase(t, "is refused on the queue, also where it was online", nil, func(t *testing.T, h *fixture, b *bus.Bus) {
		g := newNATSClient(t, b, "ada", h.agent(t, "ada"))
		_, err := h.Join(t.Context(), "ada", joinRequest(transport.Poll, "poll"))
		require.NoError(t, err)
		h.protocol.rejectAgent("ada")
		require.Equal(t, "invalid-request", g.request(note{ID: "h1", Do: "present"}).Refused)
		h.waitForWorker(t, "ada", offline)
	})
}
