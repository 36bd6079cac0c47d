package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"comet/openapi/client"
)

func showUsageHistory(s *session, body []byte) error {
	var h client.UsageHistory
	if err := decode(body, &h); err != nil {
		return err
	}
	headers, rows := []string{"FROM", "TOKENS"}, [][]string{}
	if h.GroupBy != nil {
		headers = []string{"FROM", strings.ToUpper(string(*h.GroupBy)), "TOKENS", "FACTS"}
	}
	for _, b := range h.Buckets {
		if h.GroupBy == nil {
			rows = append(rows, []string{moment(&b.Start), fmt.Sprint(b.Tokens)})
		} else {
			rows = append(rows, groupRows(b)...)
		}
	}
	return s.out.table(headers, rows)
}

// groupRows has a row for every group of a window, and one for the others together.
func groupRows(b client.UsageBucket) (rows [][]string) {
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
	return rows
}

func showBudgets(s *session, body []byte) error {
	var h client.Hierarchy
	if err := decode(body, &h); err != nil {
		return err
	}
	return s.out.table([]string{"AGENT", "LEVEL", "BUDGET", "SCOPE", "USED TODAY", "SUBTREE USED"}, budgetRows(nil, h.Root))
}

// budgetRows adds a row for the node and for each node below it.
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

// budgetToday is what an agent may use today, with temporary additions.
func budgetToday(u *client.NodeUsage) string {
	switch {
	case u.TokenBudget == nil:
		return "unlimited"
	case u.AdditionalBudget == nil:
		return fmt.Sprint(*u.TokenBudget)
	}
	return fmt.Sprint(*u.TokenBudget + *u.AdditionalBudget)
}

func verifyLedger(ctx context.Context, c *call) error {
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	var v client.LedgerVerification
	if err := decode(body, &v); err != nil {
		return err
	}
	if err := c.out.show(body, func() error { return showVerification(c.session, v) }); err != nil {
		return err
	}
	if v.TotalDifferences > 0 {
		return fmt.Errorf("the ledger does not add up: %s", count(int(v.TotalDifferences), "difference", "differences"))
	}
	return nil
}

func showVerification(s *session, v client.LedgerVerification) error {
	if len(v.Differences) > 0 {
		rows := make([][]string, len(v.Differences))
		for i, d := range v.Differences {
			rows[i] = []string{d.AgentID, d.Sum, fmt.Sprint(d.Stored), fmt.Sprint(d.Computed), optional(d.Key)}
		}
		if err := s.out.table([]string{"AGENT", "SUM", "STORED", "COMPUTED", "WHERE"}, rows); err != nil {
			return err
		}
	}
	printLine(s.out.w, "%s since %s, %s, %s and %s as of %s: %s", count(int(v.Facts), "fact", "facts"), v.FromDay, count(int(v.Windows), "window", "windows"),
		count(int(v.Accounts), "account", "accounts"), count(int(v.Reservations), "held reservation", "held reservations"),
		v.CheckedAt.UTC().Format(time.RFC3339), count(int(v.TotalDifferences), "difference", "differences"))
	return nil
}
