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
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

const pushPath = "/api/agent/push"

// pushReceiver is an agent that receives pushes.
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

// messages returns the pushed messages without the probes.
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

// probes returns the number of probes.
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
	require.Eventually(t, func() bool { return len(m.messages()) >= n }, time.Minute, 5*time.Millisecond)
	return m.messages()
}

// shortIntervals returns options with short pauses.
func shortIntervals() *transport.Options {
	return &transport.Options{
		Guard:     netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
		Heartbeat: 75 * time.Millisecond, PushBackoff: 5 * time.Millisecond, MaxPushBackoff: 20 * time.Millisecond, UserAgent: "comet/test",
	}
}

// registerPush registers the receiver for an agent's messages and returns the secret.
func (f *fixture) registerPush(t *testing.T, token string, m *pushReceiver) string {
	t.Helper()
	a := f.do(t, "PUT", pushPath, token, `{"url":"`+m.URL+`/in?key=1","concurrency":2}`)
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	require.NotEmpty(t, out["secret"])
	return out["secret"].(string)
}

// logBuffer collects log output.
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

func TestRegisterPush(t *testing.T) {
	t.Parallel()
	runCase(t, "returns the secret only once", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		require.Equal(t, http.StatusNotFound, f.do(t, "GET", pushPath, token, "").StatusCode)
		first := f.registerPush(t, token, m)
		shown := f.do(t, "GET", pushPath, token, "")
		require.JSONEq(t, `{"url":"`+m.URL+`/in?key=1","concurrency":2,"protocol":"notes","created_at":"2026-01-10T15:30:00Z","updated_at":"2026-01-10T15:30:00Z"}`, shown.body)
		require.NotEqual(t, first, f.registerPush(t, token, m), "each registration creates a new secret")
		require.Equal(t, http.StatusNoContent, f.do(t, "DELETE", pushPath, token, "").StatusCode)
		require.Equal(t, http.StatusNotFound, f.do(t, "DELETE", pushPath, token, "").StatusCode)
	})
	runCase(t, "accepts only permitted addresses", &transport.Options{HTTPSOnly: true}, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
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
			require.Contains(t, f.do(t, "PUT", pushPath, token, body).body, want, body)
		}
	})
	runCase(t, "requires an agent", nil, func(t *testing.T, f *fixture) {
		require.Equal(t, http.StatusUnauthorized, f.do(t, "PUT", pushPath, f.token(t, "", models.ScopeAdmin).Secret, `{}`).StatusCode)
	})
}

