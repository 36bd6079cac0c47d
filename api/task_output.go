package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/models"
)

// getTaskOutput sends what a task has put out.
//
//	@Summary		Read a task's output
//	@Description	The result of the task, or with `stream=log` what its agent told on the way, byte by byte as the agent sent it: of the attempt that succeeded, or else of the newest one. A single `Range` of bytes is answered with 206. Bytes that have not come yet, although later ones have, are NUL. While an agent of PROTOCOL_V5 says a result in pieces, those that there are come whole, and without ranges.
//	@Description
//	@Description	`follow=true` goes on until the task has ended, from the byte `from` on, and leaves `Range` aside; where an attempt, or a step that makes a result of its own, begins anew, what it puts out follows. An answer that ends before its time, because the server stops for instance, is cut off rather than ended.
//	@ID				getTaskOutput
//	@Tags			tasks
//	@Produce		text/plain
//	@Security		BearerAuth[tasks:read]
//	@Param			task_id	path	string	true	"The task's id"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			stream	query	string	false	"Which of the two"	enums(result,log)	default(result)
//	@Param			follow	query	bool	false	"Go on until the task has ended"	default(false)
//	@Param			from	query	int		false	"The byte to begin with, where the output is followed"	minimum(0)	default(0)
//	@Param			Range	header	string	false	"The bytes you want"	example(bytes=0-1023)
//	@Success		200	{string}	string	"All of it"
//	@Header			200	{string}	Accept-Ranges	"The unit of ranges: `bytes`, or `none`."
//	@Success		206	{string}	string	"The range"
//	@Header			206	{string}	Accept-Ranges	"The unit of ranges: `bytes`."
//	@Header			206	{string}	Content-Range	"Which bytes these are, and of how many: `bytes 0-1023/4096`."
//	@Failure		400	"A parameter is unknown or malformed"
//	@Failure		404	"No such task"
//	@Failure		416	"The range begins behind the end"
//	@Header			416	{string}	Content-Range	"How many bytes there are: `bytes */4096`."
//	@Failure		503	"The server serves as many streams as it may"
//	@Header			503	{integer}	Retry-After
//	@Router			/api/v1/tasks/{task_id}/output [get]
func (s *Server) getTaskOutput(w http.ResponseWriter, r *http.Request) error {
	id, err := decodeID(r, "task_id")
	if err != nil {
		return err
	}
	q := newQuery(r, "stream", "follow", "from")
	which, follow, from := models.StreamResult, q.Bool("follow"), q.Int("from", 0, 1<<53, 0)
	if q.Enum("stream", "result", "result", "log") == "log" {
		which = models.StreamLog
	}
	if q.Has("from") && !follow {
		q.Fail("from", "follow", "from goes with follow=true; without it send a Range")
	}
	if err := q.Err(); err != nil {
		return err
	}
	t, err := s.visibleTask(r, id)
	if err != nil {
		return err
	}
	release, err := s.streams.acquire(caller(r).TokenID)
	if err != nil {
		return err
	}
	defer release()
	if follow {
		s.followOutput(w, r, id, which, int64(from))
		return nil
	}
	return s.writeOutput(w, r, t, which)
}

const contentTypeText = "text/plain; charset=utf-8"

// writeOutput sends what there is, or a range of it.
func (s *Server) writeOutput(w http.ResponseWriter, r *http.Request, t models.Task, which models.OutputStream) error {
	if !t.State.Ended() {
		if unplaced, err := s.orchestrator.HasUnalignedOutput(r.Context(), t, which); err != nil || unplaced {
			if err == nil {
				s.writeUnalignedOutput(w, r, t, which)
			}
			return err
		}
	}
	size := streamLength(t, which)
	from, to, partial := byteRange(r, size)
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	if partial && from >= size {
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
		return errs.New(errs.RangeNotSatisfiable, "the output is %d bytes long", size)
	}
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		h.Set("Content-Range", "bytes "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(to-1, 10)+"/"+strconv.FormatInt(size, 10))
	}
	h.Set("Content-Type", contentTypeText)
	h.Set("Content-Length", strconv.FormatInt(to-from, 10))
	out := s.newStream(w)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	c := &outputCopy{to: out, at: from, end: to, fill: true}
	if err := s.copyOutput(r.Context(), c, t.ID, which); err != nil || c.at < to {
		panic(http.ErrAbortHandler) // less came than was promised
	}
	return nil
}

