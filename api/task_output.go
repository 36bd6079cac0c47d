package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/models"
)

// getTaskOutput writes the output of a task.
//
//	@Summary		Read a task's output
//	@Description	Returns the result of the task or, with `stream=log`, the log that its agent sent, of the successful attempt or else of the newest one. A single `Range` of bytes returns 206. Bytes that have not arrived although later ones have are NUL. While an agent sends a result in parts without known lengths, the parts are returned without gaps and ranges are not available.
//	@Description
//	@Description	`follow=true` streams the output from the byte `from` until the task has ended, and ignores `Range`. If the task is retried, the output of the new attempt follows that of the previous one. If the stream ends early, for example because the server stops, the connection is closed before the response is complete.
//	@Produce		text/plain
//	@Param			stream	query	string	false	"Which output to return"	enums(result,log)	default(result)
//	@Param			follow	query	bool	false	"Stream until the task has ended"	default(false)
//	@Param			from	query	int		false	"Offset of the first byte; only with `follow=true`"	minimum(0)	default(0)
//	@Param			Range	header	string	false	"The bytes to return"	example(bytes=0-1023)
//	@Success		200	{string}	string	"The complete output"
//	@Header			200	{string}	Accept-Ranges	"`bytes` if ranges are available, else `none`."
//	@Success		206	{string}	string	"The requested range"
//	@Header			206	{string}	Accept-Ranges	"Always `bytes`."
//	@Header			206	{string}	Content-Range	"Range and total length, such as `bytes 0-1023/4096`."
//	@Failure		416	"The range starts after the end of the output"
//	@Header			416	{string}	Content-Range	"Total length, such as `bytes */4096`."
//	@Failure		503	"The server has reached its limit of concurrent streams"
func (s *Server) getTaskOutput(w http.ResponseWriter, r *http.Request) error {
	req, err := readPath(r)
	if err != nil {
		return err
	}
	q := newQuery(r, "stream", "follow", "from")
	which, follow, from := models.StreamResult, q.Bool("follow"), q.Int("from", 0, 1<<53, 0)
	if q.Enum("stream", "result", "result", "log") == "log" {
		which = models.StreamLog
	}
	if q.Has("from") && !follow {
		q.Fail("from", "follow", "from requires follow=true; otherwise send a Range header")
	}
	if err := q.Err(); err != nil {
		return err
	}
	t, err := s.visibleTask(req)
	if err != nil {
		return err
	}
	release, err := s.streams.Acquire(req.caller.TokenID)
	if err != nil {
		return err
	}
	defer release()
	if follow {
		s.followOutput(w, r, t.ID, which, int64(from))
		return nil
	}
	return s.writeOutput(w, r, t, which)
}

const contentTypeText = "text/plain; charset=utf-8"

// writeOutput writes the stored output, or a range of it. The total length of a result with parts
// whose offsets are not yet known is unknown, so it has no ranges.
func (s *Server) writeOutput(w http.ResponseWriter, r *http.Request, t models.Task, which models.OutputStream) (err error) {
	size := streamLength(t, which)
	c, h, status := &outputCopy{end: size, fill: true}, w.Header(), http.StatusOK
	if !t.State.Ended() {
		if c.whole, err = s.core.Orchestrator.HasUnalignedOutput(r.Context(), t, which); err != nil {
			return err
		}
	}
	if c.whole {
		h.Set("Accept-Ranges", "none")
	} else {
		var partial bool
		c.at, c.end, partial = byteRange(r, size)
		h.Set("Accept-Ranges", "bytes")
		if partial && c.at >= size {
			h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
			return errs.New(errs.RangeNotSatisfiable, "the range starts after the end of the output, which has %d bytes", size)
		}
		if partial {
			status = http.StatusPartialContent
			h.Set("Content-Range", "bytes "+strconv.FormatInt(c.at, 10)+"-"+strconv.FormatInt(c.end-1, 10)+"/"+strconv.FormatInt(size, 10))
		}
		h.Set("Content-Length", strconv.FormatInt(c.end-c.at, 10))
	}
	h.Set("Content-Type", contentTypeText)
	c.to = httpkit.NewStream(w, s.opts.StreamWriteTimeout)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.copyOutput(r.Context(), c, t, which); err != nil || c.at < c.end {
		panic(http.ErrAbortHandler) // the client must notice that the response is incomplete
	}
	return nil
}

