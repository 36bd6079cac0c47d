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

// mailbox is an agent that is pushed to.
type mailbox struct {
	*httptest.Server
	mu     sync.Mutex
	got    []pushed
	status map[string]int // by method, default 200
}

type pushed struct {
	method, secret, kind, agent, body string
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	m := &mailbox{status: map[string]int{}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.got = append(m.got, pushed{r.Method, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), string(body)})
		if status := m.status[r.Method]; status != 0 {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *mailbox) answer(method string, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status[method] = status
}

// messages returns what was pushed, without the probes.
func (m *mailbox) messages() (out []pushed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.got {
		if p.body != "" {
			out = append(out, p)
		}
	}
	return out
}

// probes returns how often was asked whether somebody is there.
func (m *mailbox) probes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, p := range m.got {
		if p.body == "" {
			n++
		}
	}
	return n
}

func (m *mailbox) waitFor(t *testing.T, n int) []pushed {
	t.Helper()
	require.Eventually(t, func() bool { return len(m.messages()) >= n }, time.Minute, time.Millisecond)
	return m.messages()
}

// quick are options for tests that wait for pauses to pass.
func quick() *transport.Options {
	return &transport.Options{
		Guard:     netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
		Heartbeat: 75 * time.Millisecond, PushBackoff: 5 * time.Millisecond, MaxPushBackoff: 20 * time.Millisecond, UserAgent: "comet/test",
	}
}

// register has an agent's messages pushed to the mailbox and returns the secret.
func (h *house) registerPush(t *testing.T, token string, m *mailbox) string {
	t.Helper()
	a := h.do(t, "PUT", pushPath, token, `{"url":"`+m.URL+`/in?key=1","concurrency":2}`)
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	require.NotEmpty(t, out["secret"])
	return out["secret"].(string)
}

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func pushing(w models.Worker) bool { return online(w) && w.Transport == transport.Push }

