package transport_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

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