// followOutput writes stored and new output until the task has ended. If it ends early it aborts
// the connection, so that the client detects the truncation.
func (s *Server) followOutput(w http.ResponseWriter, r *http.Request, id string, which models.OutputStream, at int64) {
	w.Header().Set("Content-Type", contentTypeText)
	w.Header().Set("X-Accel-Buffering", "no")
	out := httpkit.NewStream(w, s.opts.StreamWriteTimeout)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	ctx, stop := s.streams.UntilDrain(r.Context())
	defer stop()
	c := &outputCopy{to: out, at: at, sent: at, whole: true}
	attempt, seen := 0, int64(0)
	for {
		t, err := s.core.Orchestrator.Task(ctx, id)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		c.end = streamLength(t, which)
		if seen > c.end && !t.State.Ended() || attempt != 0 && t.Attempt != attempt {
			c.at, c.sent = 0, 0 // a new attempt starts
		}
		attempt, seen = t.Attempt, c.end
		c.fill = t.State.Ended()
		if t.State == models.TaskDone {
			c.at = c.sent // all offsets are known now
		}
		if err = s.copyOutput(ctx, c, t, which); err == nil {
			err = out.Flush()
		}
		if err == nil && t.State.Ended() {
			return
		}
		if err == nil {
			_, err = s.core.Orchestrator.WaitForChange(ctx, "", id, t.Version, s.opts.Heartbeat)
		}
		if err != nil || ctx.Err() != nil || s.tokenRevoked(r) {
			panic(http.ErrAbortHandler)
		}
	}
}

func streamLength(t models.Task, which models.OutputStream) int64 {
	if which == models.StreamLog {
		return t.LogBytes
	}
	return t.OutputBytes
}

// outputCopy writes the bytes [at, end) of an output stream. It stops at bytes that have not
// arrived or, with fill, writes NULs in their place.
//
// While an attempt runs, the data of a chunk may be longer or shorter than its span. With whole the
// data is written as it is, and sent counts the bytes; otherwise it is truncated or filled up, so
// that every byte has its final offset.
type outputCopy struct {
	to      io.Writer
	at, end int64
	fill    bool
	whole   bool
	sent    int64
}

// errRangeWritten stops reading output.
var errRangeWritten = errors.New("enough was read")

// copyOutput writes the stored output.
func (s *Server) copyOutput(ctx context.Context, c *outputCopy, t models.Task, which models.OutputStream) error {
	if c.at >= c.end {
		return nil
	}
	err := s.core.Orchestrator.Output(ctx, t, which, c.at, c.writeChunk)
	if errors.Is(err, errRangeWritten) {
		err = nil
	}
	return err
}

// writeChunk writes one chunk, and fills the gap before it.
func (c *outputCopy) writeChunk(o models.OutputChunk) error {
	if o.Start > c.at {
		if !c.fill {
			return errRangeWritten
		}
		if err := c.writeZeros(min(o.Start, c.end) - c.at); err != nil {
			return err
		}
	}
	if c.at < c.end {
		if err := c.writeData(o); err != nil {
			return err
		}
	}
	if c.at >= c.end {
		return errRangeWritten
	}
	return nil
}

func (c *outputCopy) writeData(o models.OutputChunk) error {
	upTo, size := min(o.End(), c.end), int64(len(o.Data))
	whole := c.whole && o.Span != 0
	data := o.Data
	if !whole {
		data = data[min(c.at-o.Start, size):min(upTo-o.Start, size)]
	}
	n, err := c.to.Write(data)
	c.sent += int64(n)
	switch c.at += int64(n); {
	case err != nil:
		return err
	case whole:
		c.at = upTo
		return nil
	}
	return c.writeZeros(upTo - c.at) // if the data is shorter than the span
}

