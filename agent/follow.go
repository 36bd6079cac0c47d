package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"comet/internal/background"
)

// Task is the state of a task.
type Task struct {
	ID         string `json:"id"`
	State      string `json:"state"`       // new, running, done, failed or cancelled
	WaitingFor string `json:"waiting_for"` // worker, retry or reply, "" while an agent works on it
	Attempt    int    `json:"attempt"`
	AgentID    string `json:"agent_id"`
	Progress   int    `json:"progress"` // percent
	Step       int    `json:"step"`
	StepName   string `json:"step_name"`
	ExitCode   *int   `json:"exit_code"`
	Error      string `json:"error"`
	Tokens     int64  `json:"tokens"`
	Log        struct {
		Bytes int64 `json:"bytes"` // length of the log of the newest attempt
	} `json:"log"`
	Version int64 `json:"version"`
}

// Ended reports whether the task is in a final state.
func (t Task) Ended() bool { return t.State == "done" || t.State == "failed" || t.State == "cancelled" }

// Follow calls each with every change of a task that it observes, until the task has ended, ctx
// ends or each returns an error. It retries if the network fails.
func (c *Client) Follow(ctx context.Context, task uuid.UUID, each func(Task) error) (t Task, err error) {
	query := url.Values{}
	err = retry(ctx, func(reset func()) (bool, error) {
		resp, err := c.get(ctx, "/api/v1/tasks/"+task.String(), query)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		var next Task
		if err := json.NewDecoder(resp.Body).Decode(&next); err != nil {
			return false, fmt.Errorf("the server's response is invalid: %w", err)
		}
		reset()
		if changed := t.ID == "" || next.Version != t.Version; changed {
			if err := each(next); err != nil {
				return true, err
			}
		}
		t = next
		query = url.Values{"wait": {"20"}, "version": {strconv.FormatInt(t.Version, 10)}}
		return t.Ended(), nil
	})
	return t, err
}

// Log copies the log of a task as it grows, until the task has ended. The log of the next attempt
// follows that of the one before.
func (c *Client) Log(ctx context.Context, task uuid.UUID, to io.Writer) error {
	out := &counter{to: to}
	return retry(ctx, func(reset func()) (bool, error) {
		resp, err := c.get(ctx, "/api/v1/tasks/"+task.String()+"/output",
			url.Values{"stream": {"log"}, "follow": {"true"}, "from": {strconv.FormatInt(out.n, 10)}})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		reset()
		_, err = io.Copy(out, resp.Body)
		return err == nil || out.err != nil, err
	})
}

// counter counts the bytes that it passes on.
type counter struct {
	to  io.Writer
	n   int64
	err error
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	c.err = err
	return n, err
}

// newBackoff returns the pauses between attempts that fail.
func newBackoff(first, longest time.Duration) *backoff.ExponentialBackOff {
	pause := &backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	return pause
}

// retry calls try until it is done or its error is permanent.
func retry(ctx context.Context, try func(reset func()) (done bool, err error)) error {
	pause := newBackoff(250*time.Millisecond, 15*time.Second)
	for {
		done, err := try(pause.Reset)
		var refused *ResponseError
		switch {
		case done || errors.As(err, &refused) && refused.permanent():
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			continue
		}
		next := pause.NextBackOff()
		if refused != nil {
			next = max(next, refused.RetryAfter)
		}
		if background.Sleep(ctx, next) != nil {
			return context.Cause(ctx)
		}
	}
}

// get returns a response with the status 200.
func (c *Client) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, newResponseError(resp)
}