// writeUnalignedOutput sends the pieces that there are of a result whose bytes have no places yet, so
// that nobody can tell its length, and there are no ranges of it.
func (s *Server) writeUnalignedOutput(w http.ResponseWriter, r *http.Request, t models.Task, which models.OutputStream) {
	w.Header().Set("Content-Type", contentTypeText)
	w.Header().Set("Accept-Ranges", "none")
	out := s.newStream(w)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	c := &outputCopy{to: out, end: streamLength(t, which), fill: true, whole: true}
	if err := s.copyOutput(r.Context(), c, t.ID, which); err != nil || c.at < c.end {
		panic(http.ErrAbortHandler)
	}
}

// followOutput sends what there is and what comes, until the task has ended. What ends
// it before that cuts the answer off, which tells the client that it has not all.
func (s *Server) followOutput(w http.ResponseWriter, r *http.Request, id string, which models.OutputStream, at int64) {
	w.Header().Set("Content-Type", contentTypeText)
	w.Header().Set("X-Accel-Buffering", "no")
	out := s.newStream(w)
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	ctx, stop := s.streams.untilDrain(r.Context())
	defer stop()
	c := &outputCopy{to: out, at: at, sent: at, whole: true}
	attempt, seen := 0, int64(0)
	for {
		t, err := s.orchestrator.Task(ctx, id)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		c.end = streamLength(t, which)
		if seen > c.end && !t.State.Ended() || attempt != 0 && t.Attempt != attempt {
			c.at, c.sent = 0, 0 // it begins anew
		}
		attempt, seen = t.Attempt, c.end
		c.fill = t.State.Ended()
		if t.State == models.TaskDone {
			c.at = c.sent // every byte has its place by now
		}
		if err = s.copyOutput(ctx, c, id, which); err == nil {
			err = out.flush()
		}
		if err == nil && t.State.Ended() {
			return
		}
		if err == nil {
			_, err = s.orchestrator.WaitForChange(ctx, "", id, t.Version, s.opts.Heartbeat)
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

// outputCopy sends the bytes [at, end) of a stream of output. It ends before what has
// not come yet, or with fill sends NULs for that.
//
// While an attempt runs, a piece may be longer or shorter than the part of the whole it
// stands for. With whole it is sent as it is, which sent counts; otherwise it is cut or
// filled, so that every byte is where it is said to be.
type outputCopy struct {
	to      io.Writer
	at, end int64
	fill    bool
	whole   bool
	sent    int64
}

// errRangeWritten ends a read of output.
var errRangeWritten = errors.New("enough was read")

// copyOutput sends what there is.
func (s *Server) copyOutput(ctx context.Context, c *outputCopy, id string, which models.OutputStream) error {
	if c.at >= c.end {
		return nil
	}
	err := s.orchestrator.Output(ctx, id, which, c.at, c.writeChunk)
	if errors.Is(err, errRangeWritten) {
		err = nil
	}
	return err
}

// writeChunk sends one piece, and what is missing before it.
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
	return c.writeZeros(upTo - c.at) // of a piece that is shorter than it stands for
}

func (c *outputCopy) writeZeros(count int64) error {
	if count <= 0 {
		return nil
	}
	n, err := io.CopyN(c.to, zeroReader{}, count)
	c.at, c.sent = c.at+n, c.sent+n
	return err
}

// zeroReader is a reader of nothing but NULs.
type zeroReader struct{}

// Read implements io.Reader.
func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// byteRange reads a Range of bytes (RFC 9110 §14.2) of something with a size: the bytes
// [from, to). Without one it is all of it. So it is for a Range the server may leave
// aside: several at once, another unit, one that is malformed, and one with an If-Range,
// because there is no validator that it could name. One that begins behind the end has
// from at size or above.
func byteRange(r *http.Request, size int64) (from, to int64, partial bool) {
	lines := r.Header["Range"]
	if len(lines) != 1 || r.Header.Get("If-Range") != "" {
		return 0, size, false
	}
	unit, spec, _ := strings.Cut(lines[0], "=")
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return 0, size, false
	}
	if first == "" { // the last bytes
		n, ok := bytePosition(last)
		if !ok {
			return 0, size, false
		}
		if n == 0 {
			return size, size, true
		}
		return max(size-n, 0), size, true
	}
	from, ok = bytePosition(first)
	if !ok {
		return 0, size, false
	}
	if last == "" {
		return from, size, true
	}
	end, ok := bytePosition(last)
	if !ok || end < from {
		return 0, size, false
	}
	return from, min(end, size-1) + 1, true
}

// bytePosition reads digits; what is too large to hold lies behind every end.
func bytePosition(text string) (int64, bool) {
	if !isDigits(text) || strings.HasPrefix(text, "-") {
		return 0, false
	}
	n, _ := strconv.ParseInt(text, 10, 64) // the largest number where it is too large
	return n, true
}