func (c *outputCopy) writeZeros(count int64) (err error) {
	zeros := make([]byte, min(max(count, 0), 32<<10))
	for n := 0; count > 0 && err == nil; count -= int64(n) {
		n, err = c.to.Write(zeros[:min(count, int64(len(zeros)))])
		c.at, c.sent = c.at+int64(n), c.sent+int64(n)
	}
	return err
}

// byteRange parses a Range header (RFC 9110 §14.2) for a body of size bytes and returns the bytes
// [from, to). Without Range they are all bytes; so they are for a Range that a server may ignore:
// several ranges, another unit, malformed, or with If-Range, because the response has no validator.
// A range that starts after the end has from >= size.
func byteRange(r *http.Request, size int64) (from, to int64, partial bool) {
	lines := r.Header["Range"]
	if len(lines) != 1 || r.Header.Get("If-Range") != "" {
		return 0, size, false
	}
	m := rangeForm.FindStringSubmatch(lines[0])
	if m == nil || m[1]+m[2] == "" {
		return 0, size, false
	}
	first, last := bytePosition(m[1]), bytePosition(m[2])
	switch {
	case m[1] == "" && last == 0:
		return size, size, true
	case m[1] == "": // a suffix range
		return max(size-last, 0), size, true
	case m[2] == "":
		return first, size, true
	case last < first:
		return 0, size, false
	}
	return first, min(last, size-1) + 1, true
}

// rangeForm matches a single range of bytes.
var rangeForm = regexp.MustCompile(`^\s*(?i:bytes)\s*=\s*(\d*)-(\d*)\s*$`)

// bytePosition parses digits. A number that overflows becomes the maximum, "" becomes 0.
func bytePosition(digits string) int64 {
	n, _ := strconv.ParseUint(digits, 10, 63) // the maximum on overflow
	return int64(n)
}

// partialResult is a partial result of a task.
type partialResult struct {
	Number    int64          `json:"number" example:"3"`                        // The number of the partial result in the task, from 1.
	Attempt   int            `json:"attempt" example:"1"`                       // The attempt whose agent sent it.
	Data      jsontext.Value `json:"data" swaggertype:"object"`                 // What the agent sent, any JSON value.
	CreatedAt time.Time      `json:"created_at" example:"2026-01-10T15:30:00Z"` // When it arrived.
}

// partialList is a page of partial results.
type partialList struct {
	Partials   []partialResult `json:"partials"`                             // The partial results on the page.
	NextCursor string          `json:"next_cursor,omitempty" example:"MTAw"` // Absent on the last page.
}

// listPartials lists partial results.
//
//	@Summary		List a task's partial results
//	@Description	Returns what the agents of a task sent before its result, in order, including those of attempts that failed. An agent of the Genesis protocol sends them as RESPONSE with the status PARTIAL. Each one also causes the event `task.partial`.
//	@Success		200	{object}	partialList	"A page of results"
func (s *Server) listPartials(r request) (any, error) {
	q := newQuery(r.Request, "limit", "cursor")
	limit, after := q.pageLimit(), q.numberCursor()
	if err := q.Err(); err != nil {
		return nil, err
	}
	if _, err := s.visibleTask(r); err != nil {
		return nil, err
	}
	all, err := s.core.Orchestrator.Partials(r.Context(), r.id, after, limit+1)
	all, next := cutPage(all, limit, func(p models.Partial) string { return strconv.FormatInt(p.Seq, 10) })
	return reply{next: next, body: partialList{views(all, func(p models.Partial) partialResult {
		return partialResult{p.Seq, p.Attempt, jsontext.Value(p.Data), p.CreatedAt}
	}), next}}, err
}
