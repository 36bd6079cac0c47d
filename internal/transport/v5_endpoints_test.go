package transport_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	"comet/internal/transport"
	"comet/models"
)

const (
	messagesPath = "/api/v5/messages"
	askDig       = "M1|User>O1|R|-|P1|N|-|0|-|B500|call=dig;depth=2"
)

// post sends lines and returns the response and its lines without message numbers.
func (f *v5Fixture) post(t *testing.T, token, body string, headers ...string) (a response, lines []string) {
	t.Helper()
	a = f.do(t, http.MethodPost, messagesPath, token, body, append([]string{"Content-Type", "text/plain"}, headers...)...)
	return a, f.lines(t, a)
}

func (f *v5Fixture) lines(t *testing.T, a response) []string {
	t.Helper()
	require.Equal(t, "text/plain; charset=utf-8", a.Header.Get("Content-Type"))
	require.True(t, a.StatusCode >= 400 || strings.HasSuffix(a.body, "\n"), "%q", a.body)
	return strings.Split(strings.TrimSuffix(withoutNumbers(a.body), "\n"), "\n")
}

// digAgent registers the worker W1 with the capability dig. It sends its messages over HTTP.
func (f *v5Fixture) digAgent(t *testing.T) (token string) {
	t.Helper()
	token = f.agent(t, "dig")
	_, err := f.Join(t.Context(), "dig", orchestrator.JoinRequest{Protocol: v5.Name, Transport: "none", Concurrency: 100})
	require.NoError(t, err)
	f.WaitForWorker(t, "dig", online)
	return token
}

// waitForDig sends a request that waits, and returns a format with the ids of its task once the
// worker has it.
func (f *v5Fixture) waitForDig(t *testing.T, user string) (got <-chan response, task string) {
	t.Helper()
	got = f.doAsync(t.Context(), http.MethodPost, messagesPath, user, askDig, "Content-Type", "text/plain", "Prefer", "wait=30")
	m := f.WaitForInbox(t, "dig", 1)[0]
	_, err := f.Acknowledge(t.Context(), "dig", []string{m.ID})
	require.NoError(t, err)
	agent, err := f.Agent(t.Context(), "dig")
	require.NoError(t, err)
	parts, err := f.protocol.Protocol.Render(t.Context(), protocol.Peer{Agent: agent}, m, 0)
	require.NoError(t, err)
	segments := strings.Split(string(parts[0]), "|")
	require.Equal(t, "R", segments[2])
	return got, segments[3] + "|P1|%s|%s|0|" + segments[8]
}

