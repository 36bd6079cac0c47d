package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"comet/internal/wire/envelope"
)

// ResponseError is a server that says no, to a line or to a request.
type ResponseError struct {
	// Status is of HTTP, such as 401 for a token that is not valid.
	Status int
	// Code is of the envelope protocol, such as 5004, 0 where the server gave none.
	Code int
	// Detail is what the server says about it, "" for nothing.
	Detail string
	// RetryAfter is when the server wants to be asked again, at the earliest; 0 where it
	// does not say.
	RetryAfter time.Duration
}

func (e *ResponseError) Error() string {
	text := fmt.Sprintf("the server answers %d %s", e.Status, http.StatusText(e.Status))
	if e.Code != 0 {
		text = fmt.Sprintf("error %d", e.Code)
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// permanent reports whether trying again is in vain.
func (e *ResponseError) permanent() bool {
	return e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusRequestTimeout && e.Status != http.StatusConflict && e.Status != http.StatusTooManyRequests
}

// newResponseError reads an answer that says no: a problem document, or an error envelope.
func newResponseError(resp *http.Response) *ResponseError {
	e := &ResponseError{Status: resp.StatusCode, RetryAfter: retryAfterOf(resp.Header)}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return e
	}
	var said struct {
		Title, Detail string
		Payload       struct {
			Code    int    `json:"error_code"`
			Message string `json:"error_message"`
		}
	}
	if json.Unmarshal(body, &said) == nil {
		e.Code, e.Detail = said.Payload.Code, cmp.Or(said.Payload.Message, said.Detail, said.Title)
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

// isServerUnavailable reports whether a server says that it cannot take a message at the moment: a
// 5002 that names no agent but itself.
func isServerUnavailable(f envelope.Failure) bool {
	var about struct {
		AgentID string `json:"agent_id"`
	}
	return f.Code == envelope.CodeUnavailable && json.Unmarshal(f.Context, &about) == nil && about.AgentID == envelope.Orchestrator
}

// failureResponse is the error of a server that ends a line with an error envelope.
func failureResponse(f envelope.Failure) *ResponseError {
	return &ResponseError{Status: f.Code.HTTPStatus(), Code: int(f.Code), Detail: f.Message}
}
