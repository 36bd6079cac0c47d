package api

import (
	"context"
	"errors"
	"io"

	"comet/models"
)

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

// errEnough ends a read of output.
var errEnough = errors.New("enough was read")

// copyOutput sends what there is.
func (s *Server) copyOutput(ctx context.Context, c *outputCopy, id string, which models.OutputStream) error {
	if c.at >= c.end {
		return nil
	}
	err := s.work.Output(ctx, id, which, c.at, c.piece)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return err
}

// piece sends one piece, and what is missing before it.
func (c *outputCopy) piece(o models.OutputChunk) error {
	if o.Start > c.at {
		if !c.fill {
			return errEnough
		}
		if err := c.nulls(min(o.Start, c.end) - c.at); err != nil {
			return err
		}
	}
	if c.at < c.end {
		if err := c.data(o); err != nil {
			return err
		}
	}
	if c.at >= c.end {
		return errEnough
	}
	return nil
}

func (c *outputCopy) data(o models.OutputChunk) error {
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
	return c.nulls(upTo - c.at) // of a piece that is shorter than it stands for
}

func (c *outputCopy) nulls(count int64) error {
	if count <= 0 {
		return nil
	}
	n, err := io.CopyN(c.to, nulls{}, count)
	c.at, c.sent = c.at+n, c.sent+n
	return err
}

// nulls is a reader of nothing but NULs.
type nulls struct{}

// Read implements io.Reader.
func (nulls) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
