package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/models"
)

// idleAgents is the number of agents with an idle connection.
const idleAgents = 10_000

// BenchmarkIdle measures the memory of the real program with 100,000 registered agents,
// and what each of 10,000 WebSockets of idle agents adds. It needs /proc (Linux) and about 10,050
// open files in each process.
func BenchmarkIdle(b *testing.B) {
	g := newDatabase(b, sqlite)
	h := newServer(b, g)
	seed(b, h.store)
	tokens := auth.New(h.store, nil)
	_, err := tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	secrets := make([]string, idleAgents)
	together(b, writers, idleAgents, func(n int) error {
		id := specialist(n)
		issued, err := tokens.Create(b.Context(), models.System(), auth.TokenDraft{Name: &id, Scopes: []models.Scope{models.ScopeAgentsRead}, AgentID: &id}, nil)
		secrets[n] = issued.Secret
		return err
	})
	require.NoError(b, h.store.Close())
	pid, addr := program(b, g.options.Dir)
	for b.Loop() {
		rest := settled(b, pid)
		conns := make([]net.Conn, idleAgents)
		together(b, 32, idleAgents, func(n int) (err error) {
			conns[n], err = connectIdle(addr, secrets[n])
			return err
		})
		held := settled(b, pid)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(rest, "MB_at_rest")
		b.ReportMetric(held, "MB_with_lines")
		b.ReportMetric((held-rest)*1024/idleAgents, "KB_a_line")
		for _, l := range conns {
			require.NoError(b, l.Close())
		}
	}
}

// together calls fn n times, with a limit on concurrent calls.
func together(b *testing.B, atOnce, n int, do func(int) error) {
	b.Helper()
	var running sync.WaitGroup
	errs := make(chan error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range atOnce {
		running.Go(func() {
			for i := range next {
				errs <- do(i)
			}
		})
	}
	running.Wait()
	for range n {
		require.NoError(b, <-errs)
	}
}

// program builds and starts the real program on a data directory.
func program(b *testing.B, data string) (pid int, addr string) {
	b.Helper()
	path := filepath.Join(b.TempDir(), "comet")
	out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "comet/cmd/comet").CombinedOutput()
	require.NoError(b, err, "%s", out)
	cmd := exec.CommandContext(detached(), path, "serve", "--listen", "127.0.0.1:0", "--data", data, "--log-level", "error")
	cmd.Env = []string{"HOME=" + b.TempDir()}
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	cmd.Stderr = os.Stderr
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(b, err)
	found := regexp.MustCompile(`http://(\S+) `).FindStringSubmatch(line)
	require.NotNil(b, found, line)
	return cmd.Process.Pid, found[1]
}

// connectIdle opens a WebSocket and reads the first message.
func connectIdle(addr, token string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(detached(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "GET /api/agent/connect HTTP/1.1\r\nHost: comet\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: envelope.v1\r\n\r\n", token)
	if err != nil {
		return nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, 0, 2048)
	for !bytes.Contains(got, []byte(`{"hello"`)) {
		n, err := c.Read(got[len(got):cap(got)])
		if err != nil || len(got)+n == cap(got) || bytes.HasPrefix(got, []byte("HTTP/1.1 4")) {
			return nil, fmt.Errorf("no hello but %q: %w", got, err)
		}
		got = got[:len(got)+n]
	}
	return c, nil
}

// settled returns the private memory of a process in MB once it is stable.
func settled(b *testing.B, pid int) float64 {
	b.Helper()
	last := 0.0
	for range 12 { // a heartbeat happens in between
		<-time.After(time.Second)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(b, err)
		_, rest, _ := strings.Cut(string(text), "RssAnon:")
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(b, err)
		last = float64(kb) / 1024
	}
	return last
}
