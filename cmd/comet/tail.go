package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// tailSilence is how long a stream may be silent before its connection counts as lost. It has
	// a heartbeat every 15 s.
	tailSilence = time.Minute
	// tailPause and maxTailPause are the pauses before a lost stream is requested again.
	tailPause    = time.Second
	maxTailPause = 15 * time.Second
)

// follower follows the events over lost connections.
type follower struct {
	*call

	print *printer
	limit int64 // remaining events, 0 for no end
	came  bool
}

// tailEvents prints the events of the server as they happen.
func tailEvents(ctx context.Context, c *call) error {
	ctx, stop := untilClosed(ctx)
	defer stop()
	return (&follower{call: c, print: newPrinter(c.out, c.messages), limit: given[int64](c, "limit")}).run(ctx)
}

// untilClosed ends a context when the terminal is closed. A closed pipe does not end the program
// any more, so that the command can end in good order.
func untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// errTailed ends a tail after --limit events.
var errTailed = errors.New("limit reached")

// run follows until ctx ends, which is no error. A rejection by the server is an error, and so is
// a failure of the first connection.
func (t *follower) run(ctx context.Context) error {
	for pause := tailPause; ; pause = min(2*pause, maxTailPause) {
		t.came = false
		err := t.once(ctx)
		if ctx.Err() != nil || errors.Is(err, errTailed) || errors.Is(err, syscall.EPIPE) {
			return nil //nolint:nilerr // comet tail | head
		}
		if code := exitCode(err); err != nil && (t.sent["Last-Event-ID"] == nil || code != exitUnavailable && code != exitFailure) {
			return err
		}
		if t.came {
			pause = tailPause
		}
		printLine(t.messages, "the stream ended; connecting again in %s", fmt.Sprint(pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// once follows one connection to its end.
func (t *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := time.AfterFunc(tailSilence, cancel)
	defer lost.Stop()
	req, err := t.newRequest(ctx)
	if err != nil {
		return err
	}
	body, err := t.stream(req)
	if err != nil {
		return t.nameParams(err)
	}
	defer body.Close()
	lines := bufio.NewReader(body)
	var m streamMessage
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil // the stream has ended
		}
		lost.Reset(tailSilence)
		t.came = true
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			m.add(line)
			continue
		}
		if err := t.handle(m); err != nil {
			return err
		}
		m = streamMessage{}
	}
}

// streamMessage is one message of the stream.
type streamMessage struct{ id, event, data string }

func (m *streamMessage) add(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		m.id = value
	case "event":
		m.event = value
	case "data":
		m.data = value
	}
}

// handle prints a message and remembers its position.
func (t *follower) handle(m streamMessage) error {
	if m.event == "gap" {
		printLine(t.messages, "events were deleted before they could be sent: %s", m.data)
	} else if m.data != "" {
		if err := t.print.tailed(m); err != nil {
			return err
		}
		if t.limit--; t.limit == 0 {
			return errTailed
		}
	}
	if m.id != "" {
		t.sent["Last-Event-ID"] = m.id
	}
	return nil
}

// tailed prints an event of the stream; with -o json each is a document.
func (p *printer) tailed(m streamMessage) error {
	return p.printDocument([]byte(m.data), func() error {
		var e struct {
			Position int64           `json:"position"`
			Key      string          `json:"key"`
			At       string          `json:"at"`
			Data     json.RawMessage `json:"data"`
		}
		if err := decode([]byte(m.data), &e); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.out.w, "%d  %s\n  %s\n", e.Position, printable(e.At+"  "+m.event+"  "+e.Key), printable(string(e.Data)))
		return err
	})
}