func TestAPushTargetIsRegistered(t *testing.T) {
	t.Parallel()
	rule(t, "with a secret that is told once", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", pushPath, token, "").StatusCode)
		first := h.registerPush(t, token, m)
		shown := h.do(t, "GET", pushPath, token, "")
		require.JSONEq(t, `{"url":"`+m.URL+`/in?key=1","concurrency":2,"created_at":"2026-01-10T15:30:00Z","updated_at":"2026-01-10T15:30:00Z"}`, shown.body)
		require.NotEqual(t, first, h.registerPush(t, token, m), "and a new one each time")
		require.Equal(t, http.StatusNoContent, h.do(t, "DELETE", pushPath, token, "").StatusCode)
		require.Equal(t, http.StatusNotFound, h.do(t, "DELETE", pushPath, token, "").StatusCode)
	})
	rule(t, "where comet may connect to, and nowhere else", &transport.Options{HTTPSOnly: true}, func(t *testing.T, h *house) {
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
	rule(t, "only by an agent", nil, func(t *testing.T, h *house) {
		require.Equal(t, http.StatusUnauthorized, h.do(t, "PUT", pushPath, h.token(t, "", models.ScopeAdmin).Secret, `{}`).StatusCode)
	})
}

func TestPushing(t *testing.T) {
	t.Parallel()
	rule(t, "brings an agent online that can be reached, and hands over what it is told", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		secret := h.registerPush(t, token, m)
		w := h.worker(t, "ada", pushing)
		require.Equal(t, 2, w.Concurrency)
		task := h.submit(t, "ada")
		got := m.waitFor(t, 1)[0]
		h.inboxOf(t, "ada", 0)
		var n note
		require.NoError(t, json.Unmarshal([]byte(got.body), &n))
		require.Equal(t, "assign", n.Do)
		require.NotEmpty(t, task.ID)
		require.Equal(t, pushed{"POST", "Bearer " + secret, "application/json", "comet/test", got.body}, got)
		h.metricIs(t, 1, "comet_link_messages_total", "out", "push")
	})
	rule(t, "takes a POST of nothing for a probe where HEAD is not understood", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		m.answer("HEAD", http.StatusMethodNotAllowed)
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
	})
	rule(t, "tries again what is not taken, while the agent counts as away", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		m.answer("HEAD", http.StatusInternalServerError)
		m.answer("POST", http.StatusInternalServerError)
		h.tell(t, "ada", 1)
		m.waitFor(t, 1)
		h.worker(t, "ada", offline)
		h.inboxOf(t, "ada", 1)
		failed := m.probes()
		require.Eventually(t, func() bool { return m.probes() > failed+4 }, time.Minute, time.Millisecond)
		m.answer("HEAD", http.StatusOK)
		m.answer("POST", http.StatusAccepted)
		h.worker(t, "ada", pushing)
		h.inboxOf(t, "ada", 0)
		all := m.messages()
		require.Equal(t, all[0].body, all[len(all)-1].body, "the same message")
	})
	rule(t, "does not reach what the guard refuses, whatever was registered", nil, func(t *testing.T, h *house) {
		m := newMailbox(t)
		h.agent(t, "ada")
		_, err := h.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Dialect: "notes", Places: 1, Secret: "s", Owner: h.token(t, "ada").Token.ID,
		})
		require.NoError(t, err)
		refused := &journal{}
		open(t, bed{h.db, h.Orchestrator}, &transport.Options{Logger: slog.New(slog.NewTextHandler(refused, nil))}, nil)
		require.Eventually(t, func() bool { return strings.Contains(refused.String(), "127.0.0.1 is a loopback address") }, time.Minute, time.Millisecond)
		require.Zero(t, m.probes())
		require.False(t, online(h.CachedWorker("ada")))
	})
	rule(t, "ends for good where the address is gone", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		m.answer("POST", http.StatusGone)
		h.tell(t, "ada", 1)
		h.worker(t, "ada", offline)
		require.Eventually(t, func() bool { return h.do(t, "GET", pushPath, token, "").StatusCode == http.StatusNotFound }, time.Minute, time.Millisecond)
		h.inboxOf(t, "ada", 1)
	})
	rule(t, "ends when it is not wanted any more", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		h.do(t, "DELETE", pushPath, token, "")
		h.worker(t, "ada", offline)
	})
	rule(t, "ends with the token that wanted it", quick(), func(t *testing.T, h *house) {
		m := newMailbox(t)
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		h.registerPush(t, issued.Secret, m)
		h.worker(t, "ada", pushing)
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		h.worker(t, "ada", offline)
		require.Eventually(t, func() bool {
			all, err := h.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, time.Millisecond, "there is nothing left to try")
	})
	rule(t, "does not begin for a token that is not good any more", quick(), func(t *testing.T, h *house) {
		m := newMailbox(t)
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		_, err := h.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Dialect: "notes", Places: 1, Secret: "s", Owner: issued.Token.ID,
		})
		require.NoError(t, err)
		open(t, bed{h.db, h.Orchestrator}, quick(), nil) // which reads the targets at its start
		require.Eventually(t, func() bool {
			all, err := h.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, time.Millisecond)
		require.Zero(t, m.probes())
	})
	unhurried := quick()
	unhurried.Heartbeat = time.Second // its own line is not to be taken for silent meanwhile
	rule(t, "stands back for an agent that comes itself, until it goes", unhurried, func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		c := h.connect(t, token, "")
		h.tell(t, "ada", 1)
		require.Equal(t, "cancel", c.hear().Do)
		require.Empty(t, m.messages())
		require.NoError(t, c.conn.CloseNow())
		h.worker(t, "ada", pushing)
		m.waitFor(t, 1)
	})
	rule(t, "probes an agent to which nothing was pushed for long", quick(), func(t *testing.T, h *house) {
		m, token := newMailbox(t), h.agent(t, "ada")
		h.registerPush(t, token, m)
		h.worker(t, "ada", pushing)
		before := m.probes()
		require.Eventually(t, func() bool {
			h.db.Clock.Advance(20 * time.Millisecond)
			return m.probes() > before
		}, time.Minute, 10*time.Millisecond)
		m.answer("HEAD", http.StatusBadGateway)
		m.answer("POST", http.StatusBadGateway)
		require.Eventually(t, func() bool {
			h.db.Clock.Advance(20 * time.Millisecond)
			return offline(h.CachedWorker("ada"))
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestTwoProcessesPush(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		one, m := open(t, newBed(t, db), quick(), nil), newMailbox(t)
		token := one.agent(t, "ada")
		one.registerPush(t, token, m)
		one.worker(t, "ada", pushing)
		line := one.CachedWorker("ada").ConnectionID

		two := open(t, newBed(t, db), quick(), nil)
		one.tell(t, "ada", 20)
		one.inboxOf(t, "ada", 0)
		require.Len(t, m.messages(), 20, "one of them pushes, each message once")
		require.Equal(t, line, one.CachedWorker("ada").ConnectionID)

		require.NoError(t, one.links.Stop(t.Context()))
		two.worker(t, "ada", func(w models.Worker) bool { return pushing(w) && w.ConnectionID != line })
		two.once.Do(func() { two.task = one.task })
		two.tell(t, "ada", 1)
		two.inboxOf(t, "ada", 0)
	})
}
