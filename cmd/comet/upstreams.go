package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newUpstreamsCommand holds what can be done with the MCP servers behind the gateway.
func newUpstreamsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "upstreams", Aliases: []string{"upstream"}, Short: "Manage the MCP servers behind the gateway"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(
		newUpstreamsListCommand(flags), newUpstreamsGetCommand(flags), newUpstreamsAddCommand(flags), newUpstreamsRemoveCommand(flags),
		newUpstreamsRestartCommand(flags), newUpstreamsReloadCommand(flags), newUpstreamsToolsCommand(flags),
	)
	return cmd
}

func newUpstreamsListCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List MCP servers, also those that are down, and why", Args: cobra.NoArgs}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		body, err := s.answer(s.api.ListUpstreams(ctx, nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var all client.UpstreamList
			if err := decode(body, &all); err != nil {
				return err
			}
			rows := make([][]string, len(all.Upstreams))
			for i, u := range all.Upstreams {
				rows[i] = []string{u.ID, string(u.State), string(u.Transport), fmt.Sprint(u.Tools), fmt.Sprint(u.Restarts), text(u.Error)}
			}
			if len(rows) == 0 {
				say(s.notes, `there is no MCP server yet; "comet upstreams add" adds one`)
			}
			return s.out.table([]string{"ID", "STATE", "TRANSPORT", "TOOLS", "RESTARTS", "ERROR"}, rows)
		})
	})
}

func newUpstreamsGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Aliases: []string{"show"}, Short: "Show an MCP server, and what it wrote last to its standard error", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetUpstream(ctx, args[0], nil))
		if err != nil {
			return s.upstreamMeant(ctx, err, args[0])
		}
		return s.out.show(body, func() error { return showUpstream(s, body) })
	})
}

func showUpstream(s *session, body []byte) error {
	var u client.UpstreamView
	if err := decode(body, &u); err != nil {
		return err
	}
	pid, next := "", ""
	if u.Pid != nil {
		pid = fmt.Sprint(*u.Pid)
	}
	if u.NextTry != nil {
		next = moment(u.NextTry)
	}
	err := s.out.fields(
		"Upstream", u.ID, "Agent", u.AgentID, "From", text(u.Source), "State", string(u.State)+" since "+moment(&u.Since), "Error", text(u.Error), "Next try", next,
		"Restarts", fmt.Sprint(u.Restarts), "Transport", string(u.Transport), "Command", text(u.Command), "URL", text(u.URL), "Process", pid,
		"Environment", strings.Join(u.Env, ", "), "Headers", strings.Join(u.Headers, ", "),
		"Server", strings.TrimSpace(text(u.ServerName)+" "+text(u.ServerVersion)), "Protocol", text(u.ProtocolRevision),
		"Tools", fmt.Sprint(u.Tools), "Resources", fmt.Sprint(u.Resources+u.ResourceTemplates), "Prompts", fmt.Sprint(u.Prompts),
		"Longest call", (time.Duration(u.TimeoutMS) * time.Millisecond).String(),
	)
	for _, part := range []struct {
		title string
		lines []string
	}{{"Warnings:", u.Warnings}, {"Standard error:", u.Stderr}} {
		if len(part.lines) > 0 {
			say(s.out.w, "\n%s", part.title)
		}
		for _, line := range part.lines {
			say(s.out.w, "  %s", line)
		}
	}
	return err
}

func newUpstreamsRemoveCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove an MCP server that was added",
		Long:  "Remove an MCP server that was added, with what was approved of its tools. One that the server's own file names is removed there.",
		Args:  cobra.ExactArgs(1),
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		_, err := s.answer(s.api.DeleteUpstream(ctx, args[0]))
		return s.done(s.upstreamMeant(ctx, err, args[0]), "removed", args[0])
	})
}

func newUpstreamsRestartCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "restart ID", Short: "Start an MCP server anew, at once; calls under way fail", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		_, err := s.answer(s.api.RestartUpstream(ctx, args[0]))
		return s.done(s.upstreamMeant(ctx, err, args[0]), "restarted", args[0])
	})
}

func newUpstreamsReloadCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Take over the server's file of MCP servers now",
		Long: `Take over the server's file of MCP servers now, instead of within two seconds: new
servers are started, changed ones anew, missing ones stopped. A file with a mistake changes
nothing.`,
		Args: cobra.NoArgs,
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		_, err := s.answer(s.api.ReloadUpstreams(ctx))
		return s.done(err, "reloaded", "the file")
	})
}

// done says what was done where the answer is yes.
func (s *session) done(err error, verb, what string) error {
	if err == nil {
		say(s.notes, "%s %s", verb, what)
	}
	return err
}
