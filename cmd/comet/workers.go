package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newWorkersCommand shows the agents that take work.
func newWorkersCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "workers", Short: "Show the agents that take work"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newWorkersListCommand(flags), newWorkersGetCommand(flags))
	return cmd
}

func newWorkersListCommand(flags *clientFlags) *cobra.Command {
	var v5 string
	cmd := &cobra.Command{Use: "list", Short: "List the agents that ever came to take work", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&v5, "worker", "", "only the agent that PROTOCOL_V5 calls `W<n>`, such as W41")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		entries, err := s.pages(0, "workers", func(size int, cursor *string) (*http.Response, error) {
			return s.api.ListWorkers(ctx, &client.ListWorkersParams{Limit: &size, Cursor: cursor, V5Id: given(cmd, "worker", v5)})
		})
		if err != nil {
			return err
		}
		return list(s, "workers", entries, []string{"AGENT", "V5", "STATE", "DIALECT", "LINK", "BUSY", "LOAD", "BREAKER", "SEEN"}, func(w client.WorkerView) []string {
			return []string{
				w.AgentID, optional(w.V5Id), string(w.State), spoken(w), w.Transport, fmt.Sprintf("%d of %d", w.InFlight, w.Concurrency), fmt.Sprintf("%d %%", w.Load),
				breaker(w.Breaker), moment(&w.LastSeenAt),
			}
		})
	})
}

// spoken is what a worker speaks, with the version where that is not the newest.
func spoken(w client.WorkerView) string {
	if w.ProtocolVersion == nil {
		return w.Protocol
	}
	return w.Protocol + " " + *w.ProtocolVersion
}

func breaker(b client.BreakerView) string {
	if b.Until == nil {
		return string(b.State)
	}
	return string(b.State) + " until " + moment(b.Until)
}

func newWorkersGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get AGENT", Short: "Show how an agent takes work", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetWorker(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var w client.WorkerView
			if err := decode(body, &w); err != nil {
				return err
			}
			return s.out.fields(
				"Agent", w.AgentID, "In PROTOCOL_V5", text(w.V5Id), "State", string(w.State), "Dialect", spoken(w), "Link", w.Transport, "Busy", fmt.Sprintf("%d of %d places", w.InFlight, w.Concurrency),
				"Load", fmt.Sprintf("%d %%", w.Load), "Failures", fmt.Sprint(w.Failures), "Breaker", breaker(w.Breaker),
				"Last used", moment(w.LastAssignedAt), "Seen", moment(&w.LastSeenAt),
			)
		})
	})
}
