package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newBudgetsCommand holds what operators do about budgets (CHE·NU §5).
func newBudgetsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "budgets", Aliases: []string{"budget"}, Short: "Show, set and extend what agents may use"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newBudgetsListCommand(flags), newBudgetsSetCommand(flags), newBudgetsAddCommand(flags),
		newBudgetsAdditionsCommand(flags), newBudgetsRemoveCommand(flags), newBudgetsResetCommand(flags))
	return cmd
}

func newBudgetsListCommand(flags *clientFlags) *cobra.Command {
	var (
		depth int
		all   bool
	)
	cmd := &cobra.Command{
		Use:   "list [ROOT]",
		Short: "List the budgets of active agents and what was used of them today",
		Args:  cobra.MaximumNArgs(1),
		Example: `  comet budgets list
  comet budgets list orch-personnel --depth 1`,
	}
	cmd.Flags().IntVar(&depth, "depth", 0, "how many levels below the root (0-3); all if not given")
	cmd.Flags().BoolVar(&all, "all", false, "inactive agents too")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		params := client.GetHierarchyParams{Depth: given(cmd, "depth", depth), ActiveOnly: new(!all), Usage: new(true)}
		if len(args) > 0 {
			params.Root = &args[0]
		}
		body, err := s.answer(s.api.GetHierarchy(ctx, &params))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var h client.Hierarchy
			if err := decode(body, &h); err != nil {
				return err
			}
			return s.out.table([]string{"AGENT", "LEVEL", "BUDGET", "SCOPE", "USED TODAY", "SUBTREE USED"}, budgetRows(nil, h.Root))
		})
	})
}

// budgetToday is what an agent may use today, temporary additions included.
func budgetToday(u *client.NodeUsage) string {
	if u.TokenBudget == nil || u.AdditionalBudget == nil {
		return budget(u.TokenBudget)
	}
	return fmt.Sprint(*u.TokenBudget + *u.AdditionalBudget)
}

// budgetRows adds a row for the node and for each below it.
func budgetRows(rows [][]string, n client.HierarchyNode) [][]string {
	if u := n.Usage; u != nil {
		rows = append(rows, []string{
			n.ID, fmt.Sprintf("L%d", n.Level), budgetToday(u), string(u.BudgetScope), fmt.Sprint(u.UsedToday), fmt.Sprint(u.SubtreeUsedToday),
		})
	}
	for _, child := range n.Children {
		rows = budgetRows(rows, child)
	}
	return rows
}

func newBudgetsSetCommand(flags *clientFlags) *cobra.Command {
	var scope string
	cmd := &cobra.Command{
		Use:   "set AGENT [TOKENS]",
		Short: "Set how many tokens an agent may use a day, and what that is held against",
		Args:  cobra.RangeArgs(1, 2),
		Example: `  comet budgets set finance-personal 25000
  comet budgets set orch-personnel --scope subtree`,
	}
	cmd.Flags().StringVar(&scope, "scope", "", "what the budget is held against: own use only, or that of the whole subtree too (own, subtree)")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		members := map[string]any{}
		if len(args) > 1 {
			tokens, err := readTokens(args[1])
			if err != nil {
				return err
			}
			members["token_budget"] = tokens
		}
		if cmd.Flags().Changed("scope") {
			members["budget_scope"] = scope
		}
		if len(members) == 0 {
			return usagef("give TOKENS, --scope or both")
		}
		body, err := json.Marshal(members)
		if err != nil {
			return err
		}
		answer, err := s.answer(s.api.UpdateAgentWithBody(ctx, args[0], nil, "application/json", bytes.NewReader(body)))
		if err != nil {
			return err
		}
		return s.out.show(answer, func() error {
			var a struct {
				ID          string             `json:"id"`
				TokenBudget *int64             `json:"token_budget"`
				BudgetScope client.BudgetScope `json:"budget_scope"`
			}
			if err := decode(answer, &a); err != nil {
				return err
			}
			say(s.out.w, "%s may use %s tokens a day, held against %s", a.ID, budget(a.TokenBudget), heldAgainst(a.BudgetScope))
			return nil
		})
	})
}

