package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

func newToolsCallsCommand(flags *clientFlags) *cobra.Command {
	var (
		agent, token, upstream, tool, task, parent, outcome string
		limit                                               int
	)
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "List calls of tools, newest first: who called what, and how it ended",
		Long: `List calls of tools, newest first: who called what, how it ended, and what it cost.
Others' calls are shown to admins only.`,
		Args:    cobra.NoArgs,
		Example: `  comet tools calls --upstream filesystem --outcome refused --limit 20`,
	}
	fs := cmd.Flags()
	fs.StringVar(&agent, "agent", "", "only those that this `agent` paid for")
	fs.StringVar(&token, "token-id", "", "only those of the token with this `id`")
	fs.StringVar(&upstream, "upstream", "", "only those of this MCP `server`'s tools")
	fs.StringVar(&tool, "tool", "", "only those of tools with this `name`, without the server's")
	fs.StringVar(&task, "task", "", "only those of this `task`")
	fs.StringVar(&parent, "parent", "", "only those that this run of code made, the `id` of its own call")
	fs.StringVar(&outcome, "outcome", "", "only those that ended so: success, error or refused")
	fs.IntVar(&limit, "limit", 100, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		params := client.ListToolCallsParams{
			AgentID: given(cmd, "agent", agent), TokenID: given(cmd, "token-id", token), Server: given(cmd, "upstream", upstream),
			Tool: given(cmd, "tool", tool), TaskID: given(cmd, "task", task), ParentID: given(cmd, "parent", parent),
			Outcome: given(cmd, "outcome", client.ListToolCallsParamsOutcome(outcome)),
		}
		entries, err := s.pages(limit, "calls", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListToolCalls(ctx, &params)
		})
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			if err := s.knownTool(ctx, upstream, tool); err != nil {
				return err
			}
		}
		headers := []string{"ID", "AT", "TOOL", "DOOR", "BY", "AGENT", "OUTCOME", "ERROR", "MS", "TOKENS"}
		return list(s, "calls", entries, headers, func(c client.ToolCallView) []string {
			return []string{
				c.ID, moment(&c.At), c.Tool, string(c.Source), c.Actor, c.AgentID, string(c.Outcome), optional(c.Error),
				fmt.Sprintf("%.1f", c.DurationMS), fmt.Sprint(c.Tokens),
			}
		})
	})
}

// knownTool returns the error for the names of an MCP server and of a tool, "" for any, where
// there is none such. Calls of what was there once are listed as long as they are kept.
func (s *session) knownTool(ctx context.Context, server, name string) error {
	if server != "" {
		if err := s.known(ctx, server); err != nil {
			return err
		}
	}
	if name == "" {
		return nil
	}
	all, err := s.tools(ctx)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(all))
	for _, t := range all {
		if server != "" && t.Server != server {
			continue
		}
		if t.Name == name {
			return nil
		}
		names = append(names, t.Name)
	}
	return noTool(server, name, names)
}
