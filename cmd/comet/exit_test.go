package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/openapi/client"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	for code, cases := range map[int][]error{
		exitOK:        {nil},
		exitFailure:   {errors.New("x"), context.Canceled, &apiError{status: 500}, &apiError{status: 405}, &apiError{status: 406}},
		exitUsage:     {usagef("x"), fmt.Errorf("x: %w", usagef("y")), &config.Error{Problems: []string{"x"}}},
		exitForbidden: {&apiError{status: 401}, &apiError{status: 403}},
		exitNotFound:  {&apiError{status: 404}},
		exitConflict:  {&apiError{status: 409}, &apiError{status: 412}},
		exitBudget:    {&apiError{status: 403, problem: client.Problem{Code: client.ProblemCodeBudgetExceeded}}},
		exitInvalid:   {&apiError{status: 400}, &apiError{status: 413}, &apiError{status: 415}, &apiError{status: 422}},
		exitUnavailable: {
			&apiError{status: 408}, &apiError{status: 429}, &apiError{status: 502}, &apiError{status: 503}, &apiError{status: 504},
			&unreachableError{server: "x", cause: errors.New("y")},
		},
	} {
		for _, err := range cases {
			t.Run(fmt.Sprintf("%d is the code of %v", code, err), func(t *testing.T) {
				t.Parallel()
				require.Equal(t, code, exitCode(err))
			})
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	reported := func(err error) string {
		var out bytes.Buffer
		report(&out, formatTable, err)
		return out.String()
	}
	problem := func(body string) *http.Response {
		return &http.Response{StatusCode: 400, Status: "400 Bad Request", Header: http.Header{"Content-Type": {"application/problem+json"}, "X": {body}}}
	}

	t.Run("prints title, detail and every invalid value of a problem", func(t *testing.T) {
		t.Parallel()
		resp := problem("")
		err := newAPIError(resp, []byte(`{"type":"/p","title":"Invalid request","status":400,"code":"invalid-request","detail":"two things",
			"errors":[{"pointer":"/id","rule":"r","detail":"id must be short"},{"parameter":"limit","rule":"r","detail":"limit must be small"}]}`))
		require.Equal(t, "comet: Invalid request: two things\n  /id: id must be short\n  limit must be small\n", reported(err))
	})

	t.Run("says that a change may have been made after the connection was lost", func(t *testing.T) {
		t.Parallel()
		text := reported(&unreachableError{server: "http://x", cause: fmt.Errorf("Post: %w", io.EOF)})
		require.Equal(t, "comet: the connection to the server at http://x ended before the response: Post: EOF\n"+
			"  A requested change may have been made. Check it, or repeat the command with the same --idempotency-key.\n", text)
		require.Contains(t, reported(&unreachableError{server: "http://x", cause: syscall.ECONNREFUSED}), "Is it running?")

		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		t.Cleanup(server.Close)
		s := &session{http: server.Client(), server: server.URL}
		for method, want := range map[string]bool{http.MethodGet: false, http.MethodPost: true} {
			_, err := s.do(t.Context(), method, "/", nil, nil)
			require.Equal(t, want, strings.Contains(reported(err), "A requested change may have been made"), method)
		}
	})

	t.Run("prints a field that repeats the detail once", func(t *testing.T) {
		t.Parallel()
		err := newAPIError(problem(""), []byte(`{"title":"Invalid request","detail":"id must be short","errors":[{"pointer":"/id","rule":"r","detail":"id must be short"}]}`))
		require.Equal(t, "comet: Invalid request: id must be short\n", reported(err))
		err = newAPIError(problem(""), []byte(`{"title":"Invalid request","detail":"id must be short","errors":[{"pointer":"/id","rule":"r","detail":"id must be short"},{"pointer":"/name","rule":"r","detail":"name is missing"}]}`))
		require.Equal(t, "comet: Invalid request: id must be short\n  /name: name is missing\n", reported(err))
	})

	t.Run("prints file and line of a mistake in a document", func(t *testing.T) {
		t.Parallel()
		err := &apiError{status: 422, file: "a.yaml", problem: client.Problem{Title: "a.yaml has 1 mistake", Errors: &[]client.FieldError{{Detail: "x", Line: new(7)}}}}
		require.Equal(t, "comet: a.yaml has 1 mistake\n  a.yaml:7: x\n", reported(err))
	})

	t.Run("prints the status of a response without a problem document", func(t *testing.T) {
		t.Parallel()
		resp := &http.Response{StatusCode: 502, Status: "502 Bad Gateway", Header: http.Header{"Content-Type": {"text/html"}, "Retry-After": {"5"}}}
		require.Equal(t, "comet: the server responded 502 Bad Gateway without a problem document\n  Try again in 5s.\n", reported(newAPIError(resp, []byte("<html>"))))
	})

	t.Run("prints when to try again in hours, minutes and seconds", func(t *testing.T) {
		t.Parallel()
		for retryAfter, want := range map[string]string{
			"5": "in 5s", "60": "in 1m", "90": `at \d\d:\d\d UTC \(in 2m\)`, "3600": `at \d\d:\d\d UTC \(in 1h\)`, "56931": `at \d\d:\d\d UTC \(in 15h49m\)`, "Wed, 21 Oct 2026 07:28:00 GMT": "after Wed, 21 Oct 2026 07:28:00 GMT",
		} {
			err := &apiError{status: 429, retryAfter: retryAfter, problem: client.Problem{Title: "Rate limited"}}
			require.Regexp(t, "^comet: Rate limited\n  Try again "+want+"\\.\n$", reported(err))
		}
	})

	t.Run("prints the request id", func(t *testing.T) {
		t.Parallel()
		err := &apiError{status: 404, problem: client.Problem{Title: "Not found", RequestID: new("r-1")}}
		require.Equal(t, "comet: Not found\n  The request id is r-1.\n", reported(err))
	})

	t.Run("escapes control characters", func(t *testing.T) {
		t.Parallel()
		err := &apiError{status: 400, problem: client.Problem{Title: "a\x1b[2Jb\nc\u202ed"}}
		require.Equal(t, "comet: a\\u001b[2Jb c\\u202ed\n", reported(err))
	})

	t.Run("prints an interruption", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "comet: interrupted\n", reported(fmt.Errorf("x: %w", context.Canceled)))
	})
}

