package webhooks

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// wire starts a server that treats its connections, counted from 1, as serve says.
func wire(t *testing.T, serve func(n int, c *net.TCPConn)) (url string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	open.Go(func() {
		for n := 1; ; n++ {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			open.Go(func() {
				defer c.Close()
				over := context.AfterFunc(ctx, func() { _ = c.Close() })
				defer over()
				serve(n, c)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		open.Wait()
	})
	return "http://" + l.Addr().String()
}

// request reads one request off a connection.
func request(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// gone waits until the other side has closed the connection.
func gone(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func says(c net.Conn, text string) { _, _ = io.WriteString(c, text) }

func TestWithoutAResponseTheErrorSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(n int, c *net.TCPConn)
		says  string
	}{
		"a server that closes the connection": {func(_ int, c *net.TCPConn) { request(c) }, "^the server closed the connection before it answered$"},
		"a server that resets it": {func(_ int, c *net.TCPConn) {
			request(c)
			_ = c.SetLinger(0)
		}, "^the server reset the connection before it answered$"},
		"a server that answers half a status": {func(_ int, c *net.TCPConn) {
			request(c)
			says(c, "HTTP/1.1 20")
		}, `^the request failed: malformed HTTP status code "20"$`},
		"a server that speaks something else": {func(_ int, c *net.TCPConn) {
			request(c)
			says(c, "SSH-2.0-x\x1b[31m\r\n\r\n")
		}, `^the request failed: malformed HTTP response "SSH-2\.0`},
		"a server whose header has no end": {func(_ int, c *net.TCPConn) {
			request(c)
			says(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 128<<10)+"\r\n\r\n")
			gone(c)
		}, "^the request failed: .*headers exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := testSender(t).send(t.Context(), hookTo(wire(t, c.serve)), delivery(), sentAt)
			require.False(t, out.succeeded)
			require.Zero(t, out.attempt.Status)
			require.Equal(t, sentAt, out.attempt.At)
			require.Regexp(t, c.says, out.attempt.Error)
			require.NotContains(t, out.attempt.Error, "\x1b")
			require.Less(t, len(out.attempt.Error), 300)
		})
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	out := testSender(t).send(t.Context(), hookTo("http://"+l.Addr().String()), delivery(), sentAt)
	require.Equal(t, "the connection to "+l.Addr().String()+" was refused", out.attempt.Error)
}

func TestTheTimeoutIsForTheWholeAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve     func(c net.Conn)
		succeeded bool
		says      string
		excerpt   string
	}{
		"no answer": {func(c net.Conn) { gone(c) }, false, "there was no answer within 100ms", ""},
		"half a header": {func(c net.Conn) {
			request(c)
			says(c, "HTTP/1.1 200 OK\r\nX: ")
			gone(c)
		}, false, "there was no answer within 100ms", ""},
		"a body that stalls behind 200": {func(c net.Conn) {
			request(c)
			says(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf")
			gone(c)
		}, true, "", "half"},
		"a body that stalls behind 500": {func(c net.Conn) {
			request(c)
			says(c, "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
			gone(c)
		}, false, "the server answered 500 Internal Server Error", "half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					c.serve(theirs)
				}()
				s := newSender((&Options{Timeout: 100 * time.Millisecond}).orDefaults())
				s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return ours, nil }
				out := s.send(t.Context(), hookTo("http://127.0.0.1"), delivery(), sentAt)
				require.Equal(t, c.succeeded, out.succeeded)
				require.Equal(t, c.says, out.attempt.Error)
				require.Equal(t, c.excerpt, out.attempt.ResponseExcerpt)
				require.EqualValues(t, 100, out.attempt.DurationMS)
			})
		})
	}
	t.Run("a body without end costs no time", func(t *testing.T) {
		t.Parallel()
		s := newSender((&Options{Timeout: time.Hour, Guard: loopback()}).orDefaults())
		t.Cleanup(s.close)
		out := s.send(t.Context(), hookTo(wire(t, func(_ int, c *net.TCPConn) {
			request(c)
			says(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := io.WriteString(c, strings.Repeat("x", 10_000)); err != nil {
					return
				}
			}
		})), delivery(), sentAt)
		require.True(t, out.succeeded)
		require.Equal(t, strings.Repeat("x", 1024), out.attempt.ResponseExcerpt)
	})
	t.Run("nor does a switch of protocols", func(t *testing.T) {
		t.Parallel()
		s := newSender((&Options{Timeout: time.Hour, Guard: loopback()}).orDefaults())
		t.Cleanup(s.close)
		out := s.send(t.Context(), hookTo(wire(t, func(_ int, c *net.TCPConn) {
			request(c)
			says(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n")
			gone(c)
		})), delivery(), sentAt)
		require.False(t, out.succeeded)
		require.Equal(t, "the server answered 101 Switching Protocols", out.attempt.Error)
	})
	t.Run("a cancelled attempt returns at once", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		out := testSender(t).send(ctx, hookTo(wire(t, func(_ int, c *net.TCPConn) {
			cancel()
			gone(c)
		})), delivery(), sentAt)
		require.Equal(t, "the attempt was given up before there was an answer", out.attempt.Error)
	})
}

