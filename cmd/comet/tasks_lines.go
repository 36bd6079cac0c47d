package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"comet/internal/telemetry"
	"comet/openapi/client"
)

// maxIndent is how far a line stands to the right of the first cause at most, in steps.
const maxIndent = 10

func newTasksLinesCommand(flags *clientFlags) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "lines ID",
		Short: "Show what was said about a task in PROTOCOL_V5",
		Long: `Print the lines that were said about a task in PROTOCOL_V5, in the order in which they
were said and in the log format of its §10.3. A line stands to the right of the one that
caused it: that which its pid names, or which it answers.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		var params client.ListTaskMessagesParams
		entries, err := s.pages(limit, "messages", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListTaskMessages(ctx, args[0], &params)
		})
		if err != nil {
			return err
		}
		return listAs(s, "messages", entries, func(all []client.LoggedMessageView) error { return showLines(s, all) })
	})
}

// showLines prints lines, each to the right of the one that caused it.
func showLines(s *session, all []client.LoggedMessageView) error {
	steps := make(map[string]int, len(all))
	for _, l := range all {
		step := 0
		if l.ParentID != nil {
			if above, shown := steps[*l.ParentID]; shown {
				step = above + 1
			}
		}
		steps[l.ID] = step
		said := telemetry.V5Line{Context: l.Ctx, Task: l.Tid, From: l.From, To: l.To, Type: l.Type, Code: text(l.Err), Data: l.Data}
		line := said.Append(nil, l.At, telemetry.V5Level(l.Type))
		if _, err := fmt.Fprintln(s.out.w, strings.Repeat("  ", min(step, maxIndent))+printable(string(line))); err != nil {
			return err
		}
	}
	return nil
}
