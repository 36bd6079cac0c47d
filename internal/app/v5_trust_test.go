package app_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// TestSelfRegisteredAgentGetsNoWorkOfOthers: a program without a token that declares the capabilities of
// another agent gets its tasks neither while that agent is offline nor afterwards.
func TestSelfRegisteredAgentGetsNoWorkOfOthers(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	token := registerAgent(t, c, "known")
	intruder := dialTCP(t, a.V5Addr())
	own := intruder.join(";name=intruder;caps=custom:dig,custom:shout;concurrency=10")
	eventually(t, func() bool { return c.online(t, "v5-intruder") }, "the agent is online")
	require.True(t, get[struct {
		SelfRegistered bool `json:"self_registered"`
	}](t, c, "/api/v1/agents/v5-intruder").SelfRegistered)
	submit := func(task map[string]any) {
		t.Helper()
		c.must(t, http.StatusAccepted, http.MethodPost, "/api/v1/tasks", task)
	}
	submit(map[string]any{"capabilities": []string{"custom:dig"}, "parameters": map[string]any{"for": "known"}})
	worker := dialTCP(t, a.V5Addr())
	worker.send("M1|W1>O1|J|T0|-|-|-|0|S0|-|concurrency=10;token=" + token)
	require.Contains(t, worker.next(), "registered")
	require.Contains(t, worker.next(), "for=known", "the first attempt failed, because the agent was offline")
	submit(map[string]any{"capabilities": []string{"custom:dig"}, "parameters": map[string]any{"for": "known again"}})
	require.Contains(t, worker.next(), "for=known again")

	submit(map[string]any{"agent_id": "v5-intruder", "parameters": map[string]any{"for": "intruder"}})
	require.Contains(t, intruder.next(), "for=intruder", "the first task that it gets names it")
	submit(map[string]any{"capabilities": []string{"custom:shout"}, "parameters": map[string]any{"for": "any"}})
	require.Contains(t, intruder.next(), "for=any", "no other agent meets its requirements")

	// With a token it is like any other agent.
	c.must(t, http.StatusOK, http.MethodPatch, "/api/v1/agents/v5-intruder", map[string]any{"self_registered": false})
	intruder.send("M2|" + own + ">O1|H|T0|-|-|-|0|S0|-|load=1%")
	require.Contains(t, intruder.readAll(), "|E90|", "the connection without a token ends")
}

// TestSelfRegisteredAgentCallsNoTools: neither a request for a tool nor a token of the agent calls it.
func TestSelfRegisteredAgentCallsNoTools(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "Paper-1")
		h := openHub(t, database, func(cfg *config.Config) {
			cfg.Transport.V5Listen, cfg.Transport.V5SelfRegistration = "127.0.0.1:0", true
		}, paper)
		worker := dialTCP(t, h.app.V5Addr())
		own := worker.join(";name=caller")
		agentID := get[struct {
			AgentID string `json:"agent_id"`
		}](t, h.client, "/api/v1/upstreams/Paper-1").AgentID
		h.offers(t, agentID, 3)
		worker.send("M2|" + own + ">O1|R|-|P1|N|-|0|-|-|call=\"custom:Paper-1:echo\";a=1")
		require.Contains(t, worker.next(), "accepted")
		require.Contains(t, worker.next(), "PERMISSION_DENIED")
		who := h.holder(t, "v5-caller", "tools:call")
		requireFailed(t, "PERMISSION_DENIED", called(t, who.speak(t, "2025-11-25", nil), "Paper-1__echo", map[string]any{"a": 1}))
		for _, call := range h.calls(t, "") {
			require.Equal(t, "refused", call.Outcome)
		}
	})
}

// TestV5UnixSocket: a program of the server's user needs no token on a Unix socket, and its agent is like
// any other agent. Other users cannot connect.
func TestV5UnixSocket(t *testing.T) {
	t.Parallel()
	cfg := configured(t, "sqlite")
	path := filepath.Join(socketDir(t), "v5.sock")
	cfg.Transport.V5Listen, cfg.Transport.V5SocketMode = "unix:"+path, "0600"
	a := started(t, cfg)
	require.Equal(t, "unix:"+path, a.V5Addr())
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	registerAgent(t, c, "offline-digger")
	worker := dialUnix(t, path)
	own := worker.join(";name=digger;caps=custom:dig")
	eventually(t, func() bool { return c.online(t, "v5-digger") }, "the agent is online")
	c.must(t, http.StatusAccepted, http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"custom:dig"}, "parameters": map[string]any{"deep": true}})
	request := strings.Split(worker.next(), "|")
	require.Equal(t, []string{"O1>" + own, "R"}, request[1:3])
	require.Equal(t, "call=dig;deep=true", request[10])

	other := configured(t, "sqlite")
	other.Transport.V5Listen, other.Transport.V5SocketMode = cfg.Transport.V5Listen, "0600"
	requireNoStart(t, other, "another process listens on the socket "+path)
	require.NoError(t, a.Stop(context.Background()))
	require.NoFileExists(t, path)
	require.Empty(t, worker.readAll())
}

// TestV5UnixSocketLeftBehind: a socket whose process was killed is replaced; another file is not.
func TestV5UnixSocketLeftBehind(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	cfg := configured(t, "sqlite")
	path := filepath.Join(dir, "v5.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	left.SetUnlinkOnClose(false)
	require.NoError(t, left.Close())
	require.FileExists(t, path)
	cfg.Transport.V5Listen, cfg.Transport.V5SocketMode = "unix:"+path, "0660"
	a := started(t, cfg)
	dialUnix(t, path).join(";name=first")
	require.NoError(t, a.Stop(context.Background()))

	require.NoError(t, os.WriteFile(path, []byte("a file"), 0o600))
	requireNoStart(t, cfg, path+" exists and is not a socket")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a file", string(text))
	cfg.Transport.V5Listen = "unix:" + filepath.Join(dir, strings.Repeat("x", 200))
	requireNoStart(t, cfg, fmt.Sprintf("this system allows %d", len(syscall.RawSockaddrUnix{}.Path)-1))
}

// socketDir returns a directory with a short path.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "comet") //nolint:usetesting // the path of t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dialUnix(t *testing.T, path string) *tcpClient {
	t.Helper()
	return dial(t, "unix", path)
}
