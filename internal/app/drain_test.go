package app_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSIGTERM(t *testing.T) {
	t.Parallel()

	t.Run("drains under load", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, database setting) {
			data := t.TempDir()
			p := serve(t, data, database, env("COMET_HTTP_DRAIN_DELAY=1500ms"))
			c := newClient(t, p.url(t), adminToken(t, data))
			s := &stream{acknowledged: map[string]draft{}, attempted: map[string]draft{}}
			done := s.flow(t, c, 0)
			slow := beginCreate(t, c, specialist("slow"))
			eventually(t, func() bool { return s.count.Load() > 50 }, "the stream flows")

			p.terminate(t)
			requireNotReady(t, c)
			eventually(t, func() bool { return refuses(c) }, "it takes no new connections")
			status, head := slow.finish(t)
			require.Equal(t, http.StatusCreated, status, "a request in flight is finished")
			require.Contains(t, head, "Connection: close")
			done()
			require.Zero(t, p.exit(t), "stderr:\n%s", p.log.end())

			// An unacknowledged request on a lost connection has had no effect.
			p = serve(t, data, database)
			all := newClient(t, p.url(t), adminToken(t, data)).tree(t)
			require.Contains(t, all, "slow")
			for id, d := range s.acknowledged {
				requireKept(t, d, all[id])
			}
			require.Len(t, all, 10+len(s.acknowledged)+1)
			p.stop(t)
		})
	})

	t.Run("a second signal ends at once", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data)
		c := newClient(t, p.url(t), adminToken(t, data))
		beginCreate(t, c, specialist("slow")) // never completes it
		p.terminate(t)
		eventually(t, func() bool { return refuses(c) }, "it drains")
		eventually(t, func() bool {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // until the first signal was handled
			select {
			case <-p.exited:
				return true
			default:
				return false
			}
		}, "a further one ends it")
		status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		require.Equal(t, syscall.SIGTERM, status.Signal())
	})

	t.Run("an incomplete request is cut off after the timeout", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data, env("COMET_HTTP_SHUTDOWN_TIMEOUT=10s"))
		c := newClient(t, p.url(t), adminToken(t, data))
		beginCreate(t, c, specialist("slow"))
		p.terminate(t)
		require.Zero(t, p.exit(t), "an incomplete request is no error of the server")
		require.Contains(t, p.log.String(), "requests did not end in time")
	})
}

// requireNotReady waits until /readyz reports the shutdown.
func requireNotReady(t *testing.T, c *client) {
	t.Helper()
	for ended := time.Now().Add(long); time.Now().Before(ended); {
		resp, err := c.Open(t.Context(), http.MethodGet, "/readyz", "")
		require.NoError(t, err, "the server stopped before it reported that it is not ready")
		var answer struct{ Checks map[string]string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		_ = resp.Body.Close()
		require.NoError(t, err)
		if resp.StatusCode == http.StatusOK {
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "shutting down", answer.Checks["server"])
		require.Equal(t, "ok", answer.Checks["database"])
		require.True(t, resp.Close, "responses close the connection")
		return
	}
	require.Fail(t, "the server stays ready")
}

// refuses reports whether connections are refused.
func refuses(c *client) bool {
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

// request is a request in flight until its body is complete.
type request struct {
	conn   net.Conn
	answer *bufio.Reader
	rest   string
}

// beginCreate sends all but the end of a request and waits until the server reads it.
func beginCreate(t *testing.T, c *client, d draft) *request {
	t.Helper()
	body, err := json.Marshal(d)
	require.NoError(t, err)
	host := strings.TrimPrefix(c.URL, "http://")
	conn, err := net.Dial("tcp", host)
	require.NoError(t, err)
	r := &request{conn: conn, answer: bufio.NewReader(conn), rest: string(body[10:])}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /api/v1/agents HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", host, c.Token, len(body))
	require.NoError(t, err)
	line, err := r.answer.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = conn.Write(body[:10])
	require.NoError(t, err)
	return r
}

// finish sends the rest and returns the status and the header of the response.
func (r *request) finish(t *testing.T) (status int, head string) {
	t.Helper()
	_, err := r.conn.Write([]byte(r.rest))
	require.NoError(t, err)
	blank, err := r.answer.ReadString('\n') // after 100 Continue
	require.NoError(t, err)
	require.Equal(t, "\r\n", blank)
	for {
		line, err := r.answer.ReadString('\n')
		require.NoError(t, err, "the connection was cut")
		if line == "\r\n" {
			break
		}
		head += line
	}
	_, err = fmt.Sscanf(head, "HTTP/1.1 %d", &status)
	require.NoError(t, err)
	return status, head
}
