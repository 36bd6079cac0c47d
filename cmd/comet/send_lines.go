package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"comet/agent"
)

// showJSON prints what is no answer of the REST API, with > in lines as it is.
func (s *session) showJSON(v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return s.out.show(body.Bytes(), nil)
}

// sayLines says lines as they are, and prints the answers as they are.
func (s *session) sayLines(ctx context.Context, c *agent.Client, f sendFlags) error {
	lines := f.line.lines
	if len(lines) == 1 && lines[0] == "-" {
		text, err := io.ReadAll(s.in)
		if err != nil {
			return usagef("the lines cannot be read: %w", err)
		}
		lines = strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
	answers, _, err := c.SayLines(ctx, f.wait, lines...)
	if err != nil {
		return s.refusedLine(err, true)
	}
	if err := s.showLines(answers); err != nil {
		return err
	}
	for _, line := range answers {
		if fields := strings.SplitN(line, "|", 8); len(fields) == 8 && fields[2] == "E" {
			return &endedError{exitOfLine(fields[6]), "O1 says " + fields[6]}
		}
	}
	return nil
}

func (s *session) showLines(lines []string) error {
	if s.out.format != formatTable {
		return s.showJSON(map[string][]string{"lines": lines})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.out.w, printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// endOfLine is nil for work that succeeded.
func endOfLine(r agent.LineReply) error {
	switch {
	case r.Succeeded:
		return nil
	case r.Type == "U":
		return &endedError{exitFailure, strings.TrimSpace("the task was cancelled: " + r.Message)}
	case r.ExitCode >= 1 && r.ExitCode <= maxTaskExit:
		return &endedError{r.ExitCode, fmt.Sprintf("the work failed with exit code %d", r.ExitCode)}
	}
	return &endedError{exitOfLine(r.Code), fmt.Sprintf("%s: %s", r.Code, r.Message)}
}

// exitOfLine is the exit code for an error code of PROTOCOL_V5.
func exitOfLine(code string) int {
	switch code {
	case "E17", "E30", "E31", "E32":
		return exitUnavailable
	case "E33", "E40", "E41", "E42", "E43":
		return exitNotFound
	case "E90":
		return exitForbidden
	}
	switch {
	case strings.HasPrefix(code, "E1"):
		return exitInvalid
	case strings.HasPrefix(code, "E2"):
		return exitTimeout
	}
	return exitFailure
}
