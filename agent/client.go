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

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// readLimit is the longest response or frame, in bytes.
const readLimit = envelope.MaxSize + 1<<10

// Request is a task to submit.
type Request struct {
	// To is the type of the agent, "" for any.
	To string
	// From is the type of the agent whose token is used, "" if the token is bound to none.
	From     string
	WorkType string
	// Parameters is a JSON object, nil for an empty one.
	Parameters json.RawMessage
	Hints      Hints
	// TaskID is the id of the task. RequestID makes the task once, however often the request is
	// sent. TraceID identifies the task in other systems. Send sets those that are uuid.Nil.
	TaskID, RequestID, TraceID uuid.UUID
}

// Hints are limits and estimates that the requester gives; 0 is not given.
type Hints struct {
	// MaxDuration is the longest that the work may take; the handler's context ends then.
	MaxDuration time.Duration
	MaxMemoryMB int64
	// MaxTokens is the budget of the task.
	MaxTokens int64
	// Other are hints that the protocol does not define, as JSON.
	Other map[string]json.RawMessage
}

// Response is the state of a request.
type Response struct {
	// Ended is whether there is a result or an error.
	Ended bool
	// Succeeded, ExitCode and Output are those of the result.
	Succeeded bool
	ExitCode  int
	Output    string
	// Code is the code of an error envelope, 0 if there is a result. Message is its text and
	// Context, a JSON object, its details.
	Code    int
	Message string
	Context json.RawMessage
	// Raw is the envelope as it was received.
	Raw json.RawMessage
}

// Client submits tasks. It is safe for concurrent use.
type Client struct {
	server, token string
	http          *http.Client
}

// NewClient returns a client for the server at an address such as http://127.0.0.1:8080. The
// token must have the scope messages:send. hc may be nil; its time limit must be longer than the
// longest wait, a minute.
func NewClient(server, token string, hc *http.Client) (*Client, error) {
	address, err := parseAddress(server)
	if err != nil {
		return nil, err
	}
	return &Client{server: address, token: token, http: cmp.Or(hc, newHTTPClient())}, nil
}

func parseAddress(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("agent: the server's address must be of the form http://host:port")
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// newHTTPClient returns a client without a time limit that follows no redirects.
func newHTTPClient() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Send submits a task and waits up to a time, at most a minute, for its end. Sending the same
// Request again finds the same task, so Send may be called again after an error that is no
// ResponseError, and after a ResponseError with Status 503 or 429.
func (c *Client) Send(ctx context.Context, r *Request, wait time.Duration) (Response, error) {
	r.fill()
	data, err := envelope.Format(r.envelope(r.WorkType, r.RequestID, r.Parameters, r.hints()))
	if err != nil {
		return Response{}, err
	}
	return c.post(ctx, data, min(wait, time.Minute))
}

// Submit submits a task until the server has accepted it, and retries if the network or the
// server fails. The task may have ended by then.
func (c *Client) Submit(ctx context.Context, r *Request) (Response, error) {
	return c.sendUntil(ctx, r, 0, func(Response) bool { return true })
}

// Await submits a task and waits for its end, and retries if the network or the server fails.
func (c *Client) Await(ctx context.Context, r *Request) (Response, error) {
	return c.sendUntil(ctx, r, 30*time.Second, func(reply Response) bool { return reply.Ended })
}

// sendUntil sends until the response is enough or the error is permanent.
func (c *Client) sendUntil(ctx context.Context, r *Request, wait time.Duration, enough func(Response) bool) (reply Response, err error) {
	err = retry(ctx, func(reset func()) (bool, error) {
		var err error
		var malformed *envelope.Error
		if reply, err = c.Send(ctx, r, wait); err == nil {
			reset()
		}
		return err == nil && enough(reply) || errors.As(err, &malformed), err
	})
	return reply, err
}

// Cancel cancels the task of a request. A task that has ended does not change.
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
			return Response{}, fmt.Errorf("the server's response is invalid: %w", err)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return Response{}, newResponseError(resp)
	}
	return newResponse(e, body, resp)
}

// newResponse reads the server's envelope. An envelope that rejects the request is an error, and
// not the end of the task.
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

// isTemporary reports whether an error says that the server cannot respond now. The end of a task
// has a Location and never a Retry-After; it may be a 5002 of the orchestrator as well, if no
// agent was available.
func isTemporary(f envelope.Failure, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusRequestTimeout: // the body arrived too slowly
		return true
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

// fill sets the ids and the parameters that were not given.
func (r *Request) fill() {
	if len(r.Parameters) == 0 {
		r.Parameters = json.RawMessage("{}")
	}
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

func (r *Request) hints() envelope.Hints {
	h := envelope.Hints{
		MaxDurationSeconds: int64((r.Hints.MaxDuration + time.Second - 1) / time.Second), MaxMemoryMB: r.Hints.MaxMemoryMB, MaxTokens: r.Hints.MaxTokens,
	}
	for _, name := range slices.Sorted(maps.Keys(r.Hints.Other)) {
		h.Other = append(h.Other, envelope.Member{Name: name, Value: r.Hints.Other[name]})
	}
	return h
}

// ResponseError is an error response of the server, to a connection or to a request.
type ResponseError struct {
	// Status is the HTTP status, such as 401 for an invalid token.
	Status int
	// Code is the code of the envelope protocol, such as 5004, 0 for none.
	Code int
	// Detail describes the error, "" for none.
	Detail string
	// RetryAfter is how long to wait before the next request, 0 if the server does not say.
	RetryAfter time.Duration
}

func (e *ResponseError) Error() string {
	text := fmt.Sprintf("the server responded %d %s", e.Status, http.StatusText(e.Status))
	if e.Code != 0 {
		text = fmt.Sprintf("error %d", e.Code)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// permanent reports whether a retry would fail as well.
func (e *ResponseError) permanent() bool {
	return e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusRequestTimeout && e.Status != http.StatusConflict && e.Status != http.StatusTooManyRequests
}

// newResponseError reads an error response: a problem document or an error envelope.
func newResponseError(resp *http.Response) *ResponseError {
	e := &ResponseError{Status: resp.StatusCode, RetryAfter: retryAfterOf(resp.Header)}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return e
	}
	var problem struct {
		Title, Detail string
		Payload       struct {
			Code    int    `json:"error_code"`
			Message string `json:"error_message"`
		}
	}
	if json.Unmarshal(body, &problem) == nil {
		e.Code, e.Detail = problem.Payload.Code, cmp.Or(problem.Payload.Message, problem.Detail, problem.Title)
	}
	return e
}

// retryAfterOf reads the header Retry-After (RFC 9110 §10.2.3), 0 for none.
func retryAfterOf(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// isServerUnavailable reports whether the server cannot accept messages now: a 5002 that names
// the orchestrator.
func isServerUnavailable(f envelope.Failure) bool {
	var about struct {
		AgentID string `json:"agent_id"`
	}
	return f.Code == envelope.CodeUnavailable && json.Unmarshal(f.Context, &about) == nil && about.AgentID == envelope.Orchestrator
}