func TestOutput(t *testing.T) {
	t.Parallel()
	body := []byte(`{"b":"yes","a":[1,null,{}],"c":{"d":"2024-01-01","e":"x: y\nz"},"f":[],"g":1.50,"h":true}`)
	printed := func(t *testing.T, format string) string {
		t.Helper()
		var out bytes.Buffer
		o, err := newOutput(&out, format, false)
		require.NoError(t, err)
		require.NoError(t, o.show(body, func() error { return o.table([]string{"A", "B"}, [][]string{{"x", "long\tcell"}, {"xxx", ""}}) }))
		return out.String()
	}

	t.Run("YAML keeps order and types", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "b: \"yes\"\na:\n  - 1\n  - null\n  - {}\nc:\n  d: \"2024-01-01\"\n  e: |-\n    x: y\n    z\nf: []\ng: 1.50\nh: true\n", printed(t, "yaml"))
	})
	t.Run("JSON is indented and otherwise unchanged", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, printed(t, "json"), "\n  \"g\": 1.50,\n")
		require.JSONEq(t, string(body), printed(t, "json"))
	})
	t.Run("tables are the default and aligned", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "A    B\nx    long cell\nxxx\n", printed(t, ""))
	})
	t.Run("another format is a usage error", func(t *testing.T) {
		t.Parallel()
		_, err := newOutput(&bytes.Buffer{}, "xml", false)
		require.Equal(t, exitUsage, exitCode(err))
	})
	t.Run("a response that is not JSON is an error", func(t *testing.T) {
		t.Parallel()
		for _, format := range []string{"json", "yaml"} {
			o, err := newOutput(&bytes.Buffer{}, format, false)
			require.NoError(t, err)
			require.Error(t, o.show([]byte("<html>"), nil))
		}
	})
}
