package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// factFlags say how much was used and what for.
type factFlags struct {
	tokens                              int64
	model, kind, task, outcome, session string
	duration                            time.Duration
}

func (f *factFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Int64Var(&f.tokens, "tokens", 0, "how many tokens were used")
	fs.StringVar(&f.model, "model", "", "the language `model` that was asked")
	fs.StringVar(&f.kind, "kind", "", "the `kind` of use, a word of your own")
	fs.StringVar(&f.task, "task", "", "the `task` it was used for")
	fs.StringVar(&f.outcome, "outcome", "", "how the work ended: success, failed, timeout or cancelled")
	fs.DurationVar(&f.duration, "duration", 0, "how long the work took, such as 1.5s")
	fs.StringVar(&f.session, "session", "", "the `session` the work belongs to")
}

// durationMS is the duration in milliseconds, nil where it was not given.
func (f *factFlags) durationMS(cmd *cobra.Command) *int64 {
	return given(cmd, "duration", f.duration.Milliseconds())
}

func newUsageReserveCommand(flags *clientFlags) *cobra.Command {
	var (
		tokens int64
		ttl    time.Duration
		key    string
	)
	cmd := &cobra.Command{
		Use:   "reserve AGENT",
		Short: "Ask for permission to spend",
		Long: `Hold tokens of an agent's budget until they are settled or released, or the
reservation expires. Its id is printed to standard output, everything else goes to
standard error. A budget that does not cover it ends with exit code 7.`,
		Args: cobra.ExactArgs(1),
		Example: `  ID=$(comet usage reserve finance-personal --tokens 2000 --ttl 10m)
  comet usage settle finance-personal $ID --tokens 1730`,
	}
	cmd.Flags().Int64Var(&tokens, "tokens", 0, "how many tokens to hold")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long to hold them, in whole seconds up to 24h (default 5m)")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repeated request answer as the first one did")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if !cmd.Flags().Changed("tokens") {
			return usagef("say how many --tokens to hold")
		}
		if ttl%time.Second != 0 {
			return usagef("--ttl must be whole seconds, not %s", ttl)
		}
		body, err := s.answer(s.api.CreateReservation(ctx, args[0],
			&client.CreateReservationParams{IdempotencyKey: given(cmd, "idempotency-key", key)},
			client.ReservationDraft{Tokens: tokens, TTLSeconds: given(cmd, "ttl", int64(ttl.Seconds()))}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var r client.Reservation
			if err := decode(body, &r); err != nil {
				return err
			}
			say(s.notes, "%d tokens of %s are held until %s", r.Tokens, r.AgentID, moment(&r.ExpiresAt))
			say(s.out.w, "%s", r.ID)
			return nil
		})
	})
}

func newUsageSettleCommand(flags *clientFlags) *cobra.Command {
	var f factFlags
	cmd := &cobra.Command{
		Use:   "settle AGENT RESERVATION",
		Short: "Turn a reservation into what was really used",
		Args:  cobra.ExactArgs(2),
	}
	f.register(cmd)
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if !cmd.Flags().Changed("tokens") {
			return usagef("say how many --tokens were used; 0 if none")
		}
		body, err := s.answer(s.api.SettleReservation(ctx, args[0], args[1], nil, client.ReservationSettlement{
			Tokens: f.tokens, Model: given(cmd, "model", f.model), Kind: given(cmd, "kind", f.kind), TaskID: given(cmd, "task", f.task),
			Outcome: given(cmd, "outcome", client.WorkOutcome(f.outcome)), DurationMS: f.durationMS(cmd), SessionID: given(cmd, "session", f.session),
		}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var r client.ReservationSettled
			if err := decode(body, &r); err != nil {
				return err
			}
			switch {
			case r.Replayed:
				say(s.notes, "it had been settled so before")
			case r.Late:
				say(s.notes, "it had expired before; what was used counts all the same")
			}
			say(s.out.w, "settled with %s of %d tokens; %s", optional(r.SettledTokens), r.Tokens, left(r.Balance))
			return nil
		})
	})
}

// left says what remains of a budget.
func left(b client.BudgetBalance) string {
	if b.Remaining == nil {
		return "the budget is unlimited"
	}
	return fmt.Sprintf("%d of %s remain until %s", *b.Remaining, optional(b.Budget), moment(&b.ResetAt))
}

func newUsageReleaseCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "release AGENT RESERVATION", Short: "Give back what a reservation holds", Args: cobra.ExactArgs(2)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.answer(s.api.ReleaseReservation(ctx, args[0], args[1])); err != nil {
			return err
		}
		say(s.notes, "released %s", args[1])
		return nil
	})
}