func TestPush(t *testing.T) {
	t.Parallel()
	runCase(t, "brings a reachable agent online and delivers its messages", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		secret := f.registerPush(t, token, m)
		w := f.WaitForWorker(t, "ada", isPushed)
		require.Equal(t, 2, w.Concurrency)
		task := f.submit(t, "ada")
		got := m.waitFor(t, 1)[0]
		f.WaitForInbox(t, "ada", 0)
		var n note
		require.NoError(t, json.Unmarshal([]byte(got.body), &n))
		require.Equal(t, "assign", n.Do)
		require.NotEmpty(t, task.ID)
		require.Equal(t, pushRequest{"POST", "Bearer " + secret, "application/json", "comet/test", got.body}, got)
		f.waitForMetric(t, 1, "comet_transport_messages_total", "out", "push")
	})
	runCase(t, "probes with an empty POST if HEAD fails", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		m.respondWith("HEAD", http.StatusMethodNotAllowed)
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
	})
	runCase(t, "retries a failed push while the agent is offline", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		m.respondWith("HEAD", http.StatusInternalServerError)
		m.respondWith("POST", http.StatusInternalServerError)
		f.enqueue(t, "ada", 1)
		m.waitFor(t, 1)
		f.WaitForWorker(t, "ada", offline)
		f.WaitForInbox(t, "ada", 1)
		failed := m.probes()
		require.Eventually(t, func() bool { return m.probes() > failed+4 }, time.Minute, 5*time.Millisecond)
		m.respondWith("HEAD", http.StatusOK)
		m.respondWith("POST", http.StatusAccepted)
		f.WaitForWorker(t, "ada", isPushed)
		f.WaitForInbox(t, "ada", 0)
		all := m.messages()
		require.Equal(t, all[0].body, all[len(all)-1].body, "the same message")
	})
	runCase(t, "never connects to an address that the guard refuses", nil, func(t *testing.T, f *fixture) {
		m := newPushReceiver(t)
		f.agent(t, "ada")
		_, err := f.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Protocol: "notes", Concurrency: 1, Secret: "s", Owner: f.token(t, "ada").Token.ID,
		})
		require.NoError(t, err)
		refused := &logBuffer{}
		openFixture(t, f.Work, &transport.Options{Logger: slog.New(slog.NewTextHandler(refused, nil))}, nil)
		require.Eventually(t, func() bool { return strings.Contains(refused.String(), "127.0.0.1 is a loopback address") }, time.Minute, 5*time.Millisecond)
		require.Zero(t, m.probes())
		require.False(t, online(f.CachedWorker("ada")))
	})
	runCase(t, "ends permanently after 410", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		m.respondWith("POST", http.StatusGone)
		f.enqueue(t, "ada", 1)
		f.WaitForWorker(t, "ada", offline)
		require.Eventually(t, func() bool { return f.do(t, "GET", pushPath, token, "").StatusCode == http.StatusNotFound }, time.Minute, 5*time.Millisecond)
		f.WaitForInbox(t, "ada", 1)
	})
	runCase(t, "ends when the registration is deleted", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		f.do(t, "DELETE", pushPath, token, "")
		f.WaitForWorker(t, "ada", offline)
	})
	runCase(t, "ends when the registering token is revoked", shortIntervals(), func(t *testing.T, f *fixture) {
		m := newPushReceiver(t)
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		f.registerPush(t, issued.Secret, m)
		f.WaitForWorker(t, "ada", isPushed)
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		f.WaitForWorker(t, "ada", offline)
		require.Eventually(t, func() bool {
			all, err := f.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, 5*time.Millisecond, "there is nothing left to try")
	})
	runCase(t, "does not start if the registering token is revoked", shortIntervals(), func(t *testing.T, f *fixture) {
		m := newPushReceiver(t)
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		_, err := f.SavePushTarget(t.Context(), models.PushTarget{
			AgentID: "ada", URL: m.URL, Protocol: "notes", Concurrency: 1, Secret: "s", Owner: issued.Token.ID,
		})
		require.NoError(t, err)
		openFixture(t, f.Work, shortIntervals(), nil) // it reads the targets when it starts
		require.Eventually(t, func() bool {
			all, err := f.PushTargets(context.Background())
			return err == nil && len(all) == 0
		}, time.Minute, 5*time.Millisecond)
		require.Zero(t, m.probes())
	})
	unhurried := shortIntervals()
	unhurried.Heartbeat = time.Second // long enough that its own connection does not time out
	runCase(t, "pauses while the agent has another connection", unhurried, func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		c := f.connect(t, token, "")
		f.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", c.next().Do)
		require.Empty(t, m.messages())
		require.NoError(t, c.conn.CloseNow())
		f.WaitForWorker(t, "ada", isPushed)
		m.waitFor(t, 1)
	})
	runCase(t, "probes an idle agent", shortIntervals(), func(t *testing.T, f *fixture) {
		m, token := newPushReceiver(t), f.agent(t, "ada")
		f.registerPush(t, token, m)
		f.WaitForWorker(t, "ada", isPushed)
		before := m.probes()
		require.Eventually(t, func() bool {
			f.DB.Clock.Advance(20 * time.Millisecond)
			return m.probes() > before
		}, time.Minute, 10*time.Millisecond)
		m.respondWith("HEAD", http.StatusBadGateway)
		m.respondWith("POST", http.StatusBadGateway)
		require.Eventually(t, func() bool {
			f.DB.Clock.Advance(20 * time.Millisecond)
			return offline(f.CachedWorker("ada"))
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestPushFromTwoProcesses(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		one, m := openFixture(t, startWork(t, db), shortIntervals(), nil), newPushReceiver(t)
		token := one.agent(t, "ada")
		one.registerPush(t, token, m)
		one.WaitForWorker(t, "ada", isPushed)
		connectionID := one.CachedWorker("ada").ConnectionID

		two := openFixture(t, startWork(t, db), shortIntervals(), nil)
		one.enqueue(t, "ada", 20)
		one.WaitForInbox(t, "ada", 0)
		require.Len(t, m.messages(), 20, "each message is pushed once by one process")
		require.Equal(t, connectionID, one.CachedWorker("ada").ConnectionID)

		require.NoError(t, one.transports.Stop(t.Context()))
		two.WaitForWorker(t, "ada", func(w models.Worker) bool { return isPushed(w) && w.ConnectionID != connectionID })
		two.once.Do(func() { two.task = one.task })
		two.enqueue(t, "ada", 1)
		two.WaitForInbox(t, "ada", 0)
	})
}
