package transport_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
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
		h.waitForMetric(t, 1, "comet_link_messages_total", "in", "http")
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
		h.waitForMetric(t, 1, "comet_link_authentication_failures_total")
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
		h.waitForMetric(t, 3, "comet_link_authentication_failures_total")
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
