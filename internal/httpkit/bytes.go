package httpkit

import (
	"context"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/errs"
)

const (
	// uncountedBytes is the length up to which a body or frame is not counted, so that short requests
	// never wait for long ones.
	uncountedBytes = 16 << 10
	// defaultBytes is the default limit of bytes in flight. A request takes up to eight times the
	// memory of its body.
	defaultBytes = 24 << 20
	// bytesWait is how long a body or frame waits for others to be processed.
	bytesWait = 5 * time.Second
)

// BytesInFlight limits the bytes of the long bodies and frames that are read and processed at the
// same time, over all APIs: their number times the limit of each would be too much memory.
type BytesInFlight struct {
	limit int64
	free  *semaphore.Weighted
}

// NewBytesInFlight returns the limit of a number of bytes, 0 for the default.
func NewBytesInFlight(limit int64) *BytesInFlight {
	if limit <= 0 {
		limit = defaultBytes
	}
	return &BytesInFlight{limit, semaphore.NewWeighted(limit)}
}

// Bound is a middleware that counts the body of a request, from its first bytes until the request ends or
// until ReleaseBody. A body that does not fit within a few seconds cannot be read: the error is
// errs.Unavailable with "retry_after".
func (b *BytesInFlight) Bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > uncountedBytes {
			body := b.Reader(r.Context(), r.Body, r.ContentLength)
			defer body.Release()
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

// ReleaseBody stops counting the body of a request that has been processed and waits.
func ReleaseBody(r *http.Request) {
	if body, ok := r.Body.(*CountedReader); ok {
		body.Release()
	}
}

// Hold counts n bytes until release is called. It waits until they fit, for a few seconds; then it does
// not count them.
func (b *BytesInFlight) Hold(ctx context.Context, n int) (release func()) {
	ctx, cancel := context.WithTimeout(ctx, bytesWait)
	defer cancel()
	held := min(int64(n), b.limit)
	if n <= uncountedBytes || b.free.Acquire(ctx, held) != nil {
		return func() {}
	}
	return func() { b.free.Release(held) }
}

// CountedReader counts the bytes that are read from it. It is not safe for concurrent use.
type CountedReader struct {
	io.ReadCloser
	bytes                *BytesInFlight
	ctx                  context.Context
	sofar, taken, length int64
}

// Reader returns a reader that counts the whole length, or the bytes that have arrived if it is unknown, until Release.
func (b *BytesInFlight) Reader(ctx context.Context, r io.ReadCloser, length int64) *CountedReader {
	return &CountedReader{ReadCloser: r, bytes: b, ctx: ctx, length: length}
}

// Read implements io.Reader.
func (c *CountedReader) Read(p []byte) (int, error) {
	if need := c.sofar; need > max(uncountedBytes, c.taken) && c.taken < c.bytes.limit {
		more := min(max(need, c.length, 2*c.taken), c.bytes.limit) - c.taken
		ctx, cancel := context.WithTimeout(c.ctx, bytesWait)
		defer cancel()
		if c.bytes.free.Acquire(ctx, more) != nil {
			return 0, errs.New(errs.Unavailable, "the server processes too many long requests; try again later").With(retryAfter, int(bytesWait.Seconds()))
		}
		c.taken += more
	}
	n, err := c.ReadCloser.Read(p)
	c.sofar += int64(n)
	return n, err
}

// Release ends the counting. A second call does nothing.
func (c *CountedReader) Release() {
	c.bytes.free.Release(c.taken)
	c.taken = 0
}
