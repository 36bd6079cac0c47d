package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"comet/internal/telemetry"
	"comet/openapi/client"
)

func newTasksOutputCommand(flags *clientFlags) *cobra.Command {
	var log, follow bool
	cmd := &cobra.Command{
		Use:   "output ID",
		Short: "Print what a task has put out, byte by byte",
		Long: `Print what a task has put out, byte by byte as its agent sent it; on a terminal
control characters are shown instead of obeyed.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&log, "log", false, "what it told on the way, instead of its result")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task has ended")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		params := &client.GetTaskOutputParams{Follow: given(cmd, "follow", follow)}
		if log {
			params.Stream = new(client.GetTaskOutputParamsStreamLog)
		}
		return s.printOutput(ctx, args[0], params)
	})
}

// printOutput copies a task's output to standard output.
func (s *session) printOutput(ctx context.Context, id string, params *client.GetTaskOutputParams) error {
	resp, err := s.streaming().GetTaskOutput(ctx, id, params)
	if err != nil {
		return s.unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		_, err := s.answer(resp, nil)
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

// streaming is the API for answers that go on for as long as they are wanted.
func (s *session) streaming() *client.Client {
	c := *s.api
	c.Client = &http.Client{}
	return &c
}

// copyPrintable copies text line by line as it comes, and shows what would do something
// else to a terminal. It ends the last line, so that the prompt has one of its own.
func copyPrintable(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for last := '\n'; ; {
		c, size, err := in.ReadRune()
		if err != nil {
			if last != '\n' {
				_ = out.WriteByte('\n') // Flush tells
			}
			_ = out.Flush()
			if err == io.EOF { //nolint:errorlint // as io.Reader promises it
				return nil
			}
			return err
		}
		last = c
		switch {
		case c == utf8.RuneError && size == 1, moves(c) && c != '\n' && c != '\t':
			_, _ = fmt.Fprintf(out, `\u%04x`, c) // Flush tells
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
