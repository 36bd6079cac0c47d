package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"comet/internal/config"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/openapi/client"
)

// The exit codes; rootExitCodes and docs/cli.md describe them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitForbidden   = 3
	exitNotFound    = 4
	exitConflict    = 5
	exitInvalid     = 6
	exitUnavailable = 7
	exitBudget      = 8
)

// usageError is an error in a command line or a client configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// unreachableError means that the server did not respond.
type unreachableError struct {
	server  string
	cause   error
	reading bool   // the request changes nothing
	hint    string // "" for the default
}

func (e *unreachableError) Error() string {
	if e.disconnected() {
		return fmt.Sprintf("the connection to the server at %s ended before the response: %v", e.server, e.cause)
	}
	return fmt.Sprintf("the server at %s cannot be reached: %v", e.server, e.cause)
}

func (e *unreachableError) Unwrap() error { return e.cause }

// disconnected reports whether the request may have reached the server.
func (e *unreachableError) disconnected() bool {
	return errors.Is(e.cause, io.EOF) || errors.Is(e.cause, io.ErrUnexpectedEOF) || errors.Is(e.cause, syscall.ECONNRESET)
}

// apiError is an error response.
type apiError struct {
	status     int
	problem    client.Problem
	retryAfter string
	// body is the response as it was received.
	body []byte
	// file is the document that was sent, "" for none.
	file string
	// hint says which token was used, or how to give one, for a response with the status 401.
	hint string
}

func (e *apiError) Error() string {
	text := e.problem.Title
	if d := e.problem.Detail; d != nil && *d != "" {
		text += ": " + *d
	}
	return text
}

// newAPIError reads a response with a status of 400 or more. A response without a problem
// document comes from a proxy.
func newAPIError(resp *http.Response, body []byte) *apiError {
	e := &apiError{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), body: body}
	isProblem := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json")
	if !isProblem || json.Unmarshal(body, &e.problem) != nil || e.problem.Title == "" {
		e.problem = client.Problem{Title: fmt.Sprintf("the server responded %s without a problem document", resp.Status)}
	}
	if resp.StatusCode == http.StatusUnauthorized && resp.Request != nil && resp.Request.Header.Get("Authorization") == "" {
		e.problem.Title, e.problem.Detail = "the server requires a token", nil
	}
	return e
}

func exitCode(err error) int {
	code, _ := explain(err)
	return code
}

// report prints an error, in the form JSON or YAML as a problem document, and returns the exit code.
func report(w io.Writer, form string, err error) int {
	var api *apiError
	to := output{w: w, format: form}
	code, lines := explain(err)
	if len(lines) == 0 {
		return code
	}
	detail := strings.TrimSpace(strings.ReplaceAll(strings.Join(lines[1:], "\n"), "\n  ", "\n"))
	problem, _ := json.Marshal(map[string]any{"title": lines[0], "detail": detail, "exit_code": code}) // texts and a number
	if errors.As(err, &api) && json.Valid(api.body) {
		problem = api.body
	}
	_ = to.show(problem, func() error {
		printLine(w, to.paint(red, "comet:")+" %s", lines[0])
		for _, line := range lines[1:] {
			printLine(w, "%s", line)
		}
		return nil
	})
	return code
}

// explain returns the exit code of an error and the lines that describe it to a person.
func explain(err error) (code int, lines []string) {
	var (
		api         *apiError
		unreachable *unreachableError
		usage       usageError
		cfg         *config.Error
		ended       *endedError
		mistake     *errs.Error
	)
	switch {
	case err == nil:
		return exitOK, nil
	case errors.As(err, &ended):
		return ended.code, []string{err.Error()}
	case errors.As(err, &cfg):
		lines = []string{"the configuration is invalid"}
		for _, p := range cfg.Problems {
			lines = append(lines, "  "+p)
		}
		return exitUsage, lines
	case errors.As(err, &usage):
		text, file := usage.Error(), (*fs.PathError)(nil)
		switch {
		case errors.As(err, &mistake):
		case !errors.As(err, &file): // --help does not explain errors about files
			return exitUsage, []string{text, "Run the command with --help for its usage."}
		case errors.Is(file, fs.ErrNotExist):
			text = strings.Replace(text, file.Error(), fmt.Sprintf("the file %s does not exist", file.Path), 1)
		case file.Op == "open" || file.Op == "read":
			text = strings.Replace(text, file.Error(), fmt.Sprintf("the file %s cannot be read: %v", file.Path, file.Err), 1)
		}
		return exitUsage, []string{text}
	case errors.As(err, &mistake): // a mistake in the input of a local command
		known := map[errs.Code]int{errs.InvalidRequest: exitUsage, errs.NotFound: exitNotFound, errs.Conflict: exitConflict}
		if code, ok := known[mistake.Code]; ok {
			return code, []string{mistake.Detail}
		}
	case errors.As(err, &unreachable):
		hint := cmp.Or(unreachable.hint, `  Is it running? "comet serve" starts one here; --server, COMET_SERVER or the client configuration names another.`)
		switch disconnected := unreachable.disconnected(); {
		case disconnected && unreachable.reading:
			return exitUnavailable, []string{unreachable.Error()}
		case disconnected:
			hint = "  A requested change may have been made. Check it, or repeat the command with the same --idempotency-key."
		}
		return exitUnavailable, []string{unreachable.Error(), hint}
	case errors.As(err, &api):
		if api.problem.Code == client.ProblemCodeBudgetExceeded {
			return exitBudget, problemLines(api)
		}
		return exitCodeOf(api.status), problemLines(api)
	case errors.Is(err, context.Canceled):
		return exitFailure, []string{"interrupted"}
	}
	return exitFailure, []string{err.Error()}
}

