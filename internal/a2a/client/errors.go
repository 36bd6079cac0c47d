package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/a2a/wire"
	"comet/internal/input"
)

// Kind says what an Error means for the caller.
type Kind string

// The kinds of errors.
const (
	// Unreachable: there was no response, or one that asks to try again. The request may have had an effect.
	Unreachable Kind = "UNREACHABLE"
	// Unauthorized: the credentials are missing or wrong.
	Unauthorized Kind = "UNAUTHORIZED"
	// Refused: the agent does not execute the request.
	Refused Kind = "REFUSED"
	// Invalid: the response is not a response of A2A.
	Invalid Kind = "INVALID_RESPONSE"
	// TooLarge: a response, an event or a stream exceeds its limit.
	TooLarge Kind = "LIMIT_EXCEEDED"
)

// Error is a request that failed.
type Error struct {
	Kind Kind
	// Code is that of JSON-RPC, 0 for none. Reason is that of A2A, such as TASK_NOT_FOUND, "" for none.
	Code   int
	Reason string
	Text   string
	// RetryAfter is how long the agent asks to wait, 0 for unknown.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Is reports whether err is an Error of one of the kinds, or of any kind if there is none.
func Is(err error, kinds ...Kind) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (kinds == nil || slices.Contains(kinds, e.Kind))
}

func invalid(format string, args ...any) error {
	return &Error{Kind: Invalid, Text: "a response of the remote agent " + fmt.Sprintf(format, args...)}
}

// checkStatus returns the error of a response without success.
func checkStatus(resp *http.Response) error {
	status := resp.StatusCode
	if status/100 == 2 {
		return nil
	}
	out := &Error{Kind: Refused, Text: "the remote agent responded with " + strconv.Itoa(status)}
	switch {
	case status/100 == 3:
		out.Text += " to " + input.Quote(resp.Header.Get("Location")) + "; redirects are not followed"
		return out
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		out.Kind, out.Text = Unauthorized, "the remote agent rejects the credentials with "+strconv.Itoa(status)
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500 && status != http.StatusNotImplemented:
		out.Kind = Unreachable
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			out.RetryAfter = time.Duration(min(n, 60)) * time.Second
		}
	}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	var body struct {
		Error failure `json:"error"`
	}
	if json.Unmarshal(raw, &body) == nil && body.Error.Message != "" {
		body.Error.describe(out)
	}
	return out
}

// failure is an error of either binding.
type failure struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
	Details json.RawMessage `json:"details"`
}

func (f failure) describe(e *Error) {
	e.Text += ": " + input.ClipTo(strings.ToValidUTF8(f.Message, "?"), 500)
	var details []struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal([]byte(cmp.Or(string(f.Data), string(f.Details), "null")), &details) != nil {
		return
	}
	for _, d := range details {
		e.Reason = cmp.Or(e.Reason, d.Reason)
	}
}

// unwrap returns the result of a response of JSON-RPC.
func unwrap(raw []byte) ([]byte, error) {
	var body struct {
		Result json.RawMessage `json:"result"`
		Error  *failure        `json:"error"`
	}
	if err := json.Unmarshal(raw, &body); err != nil || body.Error == nil && body.Result == nil {
		return nil, invalid("is not one of JSON-RPC: %s", wire.Shown(raw))
	}
	if body.Error == nil {
		return body.Result, nil
	}
	out := &Error{Kind: Refused, Code: body.Error.Code, Text: "the remote agent reports the error " + strconv.Itoa(body.Error.Code)}
	if body.Error.describe(out); out.Code == -32603 {
		out.Kind = Unreachable // an internal error may be over soon
	}
	return nil, out
}
