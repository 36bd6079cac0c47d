package upstream

import (
	"bufio"
	"errors"
	"io"
)

// lineReader reads lines of which none takes more memory than the limit.
type lineReader struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns a line without its end, valid until the next call. Of a line over the
// limit it returns what envelope can tell, and no line. The error is that of the reader;
// a last line without an end is a line.
func (l *lineReader) next() (line []byte, over *envelope, err error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil // one large message does not keep its memory
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case over != nil:
			over.feed(part)
		case len(l.buf)+len(part) > l.limit+1:
			over = &envelope{}
			over.feed(l.buf)
			over.feed(part)
			l.buf = nil
		default:
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (over != nil || len(l.buf) == 0 || !errors.Is(err, io.EOF)):
			return nil, over, err
		}
		return trimEnd(l.buf), over, nil
	}
}

func trimEnd(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}
