package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"comet/internal/telemetry"
	"comet/openapi/client"
)

// requestTimeout is how long one request may take. The server has its own,
// shorter limit for its part; this one is for a network that goes silent.
const requestTimeout = 2 * time.Minute

// session is what a client command works with: the API, a place to print
// results, and a place to talk to the person.
type session struct {
	api    *client.Client
	server string
	out    output
	in     io.Reader
	notes  io.Writer
}

// clientCommand makes a command that talks to a server.
func clientCommand(flags *clientFlags, cmd *cobra.Command, run func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := newSession(cmd, flags)
		if err != nil {
			return err
		}
		return run(cmd.Context(), s, args)
	}
	return cmd
}

func newSession(cmd *cobra.Command, flags *clientFlags) (*session, error) {
	set, err := loadSettings(cmd.Flags(), flags)
	if err != nil {
		return nil, err
	}
	out, err := newOutput(cmd.OutOrStdout(), set.output, flags.noHeaders)
	if err != nil {
		return nil, err
	}
	agent := "comet/" + telemetry.ReadBuild(version).Version
	api, err := client.NewClient(set.server,
		client.WithHTTPClient(&http.Client{Timeout: requestTimeout}),
		client.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
			req.Header.Set("User-Agent", agent)
			if set.token != "" {
				req.Header.Set("Authorization", "Bearer "+set.token)
			}
			return nil
		}))
	if err != nil {
		return nil, err
	}
	return &session{api: api, server: set.server, out: out, in: untilDone(cmd.Context(), cmd.InOrStdin()), notes: cmd.ErrOrStderr()}, nil
}

// answer reads the body of an answer. It takes what a method of the generated
// client returns; errors are *apiError and *unreachableError.
func (s *session) answer(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, s.unreachable(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, s.unreachable(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, newAPIError(resp, body)
	}
	return body, nil
}

// unreachable words a request that got no answer, without the client's own
// repetition of method and address.
func (s *session) unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	return &unreachableError{server: s.server, cause: err}
}

// decode reads a JSON answer into v.
func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the server's answer cannot be understood: %w", err)
	}
	return nil
}

// fetchPages follows a list's cursors and calls each for every entry of it until
// limit entries were seen; 0 is all. fetch gets the size of the page to ask for
// and the cursor, nil for the first page.
func (s *session) fetchPages(limit int, member string, fetch func(size int, cursor *string) (*http.Response, error)) ([]json.RawMessage, error) {
	const most = 1000
	if limit < 0 {
		return nil, usagef("--limit must not be negative; 0 is all")
	}
	var all []json.RawMessage
	var cursor *string
	for {
		size := most
		if limit > 0 {
			size = min(most, limit-len(all))
		}
		body, err := s.answer(fetch(size, cursor))
		if err != nil {
			return nil, err
		}
		var page map[string]json.RawMessage
		var entries []json.RawMessage
		if err := decode(body, &page); err != nil {
			return nil, err
		}
		if err := decode(page[member], &entries); err != nil {
			return nil, err
		}
		all = append(all, entries...)
		if page["next_cursor"] == nil || (limit > 0 && len(all) >= limit) {
			return all, nil
		}
		cursor = new(string)
		if err := decode(page["next_cursor"], cursor); err != nil {
			return nil, err
		}
	}
}

// listBody is a list as the member of an object.
func listBody(member string, entries []json.RawMessage) ([]byte, error) {
	if entries == nil {
		entries = []json.RawMessage{}
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(map[string][]json.RawMessage{member: entries})
	return body.Bytes(), err
}

// readInput reads a file, or standard input for "-".
func readInput(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	return data, nil
}

// warn prints the server's warnings about a request that it accepted.
func (s *session) warn(warnings *[]client.FieldError) {
	if warnings == nil {
		return
	}
	for _, w := range *warnings {
		say(s.notes, "warning: %s", w.Detail)
	}
}

// given returns the value of a flag that was given, nil for one that was not.
func given[T any](cmd *cobra.Command, flag string, value T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}