// TestV5Messages: one message per line, one reply per line.
func TestV5Messages(t *testing.T) {
	t.Parallel()
	with := func(name string, fn func(t *testing.T, f *v5Fixture, user, worker string)) {
		t.Helper()
		runV5Case(t, name, transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
			fn(t, f, f.token(t, "", models.ScopeMessagesSend).Secret, f.digAgent(t))
		})
	}
	with("an accepted request is 202 with its location", func(t *testing.T, f *v5Fixture, user, _ string) {
		a, lines := f.post(t, user, askDig)
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Equal(t, []string{"O1>User|A|T1|P1|N|-|0|S1|B500|accepted;worker=W1"}, lines)
		id, ok := strings.CutPrefix(a.Header.Get("Location"), "/api/v1/tasks/")
		require.True(t, ok)
		task, err := f.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "dig", task.AgentID)
		require.Empty(t, a.Header.Get("Preference-Applied"))
		a, lines = f.post(t, user, askDig, "Prefer", "wait=0")
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Len(t, lines, 1)
		require.Equal(t, "wait=0", a.Header.Get("Preference-Applied"))
	})
	with("a waiting request gets the end in a second line and 200", func(t *testing.T, f *v5Fixture, user, worker string) {
		got, task := f.waitForDig(t, user)
		a, lines := f.post(t, worker, "M2|W1>O1|S|"+fmt.Sprintf(task, "D", "-")+"|B300|earth=much")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Contains(t, lines[0], "|A|")
		a = <-got
		require.Equal(t, http.StatusOK, a.StatusCode, a.body)
		require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"))
		require.Contains(t, a.Header.Get("Location"), "/api/v1/tasks/")
		lines = f.lines(t, a)
		require.Len(t, lines, 2)
		require.Equal(t, "O1>User|S|T1|P1|D|-|0|S1|B300|earth=much", lines[1])
	})
	with("a waiting request gets a question of the worker", func(t *testing.T, f *v5Fixture, user, worker string) {
		got, task := f.waitForDig(t, user)
		f.post(t, worker, "M2|W1>O1|C|"+fmt.Sprintf(task, "R", "-")+"|-|question=where?;options=here,there")
		a := <-got
		require.Equal(t, http.StatusOK, a.StatusCode)
		lines := f.lines(t, a)
		require.Len(t, lines, 2)
		require.Equal(t, "O1>User|D|T1|P1|R|-|0|S1|B500|question=where?;opt1=here;opt2=there", lines[1])
	})
	for code, status := range map[string]int{"E23": 504, "E33": 404, "E40": 404, "E99": 502, "E90": 502, "E18": 400, "E10": 400} {
		with("a task that ends with "+code+" sets the status", func(t *testing.T, f *v5Fixture, user, worker string) {
			got, task := f.waitForDig(t, user)
			f.post(t, worker, "M2|W1>O1|E|"+fmt.Sprintf(task, "F", code)+"|-|desc=rock")
			a := <-got
			require.Equal(t, status, a.StatusCode)
			require.Contains(t, f.lines(t, a)[1], "|E|T1|P1|F|"+code+"|0|S1|B500|desc=rock")
		})
	}
	with("lines are processed in order and empty ones ignored", func(t *testing.T, f *v5Fixture, user, _ string) {
		a, lines := f.post(t, user, "\n"+askDig+"\r\n\r\n\nM2|User>O1|Q|T1|-|-|-|0|S1|-|-\nnonsense\nM3|User>O1|U|T1|-|X|-|0|S1|-|reason=enough\n\n")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{
			"O1>User|A|T1|P1|N|-|0|S1|B500|accepted;worker=W1",
			"O1>User|U|T1|P1|N|-|0|S1|B500|progress=0%",
			"O1>User|E|-|-|F|E10|0|-|-|desc=invalid message format;details=the message has 1 segment, not 11, or 8 in V4",
			"O1>User|A|T1|-|X|-|0|S1|-|cancelled",
		}, lines)
	})
	with("the status is that of the last accepted line", func(t *testing.T, f *v5Fixture, user, worker string) {
		got, task := f.waitForDig(t, user)
		f.post(t, worker, "M2|W1>O1|E|"+fmt.Sprintf(task, "F", "E99")+"|-|desc=rock")
		require.Equal(t, http.StatusBadGateway, (<-got).StatusCode)
		a, lines := f.post(t, user, "M2|User>O1|Q|T0|-|-|-|0|S0|-|filter=W*\nM3|User>O1|Q|T1|-|-|-|0|S1|-|-")
		require.Equal(t, http.StatusOK, a.StatusCode, "work that failed is no failure of the request: %q", lines)
		require.Contains(t, lines[1], "|E|T1|P1|F|E99|")
		a, lines = f.post(t, user, "nonsense\nM2|User>O1|Q|T0|-|-|-|0|S0|-|filter=W*\n"+askDig+"\nnonsense")
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.NotEmpty(t, a.Header.Get("Location"))
		require.Len(t, lines, 4)
	})
	with("the status is that of the first line if all are refused", func(t *testing.T, f *v5Fixture, user, _ string) {
		_, lines := f.post(t, user, askDig+"\nM2|User>O1|U|T1|-|X|-|0|S1|-|-")
		require.Contains(t, lines[1], "cancelled")
		a, _ := f.post(t, user, "M3|User>O1|C|T1|-|-|-|0|S1|-|answer=x\nnonsense")
		require.Equal(t, http.StatusConflict, a.StatusCode) // E15
		for line, status := range map[string]int{
			"M1|User>O1|R|-|P1|N|-|0|-|B500":                           400, // E10
			"M1|User>O1|Z|-|P1|N|-|0|-|B500|call=dig":                  400, // E14
			"M1|User>O1|R|-|-|-|-|4|-|-|call=dig":                      400, // E16
			"M1|User>O1|R|-|P1|N|-|0|-|B0|call=dig":                    429, // E17
			"M1|User>O1|R|-|P1|N|-|0|-|-|call=fly":                     422, // E19
			"M1|User>O1|Q|T1|-|-|-|0|S77|-|-":                          404, // E42
			"M1|User>W9|R|-|P1|N|-|0|-|-|call=dig":                     404, // E41
			"M1|User>O1|Q|T1|-|-|-|0|S77|-|ref=unknown":                404, // E42
			"M1|User>O1|R|-|P1|N|-|0|-|B9999|call=dig;x=" + "a>b":      400, // E12
			"M1|W1>O1|H|T0|-|-|-|0|S0|-|load=1%":                       400, // E13
			"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;auth=nonsense":       401, // E90
			"M1|User>O1|R|-|P1|N|-|0|-|-|call=dig;timeout=99999999999": 400, // E10
		} {
			a, lines := f.post(t, user, line+"\nnonsense")
			require.Equal(t, status, a.StatusCode, "%s: %q", line, lines)
			require.Contains(t, lines[1], "|E10|")
			require.Empty(t, a.Header.Get("Preference-Applied"))
			require.Empty(t, a.Header.Get("Location"))
		}
	})
	with("an invalid body is refused in one line", func(t *testing.T, f *v5Fixture, user, _ string) {
		for _, c := range []struct {
			kind, body string
			status     int
			data       string
		}{
			{"text/plain", "", 400, "desc=there is no message; send one per line"},
			{"text/plain", "\n\r\n\n", 400, "desc=there is no message; send one per line"},
			{"application/json", "{}", 415, "desc=the body must be text/plain or application/x-www-form-urlencoded in UTF-8"},
			{"nonsense;;", "x", 415, "desc=the body must be text/plain or application/x-www-form-urlencoded in UTF-8"},
			{"text/plain", strings.Repeat("x", 1<<20+1), 413, "desc=the body must be at most 1048576 bytes long"},
			{"text/plain", strings.Repeat("x\n", 1001), 400, "desc=there are 1001 messages"},
		} {
			a := f.do(t, http.MethodPost, messagesPath, user, c.body, "Content-Type", c.kind)
			require.Equal(t, c.status, a.StatusCode, "%s", a.body)
			require.Equal(t, "text/plain; charset=utf-8", a.Header.Get("Content-Type"))
			require.Contains(t, strings.ReplaceAll(a.body, `"`, ""), "|E|-|-|F|E10|0|-|-|"+c.data)
		}
	})
	with("1,000 lines and curl's default type are accepted", func(t *testing.T, f *v5Fixture, user, _ string) {
		a := f.do(t, http.MethodPost, messagesPath, user, strings.Repeat("x\n", 1000), "Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Len(t, f.lines(t, a), 1000)
		a = f.do(t, http.MethodPost, messagesPath, user, strings.Repeat("x", 1<<20))
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Len(t, f.lines(t, a), 1)
	})
	with("the token must have the scope or belong to an agent", func(t *testing.T, f *v5Fixture, _, worker string) {
		for bad, why := range map[string]string{
			"": "reason=token;desc=the header Authorization is missing", "nonsense": "reason=token;desc=the token is not accepted",
			f.token(t, "", models.ScopeTasksRead).Secret: "reason=scope;desc=the token lacks the scope messages:send",
		} {
			a, lines := f.post(t, bad, askDig)
			require.Equal(t, http.StatusUnauthorized, a.StatusCode)
			require.Equal(t, "Bearer", a.Header.Get("WWW-Authenticate"))
			require.Equal(t, []string{"O1>User|E|-|P1|F|E90|0|-|B500|" + why}, lines)
		}
		a, lines := f.post(t, worker, "M1|W1>O1|H|T0|-|-|-|0|S0|-|load=7%")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{"O1>W1|A|T0|-|-|-|0|S0|-|alive"}, lines)
		a = f.do(t, http.MethodGet, messagesPath, worker, "")
		require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
	})
	with("the task belongs to the trace of the request", func(t *testing.T, f *v5Fixture, user, _ string) {
		const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		for header, want := range map[string]string{parent: parent, "": "", "00-0-0-0": "", parent + "x": ""} {
			a, _ := f.post(t, user, askDig, "Traceparent", header)
			require.Equal(t, http.StatusAccepted, a.StatusCode, a.body)
			d, err := f.Detail(t.Context(), strings.TrimPrefix(a.Header.Get("Location"), "/api/v1/tasks/"))
			require.NoError(t, err)
			require.Equal(t, want, d.Input.Trace, header)
		}
	})
	with("the wait covers all lines together", func(t *testing.T, f *v5Fixture, user, _ string) {
		before := time.Now()
		a, lines := f.post(t, user, strings.Repeat(askDig+"\n", 3), "Prefer", "wait=1")
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Len(t, lines, 3, "one each")
		require.GreaterOrEqual(t, time.Since(before), time.Second)
	})
	busy := transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{RateLimit: 1, RateWindow: time.Hour})}
	runV5Case(t, "a token over its rate limit is E31", busy, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.token(t, "", models.ScopeMessagesSend).Secret
		f.post(t, token, askDig)
		a, lines := f.post(t, token, askDig)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.NotEmpty(t, a.Header.Get("Retry-After"))
		require.Contains(t, lines[0], "|F|E31|")
	})
}

