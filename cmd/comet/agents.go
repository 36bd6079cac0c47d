package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newAgentsCommand holds what can be done with single agents.
func newAgentsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "agents", Aliases: []string{"agent"}, Short: "List, show and change agents"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(
		newAgentsListCommand(flags), newAgentsGetCommand(flags), newAgentsCreateCommand(flags),
		newAgentsUpdateCommand(flags), newAgentsDeleteCommand(flags), newAgentsRestoreCommand(flags),
		newAgentsAuditCommand(flags), newAgentKeyCommand(flags),
	)
	return cmd
}

func newAgentsListCommand(flags *clientFlags) *cobra.Command {
	var (
		sphere, level, frequency, limit int
		active                          bool
		parent, search, sort            string
		capabilities                    []string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents",
		Args:  cobra.NoArgs,
		Example: `  comet agents list --sphere 1 --level 3
  comet agents list --capability budgeting --active -o json`,
	}
	fs := cmd.Flags()
	fs.IntVar(&sphere, "sphere", 0, "only agents of this sphere (1-9)")
	fs.IntVar(&level, "level", 0, "only agents of this level (0-3)")
	fs.IntVar(&frequency, "frequency", 0, "only agents at this frequency, in Hz")
	fs.BoolVar(&active, "active", false, "only active agents; --active=false for only inactive ones")
	fs.StringVar(&parent, "parent", "", "only agents directly under this `agent`")
	fs.StringSliceVar(&capabilities, "capability", nil, "only agents with this `capability`; may be repeated")
	fs.StringVarP(&search, "search", "q", "", "only agents whose id, name or description contains this `text`")
	fs.StringVar(&sort, "sort", "", "`order`: id, name, level or created_at; a leading - reverses it")
	fs.IntVar(&limit, "limit", 0, "at most so many agents; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		params := client.ListAgentsParams{
			SphereID: given(cmd, "sphere", sphere), Level: given(cmd, "level", client.ListAgentsParamsLevel(level)),
			Frequency: given(cmd, "frequency", frequency), Active: given(cmd, "active", active),
			ParentID: given(cmd, "parent", parent), Capability: given(cmd, "capability", capabilities),
			Q: given(cmd, "search", search), Sort: given(cmd, "sort", client.ListAgentsParamsSort(sort)),
			Total: new(false),
		}
		entries, err := s.pages(limit, "agents", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListAgents(ctx, &params)
		})
		if err != nil {
			return err
		}
		return list(s, "agents", entries, []string{"ID", "NAME", "LEVEL", "SPHERE", "HZ", "PARENT", "BUDGET", "ACTIVE", "CAPABILITIES"}, agentRow)
	})
}

func agentRow(a client.AgentItem) []string {
	return []string{
		a.ID, a.Name, fmt.Sprintf("L%d", a.Level), optional(a.SphereID), fmt.Sprint(a.FrequencyHz),
		optional(a.ParentID), budget(a.TokenBudget), yesNo(a.IsActive), strings.Join(a.Capabilities, ","),
	}
}

func budget(tokens *int64) string {
	if tokens == nil {
		return "unlimited"
	}
	return fmt.Sprint(*tokens)
}

func newAgentsGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show an agent", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetAgent(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return showAgent(s, body)
	})
}

// showAgent prints the detail of an agent.
func showAgent(s *session, body []byte) error {
	return s.out.show(body, func() error {
		var a client.AgentDetail
		if err := decode(body, &a); err != nil {
			return err
		}
		children := make([]string, len(a.Children))
		for i, c := range a.Children {
			children[i] = c.ID
		}
		success := "-"
		if r := a.Stats.SuccessRate; r != nil {
			success = fmt.Sprintf("%.1f %%", *r*100)
		}
		kind := ""
		if a.Type != nil {
			kind = *a.Type
		}
		return s.out.fields(
			"ID", a.ID, "Name", a.Name, "Level", fmt.Sprintf("L%d", a.Level), "Sphere", optional(a.SphereID),
			"Frequency", fmt.Sprintf("%d Hz", a.FrequencyHz), "Type", kind, "Parent", optional(a.ParentID),
			"Active", yesNo(a.IsActive), "Description", a.Description, "Capabilities", strings.Join(a.Capabilities, ", "),
			"Children", strings.Join(children, ", "), "Token budget", budget(a.TokenBudget)+" a day",
			"Held against", heldAgainst(a.BudgetScope),
			"Used today", fmt.Sprint(a.TokensUsedToday), "Sessions today", fmt.Sprint(a.Stats.SessionsToday),
			"Avg. response", fmt.Sprintf("%d ms", a.Stats.AvgResponseTimeMS), "Success rate", success,
			"Created", a.CreatedAt.Format(time.RFC3339), "Updated", a.UpdatedAt.Format(time.RFC3339),
		)
	})
}

func newAgentsAuditCommand(flags *clientFlags) *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "audit ID", Short: "Show who changed an agent, when, how and why", Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many changes, newest first; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		entries, err := s.pages(limit, "entries", func(size int, cursor *string) (*http.Response, error) {
			return s.api.ListAuditEntries(ctx, args[0], &client.ListAuditEntriesParams{Limit: &size, Cursor: cursor})
		})
		if err != nil {
			return err
		}
		return list(s, "entries", entries, []string{"TIME", "ACTION", "BY", "VERSION", "REASON", "CHANGES"}, func(e client.AuditEntry) []string {
			changes := make([]string, len(e.Changes))
			for i, c := range e.Changes {
				changes[i] = fmt.Sprintf("%s: %s -> %s", c.Field, compact(c.From), compact(c.To))
			}
			reason := ""
			if e.Reason != nil {
				reason = *e.Reason
			}
			return []string{e.At.Format(time.RFC3339), string(e.Action), e.Actor, fmt.Sprint(e.Version), reason, strings.Join(changes, "; ")}
		})
	})
}

// compact writes any JSON value in one line.
func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
