package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newUsageCommand holds what agents do with their budgets (CHE·NU §5).
func newUsageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "usage", Short: "Show and record what agents use"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newUsageGetCommand(flags), newUsageRecordCommand(flags), newUsageHistoryCommand(flags),
		newUsageReserveCommand(flags), newUsageSettleCommand(flags), newUsageReleaseCommand(flags), newUsageReservationsCommand(flags))
	return cmd
}

func newUsageGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get AGENT", Short: "Show what an agent used today and may still use", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetUsage(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var u client.AgentUsage
			if err := decode(body, &u); err != nil {
				return err
			}
			return s.out.fields(usageFields(u)...)
		})
	})
}

func usageFields(u client.AgentUsage) []string {
	total, subtreeLeft := budget(u.Budget), ""
	if u.AdditionalBudget > 0 {
		total += fmt.Sprintf(", %d of it for a time", u.AdditionalBudget)
	}
	if u.SubtreeRemaining != nil {
		subtreeLeft = fmt.Sprint(*u.SubtreeRemaining)
	}
	return []string{
		"Agent", u.AgentID, "Budget", total, "Held against", heldAgainst(u.BudgetScope),
		"Used today", fmt.Sprint(u.UsedToday), "Used this hour", fmt.Sprint(u.UsedThisHour), "Written off today", unlessZero(u.ForgivenToday),
		"Reserved", fmt.Sprint(u.Reserved), "Remaining", budget(u.Remaining), "Begins anew", moment(&u.ResetAt),
		"Subtree used today", fmt.Sprint(u.SubtreeUsedToday), "Subtree remaining", subtreeLeft,
	}
}

func heldAgainst(scope client.BudgetScope) string {
	if scope == client.BudgetScopeSubtree {
		return "its own use, and that of its subtree"
	}
	return "its own use"
}

func unlessZero(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func newUsageHistoryCommand(flags *clientFlags) *cobra.Command {
	var (
		window, by, from, to string
		top                  int
	)
	cmd := &cobra.Command{
		Use:   "history AGENT",
		Short: "Show what an agent used over time, by the hour or the day",
		Args:  cobra.ExactArgs(1),
		Example: `  comet usage history finance-personal
  comet usage history finance-personal --window day --from 2026-01-01 --by model --top 3`,
	}
	fs := cmd.Flags()
	fs.StringVar(&window, "window", "", "`width` of a window: hour or day (default hour)")
	fs.StringVar(&by, "by", "", "break windows down by model, kind or task; those without use are left out of the table")
	fs.StringVar(&from, "from", "", "begin, a `time` such as 2026-01-10T15:00:00Z or a day such as 2026-01-10")
	fs.StringVar(&to, "to", "", "end, a `time` or a day (default now)")
	fs.IntVar(&top, "top", 0, "how many groups of a window are named (1-100; default 10)")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetUsageHistory(ctx, args[0], &client.GetUsageHistoryParams{
			Window: given(cmd, "window", client.GetUsageHistoryParamsWindow(window)), GroupBy: given(cmd, "by", client.GetUsageHistoryParamsGroupBy(by)),
			From: given(cmd, "from", from), To: given(cmd, "to", to), Top: given(cmd, "top", top),
		}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var h client.UsageHistory
			if err := decode(body, &h); err != nil {
				return err
			}
			if h.GroupBy == nil {
				return s.out.table([]string{"FROM", "TOKENS"}, bucketRows(h))
			}
			return s.out.table([]string{"FROM", strings.ToUpper(string(*h.GroupBy)), "TOKENS", "FACTS"}, groupRows(h))
		})
	})
}

func bucketRows(h client.UsageHistory) [][]string {
	rows := make([][]string, len(h.Buckets))
	for i, b := range h.Buckets {
		rows[i] = []string{moment(&b.Start), fmt.Sprint(b.Tokens)}
	}
	return rows
}

// groupRows has a row for every group of every window, and one for what the named
// groups leave.
func groupRows(h client.UsageHistory) (rows [][]string) {
	for _, b := range h.Buckets {
		if b.Breakdown != nil {
			for _, g := range *b.Breakdown {
				value := g.Value
				if value == "" {
					value = "(none)"
				}
				rows = append(rows, []string{moment(&b.Start), value, fmt.Sprint(g.Tokens), fmt.Sprint(g.Facts)})
			}
		}
		if b.OtherTokens != nil {
			rows = append(rows, []string{moment(&b.Start), "(others)", fmt.Sprint(*b.OtherTokens), ""})
		}
	}
	return rows
}

func newUsageReservationsCommand(flags *clientFlags) *cobra.Command {
	var (
		state string
		limit int
	)
	cmd := &cobra.Command{Use: "reservations AGENT", Short: "List an agent's reservations, newest first", Args: cobra.ExactArgs(1)}
	cmd.Flags().StringVar(&state, "state", "", "only those in this `state`: held, settled, released or expired")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many reservations; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		params := client.ListReservationsParams{State: given(cmd, "state", client.ListReservationsParamsState(state))}
		entries, err := s.pages(limit, "reservations", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListReservations(ctx, args[0], &params)
		})
		if err != nil {
			return err
		}
		return list(s, "reservations", entries, []string{"ID", "TOKENS", "STATE", "SETTLED", "CREATED", "EXPIRES"}, func(r client.Reservation) []string {
			return []string{r.ID, fmt.Sprint(r.Tokens), string(r.State), optional(r.SettledTokens), moment(&r.CreatedAt), moment(&r.ExpiresAt)}
		})
	})
}
