package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
)

// overStdio connects to the program over its standard input and output. Any other output there
// ends the session, and with it the test.
func overStdio(t *testing.T, revision string, opts *mcp.ClientOptions, environment []string, args ...string) *mcp.ClientSession {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"mcp"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	var log output
	cmd.Stderr = &log
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: testkit.Timeout}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(t, err, log.String())
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, revision, s.InitializeResult().ProtocolVersion)
	return s
}

func TestMCPStdio(t *testing.T) {
	t.Parallel()
	paper := mcptest.NewPaper(t, "paper").Asking(newest)
	file := filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, file, paper)
	h := openHub(t, "sqlite", nil, paper)
	who := h.holder(t, "")

	for kind, start := range map[string]func(t *testing.T, revision string) *mcp.ClientSession{
		"Alone": func(t *testing.T, revision string) *mcp.ClientSession {
			return overStdio(t, revision, agrees(), nil, "--config", file, "--data", t.TempDir())
		},
		"AsALinkToAServer": func(t *testing.T, revision string) *mcp.ClientSession {
			return overStdio(t, revision, agrees(), []string{"COMET_TOKEN=" + who.Token}, "--server", h.URL)
		},
	} {
		for _, revision := range []string{newest, sessions} {
			t.Run(kind+"ItServesAClientOf"+revision, func(t *testing.T) {
				t.Parallel()
				s := start(t, revision)
				names, descriptions := listed(t, s)
				require.Equal(t, []string{"agentcards__search_tools", "agentcards__execute_code", "agentcards__execute_dag", "agentcards__continue", "agentcards__abort", "agentcards__replan", "agentcards__approval_response", "comet__submit_task"}, names)
				require.Contains(t, descriptions["agentcards__search_tools"], "Connected servers: paper.", "the first list has them already")
				mcptest.RequireSays(t, `{"a":1}`, called(t, s, "paper__echo", map[string]any{"a": 1}))
				requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:nothing", nil))
				require.Equal(t, "noted", result(t, run(t, s, "await paper.note({})", nil)))
				mcptest.RequireSays(t, `accept {"sure":true}`, called(t, s, "paper:ask", nil))
				require.NoError(t, s.Close())
			})
		}
	}

	t.Run("AnInvalidTokenIsReported", func(t *testing.T) {
		t.Parallel()
		path, err := buildProgram()
		require.NoError(t, err)
		cmd := exec.Command(path, "mcp", "--server", h.URL)
		cmd.Env = []string{"HOME=" + t.TempDir(), "COMET_TOKEN=" + strings.Repeat("0", 32)}
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}` + "\n")
		var out, log output
		cmd.Stdout, cmd.Stderr = &out, &log
		_ = cmd.Run()
		said := out.String() + log.String()
		require.Contains(t, strings.ToLower(said), "--token", said)
		require.NotContains(t, said, strings.Repeat("0", 32))
	})
}

// piped writes all messages to comet mcp at once and returns the responses by id.
func piped(t *testing.T, environment string, args []string, lines ...string) map[string]string {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"mcp"}, args...)...)
	cmd.Env = []string{"HOME=" + t.TempDir(), environment}
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	var out, log output
	cmd.Stdout, cmd.Stderr = &out, &log
	require.NoError(t, cmd.Run(), log.String())
	answers := map[string]string{}
	for line := range strings.Lines(out.String()) {
		var m struct{ ID json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		if len(m.ID) > 0 {
			answers[string(m.ID)] = line
		}
	}
	return answers
}

const (
	beginSession = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	sessionBegun = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestMCPStdioAnswersEverything checks that every request gets a response, even an invalid one, one
// that the server of a relay rejects over HTTP, and one sent just before the client closes its
// output.
func TestMCPStdioAnswersEverything(t *testing.T) {
	t.Parallel()
	paper := mcptest.New(t, "paper").Echo()
	h := openHub(t, "sqlite", nil, paper)
	file := filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, file, paper)
	token := "COMET_TOKEN=" + h.holder(t, "").Token
	for kind, args := range map[string][]string{"Alone": {"--config", file, "--data", t.TempDir()}, "AsALinkToAServer": {"--server", h.URL}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			overStdioEverythingIsAnswered(t, token, args)
		})
	}
}

func overStdioEverythingIsAnswered(t *testing.T, token string, args []string) {
	t.Helper()
	t.Run("InASession", func(t *testing.T) {
		answers := piped(t, token, args, beginSession, sessionBegun,
			`{"jsonrpc":"2.0","id":1,"method":"no/such/thing"}`,
			`{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"paper__echo","arguments":{"n":2}}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":5}}`,
			`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[]}`,
			`{"jsonrpc":"2.0","id":5,"method":"agent`,
			`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`,
			`{"jsonrpc":"2.0","method":"notifications/unknown/method"}`,
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"paper:echo","arguments":{"n":7}}}`,
		)
		require.Contains(t, answers["0"], `"protocolVersion":"2025-11-25"`)
		for _, id := range []string{"1", "3", "4"} {
			require.Contains(t, answers[id], `"error"`, id)
		}
		require.Contains(t, answers[`"two"`], `\"n\":2`)
		require.Contains(t, answers["null"], "-32700")
		require.Contains(t, answers["6"], "agentcards__search_tools")
		require.Contains(t, answers["7"], `\"n\":7`)
	})

	t.Run("WithoutASession", func(t *testing.T) {
		call := func(id, method, params string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta + `}}`
		}
		answers := piped(t, token, args,
			call("1", "no/such/thing", ""),
			call("2", "tools/call", `"name":"paper__echo","arguments":{"n":2},`),
			call("3", "tools/call", `"name":"agentcards__search_tools","arguments":{"query":5},`),
			call("4", "resources/read", `"uri":"unknown://resource",`),
		)
		require.Contains(t, answers["1"], "-32601")
		require.Contains(t, answers["2"], `\"n\":2`)
		require.Contains(t, answers["3"], "-32602")
		require.Contains(t, answers["4"], "unknown://resource")
	})
}

// TestMCPRelayOutlivesServer checks that the client of a relay continues its session after a
// restart of the server, which stores no sessions.
func TestMCPRelayOutlivesServer(t *testing.T) {
	t.Parallel()
	data, tools := t.TempDir(), withTools(t)
	p := serve(t, data, tools)
	var at atomic.Pointer[url.URL]
	moved := func(address string) {
		u, err := url.Parse(address)
		require.NoError(t, err)
		at.Store(u)
	}
	moved(p.url(t))
	transport := &http.Transport{} // parallel tests close connections of http.DefaultTransport
	t.Cleanup(transport.CloseIdleConnections)
	front := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(at.Load())
		if r.Out.Body != nil { // net/http closes the body when the response begins, and a transport that still reads it then aborts the response
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		}
	}})
	t.Cleanup(front.Close)
	changed := make(chan struct{}, 100)
	s := overStdio(t, sessions, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
		changed <- struct{}{}
	}}, []string{"COMET_TOKEN=" + adminToken(t, data)}, "--server", front.URL)
	eventually(t, func() bool { return echo(t.Context(), s, "before") == nil }, "the tool is there")
	p.kill()
	require.Error(t, echo(t.Context(), s, "meanwhile"))
	for len(changed) > 0 {
		<-changed
	}
	p = serve(t, data, tools)
	moved(p.url(t))
	eventually(t, func() bool { return echo(t.Context(), s, "after") == nil }, "the client goes on")
	eventually(t, func() bool { return len(changed) > 0 }, "and is notified that the tools have changed")
	require.NoError(t, s.Close())
	p.stop(t)
}
