package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// overStdio speaks with the program over its standard input and output. Whatever else it says
// there ends the session, and with it the test.
func overStdio(t *testing.T, revision string, opts *mcp.ClientOptions, environment []string, args ...string) *mcp.ClientSession {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"mcp"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	var log output
	cmd.Stderr = &log
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(t, err, log.String())
	t.Cleanup(func() { _ = s.Close() })
	require.Equal(t, revision, s.InitializeResult().ProtocolVersion)
	return s
}

func TestGatewayOverStdio(t *testing.T) {
	t.Parallel()
	paper := newPaper(t, "paper").asking(newest)
	file := filepath.Join(t.TempDir(), "servers.json")
	writeServers(t, file, paper)
	h := openHub(t, "sqlite", nil, paper)
	who := h.holder(t, "")

	for kind, start := range map[string]func(t *testing.T, revision string) *mcp.ClientSession{
		"Alone": func(t *testing.T, revision string) *mcp.ClientSession {
			return overStdio(t, revision, agrees(), nil, "--config", file, "--data", t.TempDir())
		},
		"AsALinkToAServer": func(t *testing.T, revision string) *mcp.ClientSession {
			return overStdio(t, revision, agrees(), []string{"COMET_TOKEN=" + who.token}, "--server", h.url)
		},
	} {
		for _, revision := range []string{newest, sessions} {
			t.Run(kind+"ItServesAClientOf"+revision, func(t *testing.T) {
				t.Parallel()
				s := start(t, revision)
				names, descriptions := listed(t, s)
				require.Equal(t, []string{"agentcards__search_tools", "agentcards__execute_code", "comet__submit_task"}, names)
				require.Contains(t, descriptions["agentcards__search_tools"], "Connected servers: paper.", "the first list has them already")
				requireSays(t, `{"a":1}`, called(t, s, "paper__echo", map[string]any{"a": 1}))
				requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:nothing", nil))
				require.Equal(t, "noted", result(t, run(t, s, "await paper.note({})", nil)))
				requireSays(t, `accept {"sure":true}`, called(t, s, "paper:ask", nil))
				require.NoError(t, s.Close())
			})
		}
	}

	t.Run("WithAWrongTokenItSaysSo", func(t *testing.T) {
		t.Parallel()
		path, err := buildProgram()
		require.NoError(t, err)
		cmd := exec.Command(path, "mcp", "--server", h.url)
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
