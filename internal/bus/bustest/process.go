// Package bustest runs NATS servers in separate processes, so that tests can kill one and start
// it again, empty, at the same address.
package bustest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// variable holds the settings of a test binary that runs as a server.
const variable = "COMET_TEST_NATS_SERVER"

// long is how long a test waits for an expected event.
const long = 60 * time.Second

// Settings configures a server; the zero value accepts every client without TLS.
type Settings struct {
	// User and Password are required if set.
	User, Password string
	// Nkey is the public key of the only user.
	Nkey string
	// Operator is a file with an operator's JWT, Account the JWT of one account.
	Operator, Account string
	// Cert and Key enable TLS; with CA the server requires client certificates.
	Cert, Key, CA string
	// MaxPayload is the largest message in bytes, default NATS' own 1 MiB.
	MaxPayload int

	Port int // 0 for any
}

// Server is a NATS server in another process. It does not outlive its test.
type Server struct {
	settings Settings
	cmd      *exec.Cmd
	life     io.Closer
	exited   chan struct{}
}

// Start runs a server on a free loopback port. The test binary becomes the server, so its
// TestMain must call ServeIfAsked first.
func Start(t testing.TB, settings Settings) *Server {
	t.Helper()
	s := &Server{settings: settings}
	s.Restart(t)
	t.Cleanup(s.Kill)
	return s
}

// URL returns the server's URL without a user; it does not change.
func (s *Server) URL() string { return fmt.Sprintf("nats://%s", s.Addr()) }

// Addr returns the URL's host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.settings.Port) }

// Kill sends SIGKILL and returns when the process has ended. It may be repeated.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// Reconfigure changes the settings of the next start.
func (s *Server) Reconfigure(change func(*Settings)) { change(&s.settings) }

// Restart runs the server, which must not be running, at the same address, without earlier state.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(s.settings)
	require.NoError(t, err)
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	s.cmd.Env = append(os.Environ(), variable+"="+string(text))
	s.cmd.Stderr = os.Stderr
	s.life, err = s.cmd.StdinPipe() // closing it ends the server
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	exited := make(chan struct{})
	s.exited = exited
	ready := make(chan string, 1)
	cmd := s.cmd
	go func() {
		defer close(exited)
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- line
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	select {
	case line := <-ready:
		_, err := fmt.Sscanf(strings.TrimSpace(line), "ready %d", &s.settings.Port)
		require.NoError(t, err, "the server says %q", line)
	case <-time.After(long):
		require.Fail(t, "the server does not start")
	}
}
