package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// Request is work that is asked for.
type Request struct {
	// To is the type of agent that shall do it, "" for whoever can.
	To string
	// From is the type of the agent whose token is used, "" for a token of nobody.
	From     string
	WorkType string
	// Parameters is a JSON object, nil for an empty one.
	Parameters json.RawMessage
	Hints      Hints
	// TaskID names the task, RequestID makes it once however often it is asked for, and
	// TraceID follows it through other systems. Send fills in what is uuid.Nil.
	TaskID, RequestID, TraceID uuid.UUID
}

// Response is where a request stands.
type Response struct {
	// Ended is false as long as there is no result.
	Ended bool
	// Succeeded, ExitCode and Output are the result's.
	Succeeded bool
	ExitCode  int
	Output    string
	// Code is that of an error envelope, 0 where there is a result; Message says it in
	// words, and Context, an object, what it is about.
	Code    int
	Message string
	Context json.RawMessage
	// Raw is the envelope as it was received.
	Raw json.RawMessage
}

// Client asks for work. It is safe for concurrent use.
type Client struct {
	server, token string
	http          *http.Client
}

// NewClient returns a client of the server at an address such as http://127.0.0.1:8080.
// The token needs the scope messages:send. hc may be nil; it must not have a time limit
// below the longest wait, a minute.
func NewClient(server, token string, hc *http.Client) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("agent: the server's address must be of the form http://host:port")
	}
	if hc == nil {
		hc = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &Client{server: strings.TrimSuffix(u.String(), "/"), token: token, http: hc}, nil
}

// Send asks for work and waits up to a time, at most a minute, for its end. Asking again
// with the same Request finds the same task, so an error that is no Refused may be
// answered by calling Send again, and so may a Refused of a server that cannot answer at
// the moment: its Status is 503 or 429.
func (c *Client) Send(ctx context.Context, r *Request, wait time.Duration) (Response, error) {
	r.fill()
	data, err := envelope.Format(r.envelope(r.WorkType, r.RequestID, r.parameters(), r.hints()))
	if err != nil {
		return Response{}, err
	}
	return c.post(ctx, data, min(wait, time.Minute))
}

// Submit asks for work until the server has taken it, through whatever becomes of the
// network and of the server. The work may have ended by then.
func (c *Client) Submit(ctx context.Context, r *Request) (Response, error) {
	return c.sendUntil(ctx, r, 0, func(Response) bool { return true })
}

// Await asks for work until it has ended, through whatever becomes of the network and of
// the server.
func (c *Client) Await(ctx context.Context, r *Request) (Response, error) {
	return c.sendUntil(ctx, r, 30*time.Second, func(reply Response) bool { return reply.Ended })
}

// sendUntil sends until the reply is enough, or trying again is in vain.
func (c *Client) sendUntil(ctx context.Context, r *Request, wait time.Duration, enough func(Response) bool) (Response, error) {
	pause := &backoff.ExponentialBackOff{InitialInterval: 250 * time.Millisecond, MaxInterval: 15 * time.Second, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	for {
		reply, err := c.Send(ctx, r, wait)
		var refused *ResponseError
		var malformed *envelope.Error
		switch {
		case ctx.Err() != nil:
			return reply, context.Cause(ctx)
		case err == nil && enough(reply):
			return reply, nil
		case err == nil:
			pause.Reset()
			continue
		case errors.As(err, &refused) && refused.permanent(), errors.As(err, &malformed):
			return reply, err
		}
		next := pause.NextBackOff()
		if refused != nil {
			next = max(next, refused.RetryAfter)
		}
		if err := sleep(ctx, next); err != nil {
			return reply, err
		}
	}
}

// Cancel takes a request back. A task that has ended stays as it is.
func (c *Client) Cancel(ctx context.Context, r *Request) error {
	r.fill()
	data, err := envelope.Format(r.envelope(envelope.WorkTypeCancel, uuid.New(), nil, envelope.Hints{}))
	if err == nil {
		_, err = c.post(ctx, data, 0)
	}
	return err
}

func (c *Client) post(ctx context.Context, data []byte, wait time.Duration) (Response, error) {
	req, err := c.request(ctx, http.MethodPost, "/api/agent/message", bytes.NewReader(data))
	if err != nil {
		return Response{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if seconds := int(wait.Seconds()); seconds > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(seconds))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, readLimit))
	if err != nil {
		return Response{}, err
	}
	e, err := envelope.Parse(body)
	if err != nil {
		if resp.StatusCode < http.StatusBadRequest {
			return Response{}, fmt.Errorf("the server's answer cannot be understood: %w", err)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return Response{}, newResponseError(resp)
	}
	return newResponse(e, body, resp)
}

// newResponse reads the server's envelope. One that says that nothing could be asked for is
// an error, so that it is not taken for the end of the work.
func newResponse(e envelope.Envelope, body []byte, resp *http.Response) (Response, error) {
	r := Response{Raw: body}
	switch p := e.Payload.(type) {
	case envelope.WorkResult:
		r.Ended, r.ExitCode, r.Output = true, int(p.ExitCode), p.Output
		r.Succeeded = p.Status == envelope.OutcomeSuccess || p.Status == envelope.OutcomeCompleted
	case envelope.Failure:
		if p.Code == envelope.CodeAuthenticationFailed || isTemporary(p, resp) {
			return r, &ResponseError{Status: resp.StatusCode, Code: int(p.Code), Detail: p.Message, RetryAfter: retryAfterOf(resp.Header)}
		}
		r.Ended, r.ExitCode, r.Code, r.Message, r.Context = true, 1, int(p.Code), p.Message, p.Context
	}
	return r, nil
}

// isTemporary reports whether an error says that the server cannot answer at the moment. How a
// task ended comes with its address and never with a Retry-After; it may be a 5002 of the
// orchestrator too, for work that anybody might have done.
func isTemporary(f envelope.Failure, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return f.Code != envelope.CodeResourceLimit
	case http.StatusServiceUnavailable:
		return resp.Header.Get("Retry-After") != "" || isServerUnavailable(f) && resp.Header.Get("Location") == ""
	}
	return false
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fill makes the ids that were not given.
func (r *Request) fill() {
	for _, id := range []*uuid.UUID{&r.TaskID, &r.RequestID, &r.TraceID} {
		if *id == uuid.Nil {
			*id = uuid.New()
		}
	}
}

func (r *Request) envelope(workType string, request uuid.UUID, parameters json.RawMessage, hints envelope.Hints) envelope.Envelope {
	return envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.New(),
		From: cmp.Or(r.From, envelope.Orchestrator), To: cmp.Or(r.To, envelope.Orchestrator), Timestamp: time.Now(),
		TraceID: r.TraceID, RequestID: request, Type: envelope.TypeWorkRequest,
		Payload: envelope.WorkRequest{TaskID: r.TaskID, WorkType: workType, Parameters: parameters, Hints: hints},
	}
}

func (r *Request) parameters() json.RawMessage {
	if len(r.Parameters) == 0 {
		return json.RawMessage("{}")
	}
	return r.Parameters
}

func (r *Request) hints() envelope.Hints {
	h := envelope.Hints{
		MaxDurationSeconds: int64((r.Hints.MaxDuration + time.Second - 1) / time.Second), MaxMemoryMB: r.Hints.MaxMemoryMB, MaxTokens: r.Hints.MaxTokens,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Hints.Other)) {
		h.Other = append(h.Other, envelope.Member{Name: name, Value: r.Hints.Other[name]})
	}
	return h
}