func readTokens(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usagef("TOKENS must be a whole number, not %q", text)
	}
	return n, nil
}

func newBudgetsAddCommand(flags *clientFlags) *cobra.Command {
	var (
		until, reason, key string
		lasting            time.Duration
	)
	cmd := &cobra.Command{
		Use:     "add AGENT TOKENS",
		Short:   "Add to an agent's budget for a time",
		Args:    cobra.ExactArgs(2),
		Example: `  comet budgets add finance-personal 50000 --for 8h --reason "month-end closing"`,
	}
	fs := cmd.Flags()
	fs.StringVar(&until, "until", "", "when it ends, a `time` such as 2026-01-11T00:00:00Z")
	fs.DurationVar(&lasting, "for", 0, "how long it counts, such as 8h; instead of --until")
	fs.StringVar(&reason, "reason", "", "why, for the audit trail")
	fs.StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
	cmd.MarkFlagsMutuallyExclusive("until", "for")
	cmd.MarkFlagsOneRequired("until", "for")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		tokens, err := readTokens(args[1])
		if err != nil {
			return err
		}
		if reason == "" {
			return usagef("give a --reason")
		}
		end := time.Now().Add(lasting).UTC().Truncate(time.Second)
		if until != "" {
			if end, err = time.Parse(time.RFC3339, until); err != nil {
				return usagef("--until must be a time such as 2026-01-11T00:00:00Z, not %q", until)
			}
		}
		body, err := s.answer(s.api.CreateBudgetAddition(ctx, args[0],
			&client.CreateBudgetAdditionParams{IdempotencyKey: given(cmd, "idempotency-key", key)},
			client.BudgetAdditionDraft{Tokens: tokens, ExpiresAt: end, Reason: reason}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var a client.BudgetAddition
			if err := decode(body, &a); err != nil {
				return err
			}
			say(s.notes, "%s may use %d tokens a day more until %s", a.AgentID, a.Tokens, moment(&a.ExpiresAt))
			say(s.out.w, "%s", a.ID)
			return nil
		})
	})
}

func newBudgetsAdditionsCommand(flags *clientFlags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "additions AGENT", Short: "List an agent's additional budgets", Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&all, "all", false, "also those that no longer count")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.ListBudgetAdditions(ctx, args[0], &client.ListBudgetAdditionsParams{IncludeInactive: given(cmd, "all", all)}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var l client.BudgetAdditionList
			if err := decode(body, &l); err != nil {
				return err
			}
			rows := make([][]string, len(l.Additions))
			for i, a := range l.Additions {
				rows[i] = []string{a.ID, fmt.Sprint(a.Tokens), yesNo(a.Active), moment(&a.ExpiresAt), a.CreatedBy, a.Reason}
			}
			return s.out.table([]string{"ID", "TOKENS", "ACTIVE", "EXPIRES", "BY", "REASON"}, rows)
		})
	})
}

func newBudgetsRemoveCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "remove AGENT ADDITION", Short: "Take an additional budget back", Args: cobra.ExactArgs(2)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.answer(s.api.DeleteBudgetAddition(ctx, args[0], args[1])); err != nil {
			return err
		}
		say(s.notes, "removed %s", args[1])
		return nil
	})
}

func newBudgetsResetCommand(flags *clientFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "reset AGENT",
		Short: "Write off what an agent used today",
		Long: `Write off what an agent used today, so that its budget begins anew before midnight.
Nothing is deleted: the facts and the history stay as they are.`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit trail")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if reason == "" {
			return usagef("give a --reason")
		}
		body, err := s.answer(s.api.ResetUsage(ctx, args[0], nil, client.UsageReset{Reason: reason}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var b client.BudgetBalance
			if err := decode(body, &b); err != nil {
				return err
			}
			say(s.out.w, "%s has used %d tokens since; %s", args[0], b.UsedToday, left(b))
			return nil
		})
	})
}
