package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/telemetry"
	"comet/internal/testkit"
)

// oddRequests are bodies that clients should not send, and some that they may.
func oddRequests() []string {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tools:echo","arguments":%s}}`
	return []string{
		"", " ", "null", "[]", "[null]", "{}", "42", `"text"`, "{", "\xff\xfe", `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get"}`, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe"}`, `{"jsonrpc":"2.0","id":1,"method":"completion/complete"}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":null,"argument":null}}`, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`,
		`{"jsonrpc":"2.0","id":1,"method":"no/such/method","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[1]}}`, `{"jsonrpc":"2.0","id":5,"result":{}}`,
		`{"jsonrpc":"2.0","id":` + strings.Repeat("9", 400) + `,"method":"ping"}`, `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 100_000) + `","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, 2000) + "1]",
		strings.Repeat("[", 100_000), fmt.Sprintf(call, strings.Repeat(`{"a":`, 2000)+"1"+strings.Repeat("}", 2000)),
		fmt.Sprintf(call, `{"text":"hello"}`), fmt.Sprintf(call, "null"), fmt.Sprintf(call, "[]"), fmt.Sprintf(call, `"x"`),
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"agentcards:search_tools","arguments":{"query":7}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tools:panics","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tools:echo","requestState":"x","inputResponses":{"a":null}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + strings.Repeat("n", 10_000) + `"}}`,
	}
}

// target is a server in this process that odd requests are sent to.
type target struct {
	*client
	alarm *alarm
}

// alarm is a log handler that stores only records of panics.
type alarm struct {
	mu   sync.Mutex
	line string
}

func (a *alarm) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.line = string(line)
	}
	return len(line), nil
}

func (a *alarm) rung() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.line
}

func newTarget(t testing.TB) *target {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.MCP.Servers = "127.0.0.1:0", t.TempDir(), toolsFile(t)
	out := &target{alarm: &alarm{}}
	log, err := telemetry.NewLogger(out.alarm, &telemetry.LogOptions{Format: "json"})
	require.NoError(t, err)
	a, err := app.New(t.Context(), cfg, &app.Options{Logger: log})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		require.NoError(t, a.Stop(ctx))
	})
	token, err := os.ReadFile(filepath.Join(cfg.Data, "admin.token"))
	require.NoError(t, err)
	out.client = newClient(t, a.URL(), strings.TrimSpace(string(token)))
	return out
}

// requireAnswer sends a body as it is and looks at what comes back: a refusal of HTTP's, or
// messages of the protocol.
func (s *target) requireAnswer(t *testing.T, body []byte, revision string) {
	t.Helper()
	header := []string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	if revision != "" {
		header = append(header, "Mcp-Protocol-Version", revision)
	}
	var said struct {
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal(body, &said) == nil && said.Method == "subscriptions/listen" {
		return // it is answered until its client goes
	}
	if revision == "2026-07-28" && printable(said.Method) && printable(said.Params.Name) {
		header = append(header, "Mcp-Method", said.Method)
		if said.Params.Name != "" {
			header = append(header, "Mcp-Name", said.Params.Name)
		}
	}
	resp := s.Do(t, http.MethodPost, "/mcp", string(body), header...)
	require.NotEqual(t, http.StatusInternalServerError, resp.Status, "%s", resp.Body)
	require.Empty(t, s.alarm.rung(), "nothing panics")
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		lines := bufio.NewScanner(bytes.NewReader(resp.Body))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
				requireMessage(t, []byte(data))
			}
		}
		require.NoError(t, lines.Err())
	case strings.HasPrefix(kind, "application/json"):
		requireMessage(t, resp.Body)
	default:
		require.True(t, resp.Status >= 400 || resp.Status == http.StatusAccepted, "%d %s", resp.Status, resp.Body)
	}
}

// printable reports whether a text can stand in a header.
func printable(s string) bool {
	return len(s) < 1000 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// requireMessage looks at an answer of JSON-RPC, or several.
func requireMessage(t *testing.T, text []byte) {
	t.Helper()
	var all []json.RawMessage
	if json.Unmarshal(text, &all) != nil {
		all = []json.RawMessage{text}
	}
	for _, one := range all {
		var m struct {
			Version string `json:"jsonrpc"`
			Method  string
			Result  json.RawMessage
			Error   *struct {
				Code *int // the SDK's is 0 for a session that has not begun
			}
		}
		require.NoError(t, json.Unmarshal(one, &m), "%s", one)
		require.Equal(t, "2.0", m.Version)
		require.True(t, m.Method != "" || m.Result != nil || m.Error != nil && m.Error.Code != nil, "%s", one)
	}
}

// FuzzMCPRequest sends what may be a request to /mcp, as each kind of revision. Whatever it
// is, it is answered, and nothing panics.
func FuzzMCPRequest(f *testing.F) {
	for _, body := range oddRequests() {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	s := newTarget(f)
	f.Fuzz(func(t *testing.T, body []byte, fresh bool) {
		if len(body) > 1<<20 {
			return
		}
		revision := ""
		if fresh {
			revision = "2026-07-28"
		}
		s.requireAnswer(t, body, revision)
	})
}

// TestTenThousandCallsAtATime: a client over stdio that does not wait for answers gets one
// for each call, an error where the upstream has as many as it takes.
func TestTenThousandCallsAtATime(t *testing.T) {
	t.Parallel()
	const calls = 10_000
	path, err := buildProgram()
	require.NoError(t, err)
	cmd := programOf(t, path, "mcp", "--config", toolsFile(t), "--data", t.TempDir())
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: testkit.Timeout}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return echo(t.Context(), s, "ready") == nil }, long, tickOf)
	type outcome struct {
		text string
		err  error
	}
	ended := make(chan outcome, calls)
	for n := range calls {
		go func() {
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "tools:echo", Arguments: map[string]any{"text": fmt.Sprint(n)}})
			if err != nil {
				ended <- outcome{err: err}
				return
			}
			text := res.Content[0].(*mcp.TextContent).Text
			if !res.IsError && text != echoed(fmt.Sprint(n)) {
				err = fmt.Errorf("%d is answered with %s", n, text)
			}
			if res.IsError && !strings.HasPrefix(text, "MCP_SERVER_ERROR") {
				err = fmt.Errorf("%d fails with %s", n, text)
			}
			ended <- outcome{text: text, err: err}
		}()
	}
	for range calls {
		require.NoError(t, (<-ended).err)
	}
	require.NoError(t, echo(t.Context(), s, "afterwards"))
	require.NoError(t, s.Close())
}

// TestAPanicOfAnUpstreamIsItsOwn: the program of an upstream ends in the middle of a call;
// the call says so, the server goes on, and so does the upstream, started again.
func TestAPanicOfAnUpstreamIsItsOwn(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := serve(t, data, withTools(t))
	c := newClient(t, p.url(t), adminToken(t, data))
	s := c.mcpClient(t)
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "tools:panics", Arguments: map[string]any{}})
	require.NoError(t, err)
	require.True(t, res.IsError)
	require.Contains(t, res.Content[0].(*mcp.TextContent).Text, "MCP_SERVER_ERROR")
	require.Eventually(t, func() bool { return echo(t.Context(), s, "again") == nil }, long, tickOf)
	p.stop(t)
}
