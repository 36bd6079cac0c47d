package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/netguard"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

const pushPath = "/api/agent/push"

// pushReceiver is an agent that is pushed to.
type pushReceiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []pushRequest
	status   map[string]int // by method, default 200
}

type pushRequest struct {
	method, secret, kind, agent, body string
}

func newPushReceiver(t *testing.T) *pushReceiver {
	t.Helper()
	m := &pushReceiver{status: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.requests = append(m.requests, pushRequest{r.Method, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), string(body)})
		if status := m.status[r.Method]; status != 0 {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *pushReceiver) respondWith(method string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status[method] = status
}

// messages returns what was pushed, without the probes.
func (m *pushReceiver) messages() (out []pushRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.requests {
		if p.body != "" {
			out = append(out, p)
		}
	}
	return out
}

// probes returns how often was asked whether somebody is there.
func (m *pushReceiver) probes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.requests {
		if p.body == "" {
			n++
		}
	}
	return n
}

func (m *pushReceiver) waitFor(t *testing.T, n int) []pushRequest {
	t.Helper()
	require.Eventually(t, func() bool { return len(m.messages()) >= n }, time.Minute, time.Millisecond)
	return m.messages()
}

// shortIntervals are options for tests that wait for pauses to pass.
func shortIntervals() *transport.Options {
	return &transport.Options{
		Guard:     netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
		Heartbeat: 75 * time.Millisecond, PushBackoff: 5 * time.Millisecond, MaxPushBackoff: 20 * time.Millisecond, UserAgent: "comet/test",
	}
}

// register has an agent's messages pushed to the mailbox and returns the secret.
func (h *fixture) registerPush(t *testing.T, token string, m *pushReceiver) string {
	t.Helper()
	a := h.do(t, "PUT", pushPath, token, `{"url":"`+m.URL+`/in?key=1","concurrency":2}`)
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	require.NotEmpty(t, out["secret"])
	return out["secret"].(string)
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func isPushed(w models.Worker) bool { return online(w) && w.Transport == transport.Push }

func TestAPushTargetIsRegistered(t *testing.T) {
	t.Parallel()
	runCase(t, "with a secret that is told once", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", pushPath, token, "").StatusCode)
		first := h.registerPush(t, token, m)
		shown := h.do(t, "GET", pushPath, token, "")
		require.JSONEq(t, `{"url":"`+m.URL+`/in?key=1","concurrency":2,"created_at":"2026-01-10T15:30:00Z","updated_at":"2026-01-10T15:30:00Z"}`, shown.body)
		require.NotEqual(t, first, h.registerPush(t, token, m), "and a new one each time")
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", pushPath, token, "").StatusCode)
		require.Equal(t, http.StatusNotFound, h.do(t, "DELETE", pushPath, token, "").StatusCode)
	})
	runCase(t, "where comet may connect to, and nowhere else", &transport.Options{HTTPSOnly: true}, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		for body, want := range map[string]string{
			`{"url":"https://127.0.0.1/in"}`:                       "address-refused",
			`{"url":"https://localhost/in"}`:                       "address-refused",
			`{"url":"http://agent.example/in"}`:                    "invalid-request",
			`{"url":"ftp://agent.example/in"}`:                     "invalid-request",
			`{"url":"https://user:pw@agent.example/"}`:             "invalid-request",
			`{"url":"https://agent.example/#x"}`:                   "invalid-request",
			`{"url":"https://agent.example:0/"}`:                   "invalid-request",
			`{"url":""}`:                                           "invalid-request",
			`{"url":"https://agent.example/","concurrency":0}`:     "invalid-request",
			`{"url":"https://agent.example/","what":1}`:            "invalid-request",
			`{"url":"https://agent.example/","concurrency":"two"}`: "invalid-request",
		} {
			require.Contains(t, h.do(t, "PUT", pushPath, token, body).body, want, body)
		}
	})
	runCase(t, "only by an agent", nil, func(t *testing.T, h *fixture) {
		require.Equal(t, http.StatusUnauthorized, h.do(t, "PUT", pushPath, h.token(t, "", models.ScopeAdmin).Secret, `{}`).StatusCode)
	})
}

