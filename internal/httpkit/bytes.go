package httpkit

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"runtime"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
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
	// largeBytes is the length from which a body or frame takes a slot, for at most slotTime: its request
	// may wait for something other than a processor.
	largeBytes = 256 << 10
	slotTime   = time.Second
	// arrivalDelay and arrivalRate, in bytes per second, limit how slowly a counted body may arrive, and
	// maxArrival limits how long one of a request without a time limit may take.
	arrivalDelay = 5 * time.Second
	arrivalRate  = 64 << 10
	maxArrival   = 30 * time.Second
)

// BytesInFlight limits the bytes of the long bodies and frames that are read and processed at the
// same time, over all APIs: their number times the limit of each would be too much memory.
type BytesInFlight struct {
	limit   int64
	free    *semaphore.Weighted
	senders *lru.Cache[string, *sender]
	// slots limits the large bodies and frames that are processed at the same time, so that short requests
	// find a free processor and do not wait for several long transactions.
	slots *semaphore.Weighted
}

// sender contains the free part of the half of the limit, and of the one slot, that a sender may use.
type sender struct{ bytes, slot *semaphore.Weighted }

// NewBytesInFlight returns the limit of a number of bytes, 0 for the default.
func NewBytesInFlight(limit int64) *BytesInFlight {
	if limit <= 0 {
		limit = defaultBytes
	}
	b := &BytesInFlight{limit: limit, free: semaphore.NewWeighted(limit), slots: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)-1)))}
	b.senders, _ = lru.New[string, *sender](maxCounters) // New fails only for a size below 1
	return b
}

func (b *BytesInFlight) sender(id string) *sender {
	if known, ok := b.senders.Get(id); ok {
		return known
	}
	unused := &sender{semaphore.NewWeighted(b.limit / 2), semaphore.NewWeighted(1)}
	known, _, _ := b.senders.PeekOrAdd(id, unused)
	return cmp.Or(known, unused)
}

// Bound is a middleware that counts the body of a request, from its first bytes until the request ends or
// until ReleaseBody. A body that does not fit within a few seconds cannot be read: the error is
// errs.Unavailable with "retry_after".
func (b *BytesInFlight) Bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > uncountedBytes {
			body := b.Reader(r.Context(), r.Body, r.ContentLength, ClientPrefix(r).String())
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

// FreeSlot lets the next large body be processed. The body stays counted.
func FreeSlot(r *http.Request) {
	if body, ok := r.Body.(*CountedReader); ok {
		body.leave()
	}
}

// Hold counts n bytes of a token, and takes a slot if they are many, until release is called. It waits
// until they fit, for a few seconds; then it does not count them.
func (b *BytesInFlight) Hold(ctx context.Context, n int, tokenID string) (release func()) {
	c := b.Reader(ctx, nil, 0, tokenID)
	if c.sofar = int64(n); n > uncountedBytes {
		_ = c.take(c.sofar)
	}
	c.enter()
	return c.Release
}

// CountedReader counts the bytes that are read from it. It is not safe for concurrent use.
type CountedReader struct {
	io.ReadCloser
	bytes         *BytesInFlight
	ctx           context.Context
	sender        string
	sofar, length int64
	// taken is the number of counted bytes; own of them belong to share, the share of the sender.
	taken, own int64
	share      *sender
	leave      func() // frees the slot
	// control limits the time of each read, nil does not. until is when reading must end; arriving is how
	// long reads have taken since the body was counted.
	control  *http.ResponseController
	until    time.Time
	arriving time.Duration
}

// Reader returns a reader that counts the whole length, or the bytes that have arrived if it is unknown,
// until Release. The sender is the id of a token, or an address without one.
func (b *BytesInFlight) Reader(ctx context.Context, r io.ReadCloser, length int64, sender string) *CountedReader {
	return &CountedReader{ReadCloser: r, bytes: b, ctx: ctx, length: length, sender: sender, leave: func() {}}
}

// Read implements io.Reader.
func (c *CountedReader) Read(p []byte) (int, error) {
	if need := c.sofar; need > max(uncountedBytes, c.taken) && c.taken < c.bytes.limit {
		if err := c.take(max(need, c.length, 2*c.taken)); err != nil {
			_, _ = io.CopyN(io.Discard, c.ReadCloser, max(c.length-c.sofar, 0)) // many clients read the response after they have sent everything
			return 0, err
		}
	}
	begun := time.Now()
	if c.taken > 0 && c.control != nil {
		left := min(arrivalDelay+time.Duration(c.sofar)*time.Second/arrivalRate-c.arriving, time.Until(c.until))
		_ = c.control.SetReadDeadline(begun.Add(left)) // only a test's response writer fails
	}
	n, err := c.ReadCloser.Read(p)
	if c.sofar += int64(n); c.taken > 0 {
		c.arriving += time.Since(begun)
	}
	return n, err
}

// take counts n bytes instead of fewer. The error is errs.Unavailable.
func (c *CountedReader) take(n int64) error {
	ctx, cancel := context.WithTimeout(c.ctx, bytesWait)
	defer cancel()
	b, share := c.bytes, c.senderShare()
	own, all := min(n, b.limit/2)-c.own, min(n, b.limit)-c.taken
	reason := "other long requests of this token, or of this address if there is none, use their half of http.max_bytes_in_flight"
	if own == 0 || share.bytes.Acquire(ctx, own) == nil {
		if b.free.Acquire(ctx, all) == nil {
			c.own, c.taken = c.own+own, c.taken+all
			return nil
		}
		share.bytes.Release(own)
		reason = "the server processes too many long requests"
	}
	return errs.New(errs.Unavailable, "%s; try again later", reason).With(retryAfter, int(bytesWait.Seconds()))
}

func (c *CountedReader) senderShare() *sender {
	if c.share == nil {
		c.share = c.bytes.sender(c.sender)
	}
	return c.share
}

// enter takes a slot if the body is large. It waits a few seconds for a free one. A sender has, or waits for,
// at most one.
func (c *CountedReader) enter() {
	if c.sofar <= largeBytes {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, bytesWait)
	defer cancel()
	own, slots := c.senderShare().slot, c.bytes.slots
	if own.Acquire(ctx, 1) != nil {
		return
	}
	if slots.Acquire(ctx, 1) != nil {
		own.Release(1)
		return
	}
	c.leave = sync.OnceFunc(func() {
		slots.Release(1)
		own.Release(1)
	})
	time.AfterFunc(slotTime, c.leave)
}

// Release ends the counting. A second call does nothing.
func (c *CountedReader) Release() {
	c.bytes.free.Release(c.taken)
	if c.share != nil {
		c.share.bytes.Release(c.own)
	}
	c.leave()
	c.taken, c.own = 0, 0
}
