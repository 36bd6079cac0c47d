package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newLedgerCommand holds what keeps the ledger honest.
func newLedgerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ledger", Short: "Prove that the ledger adds up"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(newLedgerVerifyCommand(flags))
	return cmd
}

func newLedgerVerifyCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compute every sum of the ledger anew and report what differs",
		Long: `Compute every sum of the ledger anew from the facts and reservations under it. Where
one is not what they add up to it is listed, and the exit code is 1.`,
		Args: cobra.NoArgs,
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		body, err := s.answer(s.api.VerifyLedger(ctx))
		if err != nil {
			return err
		}
		var v client.LedgerVerification
		if err := decode(body, &v); err != nil {
			return err
		}
		if err := s.out.show(body, func() error { return showVerification(s, v) }); err != nil {
			return err
		}
		if v.TotalDifferences > 0 {
			return fmt.Errorf("the ledger does not add up: %s", count(int(v.TotalDifferences), "difference", "differences"))
		}
		return nil
	})
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
	say(s.out.w, "%d facts since %s, %d windows, %d accounts and %d held reservations as of %s: %s", v.Facts, v.FromDay,
		v.Windows, v.Accounts, v.Reservations, v.CheckedAt.UTC().Format(time.RFC3339), count(int(v.TotalDifferences), "difference", "differences"))
	return nil
}