func TestPushing(t *testing.T) {
	t.Parallel()
	runCase(t, "brings an agent online that can be reached, and hands over what it is told", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		secret := h.registerPush(t, token, m)
		w := h.waitForWorker(t, "ada", isPushed)
		require.Equal(t, 2, w.Concurrency)
		task := h.submit(t, "ada")
		got := m.waitFor(t, 1)[0]
		h.waitForInbox(t, "ada", 0)
		var n note
		require.NoError(t, json.Unmarshal([]byte(got.body), &n))
		require.Equal(t, "assign", n.Do)
		require.NotEmpty(t, task.ID)
		require.Equal(t, pushRequest{"POST", "Bearer " + secret, "application/json", "comet/test", got.body}, got)
		h.waitForMetric(t, 1, "comet_transport_messages_total", "out", "push")
	})
	runCase(t, "takes a POST of nothing for a probe where HEAD is not understood", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		m.respondWith("HEAD", http.StatusMethodNotAllowed)
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
	})
	runCase(t, "tries again what is not taken, while the agent counts as away", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		m.respondWith("HEAD", http.StatusInternalServerError)
		m.respondWith("POST", http.StatusInternalServerError)
		h.enqueue(t, "ada", 1)
		m.waitFor(t, 1)
		h.waitForWorker(t, "ada", offline)
		h.waitForInbox(t, "ada", 1)
		failed := m.probes()
		require.Eventually(t, func() bool { return m.probes() > failed+4 }, time.Minute, time.Millisecond)
		m.respondWith("HEAD", http.StatusOK)
		m.respondWith("POST", http.StatusAccepted)
		h.waitForWorker(t, "ada", isPushed)
		h.waitForInbox(t, "ada", 0)
		all := m.messages()
		require.Equal(t, all[0].body, all[len(all)-1].body, "the same message")
	})
	runCase(t, "does not reach what the guard refuses, whatever was registered", nil, func(t *testing.T, h *fixture) {
		m := newPushReceiver(t)
		h.agent(t, "ada")
		_, err := h.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Dialect: "notes", Places: 1, Secret: "s", Owner: h.token(t, "ada").Token.ID,
		})
		require.NoError(t, err)
		refused := &logBuffer{}
		openFixture(t, backend{h.db, h.Orchestrator}, &transport.Options{Logger: slog.New(slog.NewTextHandler(refused, nil))}, nil)
		require.Eventually(t, func() bool { return strings.Contains(refused.String(), "127.0.0.1 is a loopback address") }, time.Minute, time.Millisecond)
		require.Zero(t, m.probes())
		require.False(t, online(h.CachedWorker("ada")))
	})
	runCase(t, "ends for good where the address is gone", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		m.respondWith("POST", http.StatusGone)
		h.enqueue(t, "ada", 1)
		h.waitForWorker(t, "ada", offline)
		require.Eventually(t, func() bool { return h.do(t, "GET", pushPath, token, "").StatusCode == http.StatusNotFound }, time.Minute, time.Millisecond)
		h.waitForInbox(t, "ada", 1)
	})
	runCase(t, "ends when it is not wanted any more", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		h.do(t, "DELETE", pushPath, token, "")
		h.waitForWorker(t, "ada", offline)
	})
	runCase(t, "ends with the token that wanted it", shortIntervals(), func(t *testing.T, h *fixture) {
		m := newPushReceiver(t)
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		h.registerPush(t, issued.Secret, m)
		h.waitForWorker(t, "ada", isPushed)
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		h.waitForWorker(t, "ada", offline)
		require.Eventually(t, func() bool {
			all, err := h.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, time.Millisecond, "there is nothing left to try")
	})
	runCase(t, "does not begin for a token that is not good any more", shortIntervals(), func(t *testing.T, h *fixture) {
		m := newPushReceiver(t)
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		_, err := h.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Dialect: "notes", Places: 1, Secret: "s", Owner: issued.Token.ID,
		})
		require.NoError(t, err)
		openFixture(t, backend{h.db, h.Orchestrator}, shortIntervals(), nil) // which reads the targets at its start
		require.Eventually(t, func() bool {
			all, err := h.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, time.Millisecond)
		require.Zero(t, m.probes())
	})
	unhurried := shortIntervals()
	unhurried.Heartbeat = time.Second // its own line is not to be taken for silent meanwhile
	runCase(t, "stands back for an agent that comes itself, until it goes", unhurried, func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		c := h.connect(t, token, "")
		h.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", c.next().Do)
		require.Empty(t, m.messages())
		require.NoError(t, c.conn.CloseNow())
		h.waitForWorker(t, "ada", isPushed)
		m.waitFor(t, 1)
	})
	runCase(t, "probes an agent to which nothing was pushed for long", shortIntervals(), func(t *testing.T, h *fixture) {
		m, token := newPushReceiver(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.waitForWorker(t, "ada", isPushed)
		before := m.probes()
		require.Eventually(t, func() bool {
			h.db.Clock.Advance(20 * time.Millisecond)
			return m.probes() > before
		}, time.Minute, 10*time.Millisecond)
		m.respondWith("HEAD", http.StatusBadGateway)
		m.respondWith("POST", http.StatusBadGateway)
		require.Eventually(t, func() bool {
			h.db.Clock.Advance(20 * time.Millisecond)
			return offline(h.CachedWorker("ada"))
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestTwoProcessesPush(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		one, m := openFixture(t, newBackend(t, db), shortIntervals(), nil), newPushReceiver(t)
		token := one.agent(t, "ada")
		one.registerPush(t, token, m)
		one.waitForWorker(t, "ada", isPushed)
		line := one.CachedWorker("ada").ConnectionID

		two := openFixture(t, newBackend(t, db), shortIntervals(), nil)
		one.enqueue(t, "ada", 20)
		one.waitForInbox(t, "ada", 0)
		require.Len(t, m.messages(), 20, "one of them pushes, each message once")
		require.Equal(t, line, one.CachedWorker("ada").ConnectionID)

		require.NoError(t, one.transports.Stop(t.Context()))
		two.waitForWorker(t, "ada", func(w models.Worker) bool { return isPushed(w) && w.ConnectionID != line })
		two.once.Do(func() { two.task = one.task })
		two.enqueue(t, "ada", 1)
		two.waitForInbox(t, "ada", 0)
	})
}
