package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"comet/internal/telemetry"
	"comet/openapi/client"
)

func printTaskOutput(ctx context.Context, c *call) error {
	params := &client.GetTaskOutputParams{}
	if c.changed("follow") {
		params.Follow = new(c.flagText("follow") != "")
	}
	if c.flagText("log") != "" {
		params.Stream = new(client.GetTaskOutputParamsStreamLog)
	}
	return c.printOutput(ctx, c.args[0], params)
}

func submitTask(ctx context.Context, c *call) error {
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	if c.flagText("wait") == "" {
		return c.printResponse(body)
	}
	var submitted client.TaskView
	if err := decode(body, &submitted); err != nil {
		return err
	}
	body, t, err := c.waitFor(ctx, submitted.ID, 0)
	if err != nil {
		return err
	}
	err = c.out.show(body, func() error { return c.printOutput(ctx, t.ID, &client.GetTaskOutputParams{}) })
	if err == nil {
		err = unsuccessful(t)
	}
	return err
}

func waitForTask(ctx context.Context, c *call) error {
	timeout := time.Duration(0)
	if text := c.flagText("timeout"); text != "" {
		var err error
		if timeout, err = parseDuration(text); err != nil {
			return usagef("--timeout: %w", err)
		}
	}
	body, t, err := c.waitFor(ctx, c.args[0], timeout)
	if err != nil {
		return err
	}
	err = c.out.show(body, func() error {
		printLine(c.out.w, "%s", stateOf(t))
		return nil
	})
	if err == nil {
		err = unsuccessful(t)
	}
	return err
}

// maxWait is how long one request waits, in seconds; the server may allow less.
const maxWait = 60

// waitFor requests a task again and again until it has ended or the timeout has passed; 0 is
// no timeout.
func (s *session) waitFor(ctx context.Context, id string, timeout time.Duration) (body []byte, t client.TaskDetail, err error) {
	for begin := time.Now(); ; {
		wait := maxWait
		if timeout > 0 {
			left := timeout - time.Since(begin)
			wait = max(min(wait, int((left+time.Second-1)/time.Second)), 0)
		}
		t, body, err = decodeAs[client.TaskDetail](s.readResponse(s.api.GetTask(ctx, id, &client.GetTaskParams{Wait: &wait})))
		if err != nil || t.EndedAt != nil || wait == 0 {
			return body, t, err
		}
	}
}

// stateOf is a task's state with what it waits for.
func stateOf(t client.TaskDetail) string {
	if t.WaitingFor == nil {
		return string(t.State)
	}
	return string(t.State) + ", " + waitsText(string(*t.WaitingFor))
}

// unsuccessful is the error of a task that did not succeed, nil if it did.
func unsuccessful(t client.TaskDetail) error {
	switch {
	case t.EndedAt == nil:
		return fmt.Errorf("the task has not ended: it is %s", stateOf(t))
	case t.State == client.TaskDetailStateDone:
		return nil
	case t.Failure != nil:
		return fmt.Errorf("the task failed (%s): %s", printable(*t.Failure), printable(t.Error))
	}
	return fmt.Errorf("the task is %s: %s", t.State, printable(t.Error))
}

// printOutput copies a task's output to standard output.
func (s *session) printOutput(ctx context.Context, id string, params *client.GetTaskOutputParams) error {
	resp, err := s.streaming().GetTaskOutput(ctx, id, params)
	if err != nil {
		return s.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		_, err := s.readResponse(resp, nil)
		return err
	}
	if telemetry.IsTerminal(s.out.w) {
		err = copyPrintable(s.out.w, resp.Body)
	} else {
		_, err = io.Copy(s.out.w, resp.Body)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("the output was cut off: %w", err)
	}
	return err
}

// streaming is the API without a time limit, for responses that go on.
func (s *session) streaming() *client.Client {
	c := *s.api
	c.Client = &http.Client{}
	return &c
}

// copyPrintable copies text as it comes, and shows control characters instead of sending them
// to a terminal. It ends the last line.
func copyPrintable(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for last := '\n'; ; {
		c, size, err := in.ReadRune()
		if err != nil {
			if last != '\n' {
				_ = out.WriteByte('\n') // Flush returns its error
			}
			_ = out.Flush()
			if err == io.EOF { //nolint:errorlint // as io.Reader promises it
				return nil
			}
			return err
		}
		last = c
		switch {
		case c == utf8.RuneError && size == 1, isControl(c) && c != '\n' && c != '\t':
			_, _ = fmt.Fprintf(out, `\u%04x`, c) // Flush returns its error
		default:
			_, _ = out.WriteRune(c)
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
