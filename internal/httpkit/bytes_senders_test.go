package httpkit

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"comet/internal/errs"
)

// postAs sends a body as a token through b to an endpoint that reads it and calls hold, and returns the error
// of reading it.
func postAs(b *BytesInFlight, token string, length int, hold func()) (err error) {
	h := b.Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := r.Body.(*CountedReader); ok {
			body.sender = token
		}
		if _, _, err = ReadBody(w, r, BodyRules{Limit: 64 << 20}); err == nil && hold != nil {
			hold()
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, length))))
	return err
}

func TestOneTokenUsesHalfOfTheBytesInFlight(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(8 * mega)
		over := make(chan struct{})
		var clients sync.WaitGroup
		for range 2 {
			clients.Go(func() { require.NoError(t, postAs(b, "many", 2*mega, func() { <-over })) })
		}
		synctest.Wait()
		<-time.After(slotTime) // of the bubble's clock: both have given up their slots
		err := postAs(b, "many", mega, nil)
		require.True(t, errs.Is(err, errs.Unavailable), err)
		require.ErrorContains(t, err, "of this token")
		require.Equal(t, 5, errs.From(err).Meta["retry_after"])

		clients.Go(func() { require.NoError(t, postAs(b, "other", 3*mega, func() { <-over })) })
		synctest.Wait()
		err = postAs(b, "third", 2*mega, nil)
		require.True(t, errs.Is(err, errs.Unavailable), err)
		require.ErrorContains(t, err, "too many long requests")
		require.True(t, b.sender("third").bytes.TryAcquire(4*mega), "a refused body takes nothing of the share of its sender")
		for i := range maxCounters {
			b.sender(fmt.Sprint(i))
			_ = b.sender("many")
		}
		require.False(t, b.sender("many").bytes.TryAcquire(1), "the share of an active sender is not forgotten")
		close(over)
		clients.Wait()
		require.NoError(t, postAs(b, "many", 4*mega, nil), "the share is free again")
		require.NoError(t, postAs(b, "many", 6*mega, nil), "a body that is longer than the half is accepted alone")
		require.True(t, b.free.TryAcquire(8*mega), "everything was released")
	})
}

func TestFewLargeBodiesAreProcessedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(0)
		b.slots = semaphore.NewWeighted(2)
		var busy, most atomic.Int64
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				require.NoError(t, postAs(b, fmt.Sprint(i), largeBytes+1, func() {
					most.Store(max(most.Load(), busy.Add(1)))
					<-time.After(slotTime / 4) // of the bubble's clock
					busy.Add(-1)
				}))
			})
		}
		synctest.Wait()
		require.EqualValues(t, 2, busy.Load())
		begun := time.Now()
		require.NoError(t, postAs(b, "short", largeBytes, nil))
		b.Hold(t.Context(), largeBytes, "short")()
		require.Zero(t, time.Since(begun), "a shorter body does not wait")
		b.Hold(t.Context(), largeBytes+1, "frame")()
		require.NotZero(t, time.Since(begun), "a large frame waits")
		clients.Wait()
		require.EqualValues(t, 2, most.Load())
	})
}

// TestSlotsAreSharedBetweenSenders checks that a sender of many large bodies delays others by one of them.
func TestSlotsAreSharedBetweenSenders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(0)
		b.slots = semaphore.NewWeighted(1)
		var clients sync.WaitGroup
		for range 40 {
			clients.Go(func() { _ = postAs(b, "many", largeBytes+1, func() { <-time.After(slotTime / 2) }) }) // of the bubble's clock
		}
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, postAs(b, "other", largeBytes+1, nil))
		require.LessOrEqual(t, time.Since(begun), slotTime)
		clients.Wait()
	})
}

func TestLargeBodyOfAWaitingRequestGivesUpItsSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(0)
		b.slots = semaphore.NewWeighted(1)
		over := make(chan struct{})
		go func() { _ = postAs(b, "waits", largeBytes+1, func() { <-over }) }()
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, postAs(b, "next", largeBytes+1, nil))
		require.Equal(t, slotTime, time.Since(begun))
		close(over)
		synctest.Wait()
		require.True(t, b.slots.TryAcquire(1), "each slot was freed once")
	})
}

func TestFreeSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(0)
		b.slots = semaphore.NewWeighted(1)
		body := b.Reader(t.Context(), io.NopCloser(bytes.NewReader(make([]byte, 2*largeBytes))), 2*largeBytes, "calls")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Body = body
		_, err := io.Copy(io.Discard, body)
		require.NoError(t, err)
		body.enter()
		FreeSlot(r)
		begun := time.Now()
		require.NoError(t, postAs(b, "next", largeBytes+1, nil))
		require.Zero(t, time.Since(begun))
		require.EqualValues(t, 2*largeBytes, body.taken, "the body stays counted")
		body.Release()
	})
}

// pipeListener accepts the server's ends of pipes.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error { return nil }

func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// dialBounded returns a connection to an HTTP server whose endpoint reads bodies through b within a minute. The
// status of the response is that of an API.
func dialBounded(t *testing.T, b *BytesInFlight) net.Conn {
	t.Helper()
	h := b.Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Minute))
		_, _, err := ReadBody(w, r, BodyRules{Limit: 64 << 20})
		switch errs.CodeOf(err) {
		case errs.Timeout:
			w.WriteHeader(http.StatusRequestTimeout)
		case errs.Unavailable:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	listener := make(pipeListener, 1)
	server := &http.Server{Handler: h} //nolint:gosec // the client is the test
	go func() { _ = server.Serve(listener) }()
	client, end := net.Pipe()
	listener <- end
	t.Cleanup(func() {
		close(listener)
		_ = client.Close()
		_ = server.Close()
	})
	return client
}

// sendPieces sends a request with a body of length bytes in pieces of size bytes, pause apart, until the server
// responds or closes the connection, and returns the status of the response, or 0.
func sendPieces(client net.Conn, length, size int, pause time.Duration) int {
	status := make(chan int, 1)
	go func() {
		res, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			status <- 0
			return
		}
		_ = res.Body.Close()
		status <- res.StatusCode
	}()
	_, _ = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length)
	for sent := 0; sent < length; sent += size {
		if _, err := io.WriteString(client, strings.Repeat("x", min(size, length-sent))); err != nil {
			break
		}
		select {
		case <-time.After(pause):
		case s := <-status:
			return s
		}
	}
	return <-status
}

func TestSlowSenders(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	run := func(name string, length, size int, pause time.Duration, status int, within time.Duration) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := NewBytesInFlight(16 * mega)
				client := dialBounded(t, b)
				begun := time.Now()
				require.Equal(t, status, sendPieces(client, length, size, pause))
				require.LessOrEqual(t, time.Since(begun), within)
				synctest.Wait()
				require.True(t, b.free.TryAcquire(16*mega), "all bytes are free")
			})
		})
	}
	run("a sender that stops is rejected", 8*mega, 64<<10, time.Hour, http.StatusRequestTimeout, 7*time.Second)
	run("a sender of 4 KiB per second is rejected", 8*mega, 4<<10, time.Second, http.StatusRequestTimeout, 12*time.Second)
	run("a sender of 64 KiB per second may take longer than the delay", mega, 64<<10, time.Second, http.StatusOK, 17*time.Second)
	run("a sender of a request without a time limit has 30 s", 8*mega, 64<<10, time.Second, http.StatusRequestTimeout, 31*time.Second)
	run("a sender of a short body is not limited", uncountedBytes, 1<<10, 2*time.Second, http.StatusOK, 33*time.Second)
}

func TestClientThatSendsItsWholeBodyReceives503(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		b := NewBytesInFlight(mega)
		require.True(t, b.free.TryAcquire(mega))
		client := dialBounded(t, b)
		_, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n")
		require.NoError(t, err)
		_, err = client.Write(make([]byte, 8*mega))
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(client), nil)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	})
}