// TestPrompts (PROTOCOL_V5 §13).
func TestPrompts(t *testing.T) {
	t.Parallel()
	runV5Case(t, "are served in two languages, to an agent its own", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		user, worker := f.token(t, "", models.ScopeAgentsRead).Secret, f.digAgent(t)
		for path, want := range map[string]string{
			"orchestrator": "Tu es COMET", "orchestrator?lang=fr": "Tu es COMET", "orchestrator?lang=en": "You are COMET", "worker?lang=en": "WORKER", "research": "RESEARCH",
		} {
			a := f.do(t, http.MethodGet, "/api/v5/prompts/"+path, user, "")
			require.Equal(t, http.StatusOK, a.StatusCode, path)
			require.Equal(t, "text/plain; charset=utf-8", a.Header.Get("Content-Type"))
			require.Contains(t, a.body, want, path)
		}
		require.Contains(t, f.do(t, http.MethodGet, "/api/v5/prompts/worker?lang=en", worker, "").body, "You are W1, a WORKER")
	})
	runV5Case(t, "unknown ones are E40", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.token(t, "", models.ScopeMessagesSend).Secret
		for _, path := range []string{"poet", "worker?lang=de", "worker.fr", "..%2Fpipe", "worker?lang=..%2Ffr"} {
			a := f.do(t, http.MethodGet, "/api/v5/prompts/"+path, token, "")
			require.Equal(t, http.StatusNotFound, a.StatusCode, path)
			require.Contains(t, f.lines(t, a)[0], "O1>User|E|-|-|F|E40|0|-|-|desc=", path)
		}
		for _, bad := range []string{"nonsense", f.token(t, "", models.ScopeTasksRead).Secret} { // without the scope to read agents
			require.Equal(t, http.StatusUnauthorized, f.do(t, http.MethodGet, "/api/v5/prompts/worker", bad, "").StatusCode)
		}
	})
}