// TestAnAttemptIsOneRequest: the receiver reads the request on a connection that was
// kept and closes without an answer. It may have worked on it, so only the schedule
// repeats it.
func TestAnAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	const thanks = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	requests := make(chan int, 10)
	url := wire(t, func(n int, c *net.TCPConn) {
		request(c)
		requests <- n
		says(c, thanks)
		request(c)
		requests <- n
	})
	s := testSender(t)
	out := s.send(t.Context(), hookTo(url), delivery(), sentAt)
	require.True(t, out.succeeded, out.attempt.Error)
	out = s.send(t.Context(), hookTo(url), delivery(), sentAt)
	require.False(t, out.succeeded)
	require.Equal(t, "the server closed the connection before it answered", out.attempt.Error)
	require.Len(t, requests, 2)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	protocol := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol <- r.Proto }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	plain := receiver(t, func(http.ResponseWriter, *http.Request) {})

	t.Run("an unknown certificate is refused", func(t *testing.T) {
		t.Parallel()
		out := testSender(t).send(t.Context(), hookTo(server.URL), delivery(), sentAt)
		require.Zero(t, out.attempt.Status)
		require.Regexp(t, "^the certificate of the server cannot be trusted: x509: .*unknown authority", out.attempt.Error)
	})
	trusting := func(t *testing.T) *sender {
		s := testSender(t)
		s.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		s.transport.TLSClientConfig.NextProtos = nil
		return s
	}
	t.Run("one that is trusted is spoken to over HTTP/2", func(t *testing.T) {
		t.Parallel()
		out := trusting(t).send(t.Context(), hookTo(server.URL), delivery(), sentAt)
		require.Empty(t, out.attempt.Error)
		require.Equal(t, "HTTP/2.0", <-protocol)
	})
	t.Run("one for another name is refused", func(t *testing.T) {
		t.Parallel()
		out := trusting(t).send(t.Context(), hookTo(strings.Replace(server.URL, "127.0.0.1", "localhost", 1)), delivery(), sentAt)
		require.Regexp(t, "^the certificate of the server cannot be trusted: x509: .*localhost", out.attempt.Error)
	})
	t.Run("a server without TLS is named as such", func(t *testing.T) {
		t.Parallel()
		out := testSender(t).send(t.Context(), hookTo(strings.Replace(plain.URL, "http:", "https:", 1)), delivery(), sentAt)
		require.Equal(t, "the server does not speak TLS, which https asks for", out.attempt.Error)
	})
	t.Run("a server that refuses the handshake too", func(t *testing.T) {
		t.Parallel()
		url := wire(t, func(_ int, c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			says(c, "\x15\x03\x03\x00\x02\x02\x28") // a fatal alert, handshake_failure (RFC 8446 §6)
		})
		out := testSender(t).send(t.Context(), hookTo(strings.Replace(url, "http:", "https:", 1)), delivery(), sentAt)
		require.Equal(t, "the server refused the TLS handshake: tls: handshake failure", out.attempt.Error)
	})
}

// TestFailedLookUps needs no name server: the test supplies its responses.
func TestFailedLookUps(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"unknown.example cannot be resolved":                    &net.DNSError{Name: "unknown.example", IsNotFound: true, Err: "no such host"},
		"the look-up of slow.example took too long":             &net.DNSError{Name: "slow.example", IsTimeout: true, Err: "i/o timeout"},
		"the look-up of odd.example failed: server misbehaving": &net.DNSError{Name: "odd.example", IsTemporary: true, Err: "server misbehaving"},
		"there was no answer within 1m":                         os.ErrDeadlineExceeded,
		"the request failed: x":                                 errors.New("x"),
	} {
		require.Equal(t, want, failure(t.Context(), &net.OpError{Op: "dial", Net: "tcp", Err: err}, time.Minute))
	}
}
