//go:build unix

package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
)

// npmServers is the folder that tools/mcp-servers/run prints. Without it the tests of published
// servers are skipped; CI always has it.
const npmServers = "COMET_TEST_MCP_SERVERS"

// published returns a server published on npm, or false without npmServers.
func published(id string, args ...string) (upstream.Server, bool) {
	folder := os.Getenv(npmServers)
	script := filepath.Join(folder, "node_modules/@modelcontextprotocol/server-"+id, "dist/index.js")
	return upstream.Server{ID: id, Command: "node", Args: append([]string{script}, args...)}, folder != ""
}

func TestPublishedFilesystem(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	server, ok := published("filesystem", folder)
	if !ok {
		return
	}
	b := setup(t, upstream.Options{}, server)
	s := b.ready(t, "filesystem")
	require.Empty(t, s.Warnings)
	require.Equal(t, "secure-filesystem-server", s.ServerName)
	file := filepath.Join(folder, "a.txt")
	text, err := json.Marshal(map[string]string{"path": file, "content": "hello"})
	require.NoError(t, err)
	b.call(t, "filesystem", "write_file", string(text))
	res, err := b.Call(t.Context(), "filesystem", "read_text_file", json.RawMessage(fmt.Sprintf(`{"path":%q}`, file)), nil)
	require.NoError(t, err)
	require.Equal(t, "hello", textOf(t, res))
	res, err = b.Call(t.Context(), "filesystem", "read_text_file", json.RawMessage(`{"path":"/etc/passwd"}`), nil)
	require.NoError(t, err)
	require.True(t, res.IsError())
}

func TestPublishedFilesystemAsksForRoots(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	server, ok := published("filesystem")
	if !ok {
		return
	}
	server.Roots = []string{folder}
	b := setup(t, upstream.Options{}, server)
	b.ready(t, "filesystem")
	require.Eventually(t, func() bool { // it requests roots after notifications/initialized
		res, err := b.Call(t.Context(), "filesystem", "list_allowed_directories", nil, nil)
		return err == nil && textOf(t, res) == "Allowed directories:\n"+folder
	}, long, 50*time.Millisecond)
}

func TestPublishedMemory(t *testing.T) {
	t.Parallel()
	server, ok := published("memory")
	if !ok {
		return
	}
	server.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}
	b := setup(t, upstream.Options{}, server)
	_, err := b.Call(t.Context(), "memory", "create_entities",
		json.RawMessage(`{"entities":[{"name":"comet","entityType":"program","observations":["it is written in Go"]}]}`), nil)
	require.NoError(t, err)
	pid := b.status(t, "memory").PID
	require.NoError(t, b.Restart("memory"))
	b.await(t, "memory", func(s upstream.Status) bool { return isReady(s) && s.PID != pid })
	res, err := b.Call(t.Context(), "memory", "search_nodes", json.RawMessage(`{"query":"written"}`), nil)
	require.NoError(t, err)
	require.Contains(t, textOf(t, res), "it is written in Go", "what it knew before it was started again")
}

func TestPublishedEverything(t *testing.T) {
	t.Parallel()
	server, ok := published("everything")
	if !ok {
		return
	}
	t.Run("Stdio", func(t *testing.T) {
		t.Parallel()
		tryEverything(t, setup(t, upstream.Options{}, server))
	})
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		tryEverything(t, setup(t, upstream.Options{}, upstream.Server{ID: "everything", URL: listening(t, server, "streamableHttp") + "/mcp"}))
	})
}

func tryEverything(t *testing.T, b *bench) {
	t.Helper()
	s := b.ready(t, "everything")
	require.Empty(t, s.Warnings)
	require.Greater(t, s.Tools, 5)
	require.Positive(t, s.Prompts)
	require.Positive(t, s.Resources)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			res, err := b.Call(t.Context(), "everything", "echo", json.RawMessage(fmt.Sprintf(`{"message":"%d"}`, i)), nil)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("Echo: %d", i), textOf(t, res))
		})
	}
	wg.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.Call(ctx, "everything", "trigger-long-running-operation", json.RawMessage(`{"duration":30,"steps":300}`), &upstream.CallOptions{
		Progress: func(p upstream.Progress) {
			if p.Total == 300 {
				cancel()
			}
		},
	})
	require.ErrorIs(t, err, context.Canceled)

	asked := make(chan string, 1)
	_, err = b.Call(t.Context(), "everything", "trigger-elicitation-request", nil, &upstream.CallOptions{
		Can: upstream.Capabilities{Elicitation: &mcp.ElicitationCapabilities{}},
		Ask: func(_ context.Context, q mcp.InputRequestMap) (mcp.InputResponseMap, error) {
			for name, question := range q {
				asked <- question.(*mcp.ElicitParams).Message
				return mcp.InputResponseMap{name: &mcp.ElicitResult{Action: "decline"}}, nil
			}
			return nil, nil
		},
	})
	require.NoError(t, err)
	require.NotEmpty(t, <-asked)
	require.Zero(t, b.status(t, "everything").Restarts)
}

// listening runs a server that listens on a port and returns its address.
func listening(t *testing.T, s upstream.Server, mode string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), s.Command, append(s.Args, mode)...)
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	url := "http://127.0.0.1:" + strconv.Itoa(port)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/none", nil)
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}, long, 50*time.Millisecond)
	return url
}
