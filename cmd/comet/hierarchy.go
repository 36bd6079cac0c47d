package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newHierarchyCommand draws the tree of agents (CHE·NU §3.1).
func newHierarchyCommand() *cobra.Command {
	var (
		depth             int
		active, withUsage bool
	)
	cmd := &cobra.Command{
		Use:   "hierarchy [ROOT]",
		Short: "Draw the tree of agents",
		Args:  cobra.MaximumNArgs(1),
		Example: `  comet hierarchy
  comet hierarchy orch-personnel --depth 1
  comet hierarchy --usage`,
	}
	cmd.Flags().IntVar(&depth, "depth", 0, "how many levels below the root (0-3); all if not given")
	cmd.Flags().BoolVar(&active, "active", false, "leave out inactive agents")
	cmd.Flags().BoolVar(&withUsage, "usage", false, "say what each agent used today, and all below it with it")
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		params := client.GetHierarchyParams{Depth: given(cmd, "depth", depth), ActiveOnly: given(cmd, "active", active), Usage: given(cmd, "usage", withUsage)}
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
			s.draw(h.Root, "", "")
			return nil
		})
	})
}

// draw prints a node behind its branch and the nodes below it, whose lines begin
// with indent.
func (s *session) draw(n client.HierarchyNode, branch, indent string) {
	state := ""
	if !n.IsActive {
		state = ", inactive"
	}
	say(s.out.w, "%s%s (%s%s)%s", branch, n.ID, fmt.Sprintf("L%d, %dHz", n.Level, n.FrequencyHz), state, usedToday(n.Usage))
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			s.draw(child, indent+"└── ", indent+"    ")
		} else {
			s.draw(child, indent+"├── ", indent+"│   ")
		}
	}
}

// usedToday follows a node's name where usage was asked for: its own use of how much,
// and what it and all below it used where that is more.
func usedToday(u *client.NodeUsage) string {
	if u == nil {
		return ""
	}
	text := fmt.Sprintf(": %d", u.UsedToday)
	if u.TokenBudget != nil {
		text += fmt.Sprintf(" of %s", budgetToday(u))
	}
	if u.SubtreeUsedToday != u.UsedToday {
		text += fmt.Sprintf(", %d with all below", u.SubtreeUsedToday)
	}
	return text
}
