package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"comet/internal/background"
	"comet/internal/input"
)

const (
	// tailSilence is how long a stream may be silent before its connection counts as lost. It has
	// a heartbeat every 15 s.
	tailSilence = time.Minute
	// maxTailPause is the longest pause before a lost stream is requested again.
	maxTailPause = 15 * time.Second
	// maxTailed is the longest event that is shown, in bytes.
	maxTailed = 16 << 20
)

// follower follows the events across lost connections.
type follower struct {
	*call

	// opened is called after each connection, and show for each event; both may return errTailed.
	opened    func(context.Context) error
	show      func(context.Context, input.Event) error
	limit     int64 // remaining events, 0 for no end
	connected bool  // the server has accepted a connection
	came      bool  // something came on the current connection
}

// tailEvents prints the events of the server as they happen.
func tailEvents(ctx context.Context, c *call) error {
	ctx, stop := untilClosed(ctx)
	defer stop()
	if id, ok := c.sent["agent_id"].(string); ok {
		if _, err := c.do(ctx, http.MethodGet, "/api/v1/agents/"+url.PathEscape(id), nil, nil); exitCode(err) == exitNotFound {
			return c.suggest(ctx, err, nil, nil)
		}
	}
	t := &follower{call: c, limit: given[int64](c, "limit")}
	t.opened = func(context.Context) error {
		if !t.connected {
			printLine(c.messages, "following the events of %s (Ctrl-C ends)", c.server)
		}
		return nil
	}
	to := &printer{out: c.out, messages: c.messages}
	t.show = func(_ context.Context, e input.Event) error { return to.tailed(e) }
	return t.run(ctx)
}

// untilClosed ends a context when the terminal is closed. A closed pipe no longer kills the
// program, so that the command can shut down cleanly.
func untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// errTailed ends a tail after --limit events.
var errTailed = errors.New("limit reached")

// run follows until ctx ends, which is no error. A rejection by the server is an error, and so is
// a failure of the first connection.
func (t *follower) run(ctx context.Context) error {
	for pause := background.NewBackoff(maxTailPause); ; {
		t.came = false
		err := t.once(ctx)
		if ctx.Err() != nil || errors.Is(err, errTailed) || errors.Is(err, syscall.EPIPE) {
			return nil //nolint:nilerr // comet tail | head
		}
		if code := exitCode(err); err != nil && (!t.connected || code != exitUnavailable && code != exitFailure) {
			return err
		}
		if t.came {
			pause.Reset()
		}
		wait := pause.NextBackOff().Round(time.Millisecond)
		printLine(t.messages, "the stream ended; connecting again in %s", wait.String())
		if background.Sleep(ctx, wait) != nil {
			return nil //nolint:nilerr // the end of ctx is no error
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
	err = t.opened(ctx)
	if t.connected = true; err != nil {
		return err
	}
	events := input.NewEventReader(body, maxTailed)
	for {
		e, err := events.Next()
		if err != nil {
			return nil // the stream has ended
		}
		lost.Reset(tailSilence)
		t.came = true
		if err := t.handle(ctx, e); err != nil {
			return err
		}
	}
}

// handle shows an event and remembers its position.
func (t *follower) handle(ctx context.Context, e input.Event) error {
	switch {
	case string(e.Name) == "gap":
		printLine(t.messages, "events were deleted before they could be sent: %s", string(e.Data))
	case e.Long != nil:
		printLine(t.messages, "the event %s is longer than %d bytes and is not shown", string(e.ID), maxTailed)
	case e.Data != nil:
		if err := t.show(ctx, e); err != nil {
			return err
		}
		if t.limit--; t.limit == 0 {
			return errTailed
		}
	}
	if e.ID != nil {
		t.sent["Last-Event-ID"] = string(e.ID)
	}
	return nil
}

// tailed prints an event of the stream; with -o json each is a document.
func (p *printer) tailed(event input.Event) error {
	return p.printDocument(event.Data, func() error {
		var e struct {
			Position json.RawMessage `json:"position"` // none if the event is not stored
			Key      string          `json:"key"`
			At       string          `json:"at"`
			Data     json.RawMessage `json:"data"`
		}
		if err := decode(event.Data, &e); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.out.w, "%s  %s\n  %s\n", e.Position, printable(e.At+"  "+string(event.Name)+"  "+e.Key), printable(string(e.Data)))
		return err
	})
}
