package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newToolsCommand holds what can be done with the tools behind the gateway.
func newToolsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tools", Aliases: []string{"tool"}, Short: "Find and call tools, and say who may"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(
		newToolsListCommand(flags), newToolsSearchCommand(flags), newToolsCallCommand(flags), newToolsCallsCommand(flags),
		newToolsApproveCommand(flags), newToolsClassifyCommand(flags), newToolsPolicyCommand(flags),
	)
	return cmd
}

func newToolsListCommand(flags *clientFlags) *cobra.Command {
	var (
		upstream string
		limit    int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tools that you may call",
		Long:  "List the tools that you may call. With -o json the schemas of their arguments are there.",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&upstream, "upstream", "", "only those of this MCP `server`, or of comet's own: agentcards or comet")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		params := client.ListToolsParams{Server: given(cmd, "upstream", upstream)}
		entries, err := s.pages(limit, "tools", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListTools(ctx, &params)
		})
		if err != nil {
			return err
		}
		if len(entries) == 0 && upstream != "" {
			return s.showNone(ctx, upstream)
		}
		return list(s, "tools", entries, []string{"TOOL", "CLASS", "DESCRIPTION"}, func(t client.ToolView) []string {
			return []string{t.ID, string(t.Class), brief(t.Description)}
		})
	})
}

// brief is a description, which can be pages long, in one line.
func brief(description string) string { return strings.Join(strings.Fields(description), " ") }

func newToolsSearchCommand(flags *clientFlags) *cobra.Command {
	var (
		limit          int
		related, stubs bool
		used           []string
	)
	cmd := &cobra.Command{
		Use:     "search WORDS...",
		Short:   "Find tools by what they can do, in your own words",
		Args:    cobra.MinimumNArgs(1),
		Example: `  comet tools search read a file --context memory:search_nodes --related`,
	}
	fs := cmd.Flags()
	fs.IntVar(&limit, "limit", 0, "at most so many (default 5)")
	fs.BoolVar(&related, "related", false, "also tools that are used together with those found")
	fs.StringSliceVar(&used, "context", nil, "a `tool` that you have used already; may be repeated or a list with commas")
	fs.BoolVar(&stubs, "stubs", false, "declare each in TypeScript, for code (comet run)")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.SearchTools(ctx, client.ToolSearchQuery{
			Query: new(strings.Join(args, " ")), Limit: given(cmd, "limit", limit), IncludeRelated: given(cmd, "related", related),
			IncludeStubs: given(cmd, "stubs", stubs), ContextTools: given(cmd, "context", used),
		}))
		if err != nil {
			return err
		}
		if err := s.noteUnknown(ctx, used); err != nil {
			return err
		}
		return s.out.show(body, func() error { return showFound(s, body) })
	})
}

// showFound prints what a search found, with the declarations below where they are wanted.
func showFound(s *session, body []byte) error {
	var found client.ToolSearchResult
	if err := decode(body, &found); err != nil {
		return err
	}
	if len(found.Tools) == 0 {
		say(s.notes, "none of %s fits", count(found.Meta.TotalTools, "tool", "tools"))
		return nil
	}
	rows := make([][]string, len(found.Tools))
	declared := ""
	for i, t := range found.Tools {
		rows[i] = []string{t.Name, fmt.Sprintf("%.2f", t.Score), string(t.Class), brief(t.Description)}
		declared += text(t.Stub)
	}
	if err := s.out.table([]string{"TOOL", "SCORE", "CLASS", "DESCRIPTION"}, rows); err != nil || declared == "" {
		return err
	}
	say(s.out.w, "")
	for _, t := range found.Tools {
		if err := s.print(s.out.w, text(t.Stub)); err != nil {
			return err
		}
	}
	return nil
}
