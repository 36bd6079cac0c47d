package httpkit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// post sends a body through b to an endpoint that reads it and calls hold, and returns the error of
// reading it.
func post(b *BytesInFlight, body io.Reader, hold func(r *http.Request)) (err error) {
	h := b.Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, err = ReadBody(w, r, BodyRules{Limit: 64 << 20}); err == nil && hold != nil {
			hold(r)
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body))
	return err
}

// inPieces is a body that arrives in pieces of 64 KiB, a millisecond apart. before is the size of the buffer
// for the first piece.
type inPieces struct{ left, before int }

func (r *inPieces) Read(p []byte) (int, error) {
	if r.before == 0 {
		r.before = len(p)
	}
	if r.left == 0 {
		return 0, io.EOF
	}
	<-time.After(time.Millisecond) // of the bubble's clock
	n := min(len(p), r.left, 64<<10)
	r.left -= n
	return n, nil
}

func TestBytesInFlight(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20

	t.Run("stay below the limit, and the other bodies wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := NewBytesInFlight(32 * mega)
			var held, most atomic.Int64
			var clients sync.WaitGroup
			for range 1000 {
				clients.Go(func() {
					require.NoError(t, post(b, bytes.NewReader(make([]byte, mega)), func(*http.Request) {
						most.Store(max(most.Load(), held.Add(1)))
						<-time.After(time.Millisecond) // of the bubble's clock
						held.Add(-1)
					}))
				})
			}
			clients.Wait()
			require.LessOrEqual(t, most.Load(), int64(16), "one sender may use half of the limit")
			require.True(t, b.free.TryAcquire(32*mega), "everything was released")
		})
	})

	t.Run("of bodies that arrive in pieces are counted at once, so that they do not wait for each other", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := NewBytesInFlight(4 * mega)
			var clients sync.WaitGroup
			for range 40 {
				clients.Go(func() {
					body := &inPieces{left: mega}
					r := httptest.NewRequest(http.MethodPost, "/", body)
					r.ContentLength = mega
					var read []byte
					var err error
					b.Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						read, _, err = ReadBody(w, r, BodyRules{Limit: mega})
					})).ServeHTTP(httptest.NewRecorder(), r)
					require.NoError(t, err)
					require.Len(t, read, mega)
					require.LessOrEqual(t, body.before, 64<<10, "the buffer grows once the body is counted")
				})
			}
			clients.Wait()
			require.True(t, b.free.TryAcquire(4*mega))
		})
	})

	t.Run("reject a body that does not fit in time, and take a short one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := NewBytesInFlight(8 * mega)
			over := make(chan struct{})
			go func() { _ = post(b, bytes.NewReader(make([]byte, 8*mega)), func(*http.Request) { <-over }) }()
			synctest.Wait()
			for _, body := range []io.Reader{bytes.NewReader(make([]byte, mega)), io.MultiReader(bytes.NewReader(make([]byte, mega)))} { // also one of unknown length
				err := post(b, body, nil)
				require.True(t, errs.Is(err, errs.Unavailable), err)
				require.Equal(t, 5, errs.From(err).Meta["retry_after"])
			}
			require.NoError(t, post(b, strings.NewReader(strings.Repeat("x", uncountedBytes)), nil))
			close(over)
			synctest.Wait()
			require.NoError(t, post(b, bytes.NewReader(make([]byte, 9*mega)), nil), "one that is longer than the limit has it alone")
		})
	})

	t.Run("are released by a request that waits", func(t *testing.T) {
		t.Parallel()
		b := NewBytesInFlight(mega)
		require.NoError(t, post(b, bytes.NewReader(make([]byte, mega)), func(r *http.Request) {
			ReleaseBody(r)
			require.NoError(t, post(b, bytes.NewReader(make([]byte, mega)), nil))
		}))
		require.True(t, b.free.TryAcquire(mega))
	})

	t.Run("include frames", func(t *testing.T) {
		t.Parallel()
		b := NewBytesInFlight(mega)
		release := b.Hold(t.Context(), 2*mega, "t")
		require.False(t, b.free.TryAcquire(1))
		b.Hold(t.Context(), uncountedBytes, "t")()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		b.Hold(ended, mega, "t")()
		release()
		require.True(t, b.free.TryAcquire(mega))
	})
}
