package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newMeCommand shows whom the server takes the caller for.
func newMeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "me", Short: "Show who you are to the server", Args: cobra.NoArgs}
	flags := addClientFlags(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		body, err := s.answer(s.api.GetMe(ctx, nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var who client.CallerIdentity
			if err := decode(body, &who); err != nil {
				return err
			}
			chain := ""
			for i, a := range who.ChainOfCommand {
				if i > 0 {
					chain += " < "
				}
				chain += fmt.Sprintf("%s (L%d)", a.ID, a.Level)
			}
			return s.out.fields(append(tokenFields(who.Token), "Reports to", chain)...)
		})
	})
}