func exitCodeOf(status int) int {
	codes := map[int]int{
		http.StatusUnauthorized: exitForbidden, http.StatusForbidden: exitForbidden, http.StatusNotFound: exitNotFound,
		http.StatusConflict: exitConflict, http.StatusPreconditionFailed: exitConflict,
		http.StatusBadRequest: exitInvalid, http.StatusRequestEntityTooLarge: exitInvalid,
		http.StatusUnsupportedMediaType: exitInvalid, http.StatusUnprocessableEntity: exitInvalid,
		http.StatusRequestTimeout: exitUnavailable, http.StatusTooManyRequests: exitUnavailable, http.StatusBadGateway: exitUnavailable,
		http.StatusServiceUnavailable: exitUnavailable, http.StatusGatewayTimeout: exitUnavailable,
	}
	return cmp.Or(codes[status], exitFailure)
}

func problemLines(e *apiError) []string {
	lines := []string{e.Error()}
	if fields := e.problem.Errors; fields != nil {
		// The detail is often that of the first field.
		repeated := func(f client.FieldError) bool {
			return (f.Line == nil || e.file == "" && strings.Contains(f.Detail, "line ")) && strings.Count(*cmp.Or(f.Pointer, new("")), "/") < 2 && strings.HasSuffix(lines[0], ": "+f.Detail)
		}
		lines = append(lines, fieldLines(slices.DeleteFunc(slices.Clone(*fields), repeated), e.file)...)
	}
	if wait, err := time.ParseDuration(e.retryAfter + "s"); err == nil {
		text := "in " + input.Duration(wait)
		if wait > time.Minute {
			text = fmt.Sprintf("at %s UTC (in %s)", time.Now().UTC().Add(wait).Round(time.Minute).Format("15:04"), input.Duration(wait.Round(time.Minute)))
		}
		lines = append(lines, fmt.Sprintf("  Try again %s.", text))
	} else if e.retryAfter != "" { // a proxy may send a date
		lines = append(lines, fmt.Sprintf("  Try again after %s.", e.retryAfter))
	}
	if e.status == http.StatusUnauthorized && e.hint != "" {
		lines = append(lines, "  "+e.hint)
	}
	if id := e.problem.RequestID; id != nil {
		lines = append(lines, fmt.Sprintf("  The request id is %s.", *id))
	}
	return lines
}

// fieldLines lists the invalid values: those of a file as file:line, others by their location.
func fieldLines(fields []client.FieldError, file string) (lines []string) {
	for _, f := range fields {
		place := ""
		for _, p := range []*string{f.Pointer, f.Parameter, f.Header} {
			if p != nil && *p != "" {
				place = *p + ": "
			}
		}
		if f.Line != nil && *f.Line > 0 {
			place = fmt.Sprintf("line %d: ", *f.Line)
			if file != "" {
				place = fmt.Sprintf("%s:%d: ", file, *f.Line)
			}
		}
		if strings.HasPrefix(f.Detail, strings.TrimSuffix(place, ": ")+" ") {
			place = "" // the detail names it
		}
		lines = append(lines, "  "+place+f.Detail)
	}
	return lines
}

// printLine prints a line; control characters in text arguments are escaped.
func printLine(w io.Writer, format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = printable(s)
		}
	}
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

func count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
