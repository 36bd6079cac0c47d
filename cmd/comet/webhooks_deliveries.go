package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"comet/openapi/client"
)

func newDeliveriesCommand(flags *clientFlags) *cobra.Command {
	var (
		status, event, since, until string
		limit                       int
	)
	cmd := &cobra.Command{
		Use:     "deliveries ID",
		Short:   "List what a webhook was sent, newest first",
		Args:    cobra.ExactArgs(1),
		Example: `  comet webhooks deliveries 01890a5d-ac96-774b-bcce-b302099a8057 --status dead --since 24h`,
	}
	fs := cmd.Flags()
	fs.StringVar(&status, "status", "", "only deliveries that are pending, succeeded or dead")
	fs.StringVar(&event, "event", "", "only deliveries of this `event`")
	fs.StringVar(&since, "since", "", "only those from this `time` on, such as 2026-01-10T00:00:00Z, or from 2h ago on")
	fs.StringVar(&until, "until", "", "only those before this `time`")
	fs.IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		from, err := timeFlag(cmd, "since", since)
		if err != nil {
			return err
		}
		to, err := timeFlag(cmd, "until", until)
		if err != nil {
			return err
		}
		params := client.ListDeliveriesParams{
			Status: given(cmd, "status", client.ListDeliveriesParamsStatus(status)),
			Event:  given(cmd, "event", client.ListDeliveriesParamsEvent(event)), Since: from, Until: to,
		}
		entries, err := s.pages(limit, "deliveries", func(size int, cursor *string) (*http.Response, error) {
			params.Limit, params.Cursor = &size, cursor
			return s.api.ListDeliveries(ctx, args[0], &params)
		})
		if err != nil {
			return err
		}
		return list(s, "deliveries", entries, []string{"ID", "EVENT", "OF", "AT", "STATUS", "ATTEMPTS", "NEXT"}, func(d client.DeliveryView) []string {
			return []string{d.ID, string(d.Event), d.Key, moment(&d.EventAt), string(d.Status), fmt.Sprint(d.AttemptCount), moment(d.NextAttemptAt)}
		})
	})
}

// timeFlag reads a time, or how long ago it was; nil where the flag was not given.
func timeFlag(cmd *cobra.Command, flag, text string) (*time.Time, error) {
	if !cmd.Flags().Changed(flag) {
		return nil, nil //nolint:nilnil // the flag is optional
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return new(time.Now().UTC().Add(-ago).Truncate(time.Second)), nil
	}
	var at time.Time
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return nil, usagef("--%s must be a time such as 2026-01-10T00:00:00Z or a duration such as 2h, not %q", flag, text)
	}
	return &at, nil
}

func newDeliveryCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delivery ID DELIVERY",
		Short: "Show a delivery: each attempt, and what is sent",
		Args:  cobra.ExactArgs(2),
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetDelivery(ctx, args[0], args[1], nil))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error { return showDelivery(s, body) })
	})
}

func showDelivery(s *session, body []byte) error {
	var d client.DeliveryDetail
	if err := decode(body, &d); err != nil {
		return err
	}
	err := s.out.fields(
		"Delivery", d.ID, "Webhook", d.WebhookID, "Event", string(d.Event), "Event id", d.EventID, "Of", d.Key,
		"At", moment(&d.EventAt), "Status", string(d.Status), "Next attempt", moment(d.NextAttemptAt), "Ended", moment(d.EndedAt),
	)
	if err != nil {
		return err
	}
	rows := make([][]string, len(d.Attempts))
	for i, a := range d.Attempts {
		rows[i] = []string{fmt.Sprint(a.Attempt), moment(&a.At), optional(a.Status), fmt.Sprintf("%d ms", a.DurationMS), text(a.Error), text(a.ResponseExcerpt)}
	}
	say(s.out.w, "")
	if err := s.out.table([]string{"ATTEMPT", "AT", "STATUS", "TOOK", "ERROR", "RESPONSE"}, rows); err != nil {
		return err
	}
	var raw struct{ Payload jsontext.Value }
	if err := decode(body, &raw); err != nil {
		return err
	}
	if err := raw.Payload.Indent(jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("the server's answer cannot be understood: %w", err)
	}
	say(s.out.w, "")
	for line := range strings.Lines(string(raw.Payload)) {
		say(s.out.w, "%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

// text is an optional text, "" for none.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// undelivered is the error of a test whose receiver did not take it.
func undelivered(t client.WebhookTested) error {
	return fmt.Errorf("the test was not delivered: %s", attemptResult(t.Attempt))
}

// attemptResult says what became of an attempt.
func attemptResult(a client.DeliveryAttempt) string {
	took := fmt.Sprintf(" after %d ms", a.DurationMS)
	switch {
	case a.Error != nil:
		return *a.Error + took
	case a.Status != nil:
		return fmt.Sprintf("%d %s", *a.Status, http.StatusText(*a.Status)) + took
	}
	return "nothing is known of it"
}

func newRedeliverCommand(flags *clientFlags) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "redeliver ID [DELIVERY]",
		Short: "Deliver one event again, or all that died since a time",
		Args:  cobra.RangeArgs(1, 2),
		Example: `  comet webhooks redeliver 01890a5d-ac96-774b-bcce-b302099a8057 01890a5d-ac96-774b-bcce-b302099a8059
  comet webhooks redeliver 01890a5d-ac96-774b-bcce-b302099a8057 --since 24h`,
	}
	cmd.Flags().StringVar(&since, "since", "", "all that died, created at this `time` or later, such as 2026-01-10T00:00:00Z, or 24h ago")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		from, err := timeFlag(cmd, "since", since)
		if err != nil {
			return err
		}
		if (from == nil) != (len(args) == 2) {
			return usagef("name a delivery or give --since, one of the two")
		}
		if from == nil {
			return redeliverOne(ctx, s, args[0], args[1])
		}
		body, err := s.answer(s.api.RedeliverWebhook(ctx, args[0], client.RedeliveryRequest{Since: *from}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			var r client.RedeliveryResult
			if err := decode(body, &r); err != nil {
				return err
			}
			say(s.out.w, "%s due again", count(int(r.Redelivered), "delivery is", "deliveries are"))
			return nil
		})
	})
}

func redeliverOne(ctx context.Context, s *session, id, delivery string) error {
	body, err := s.answer(s.api.RedeliverDelivery(ctx, id, delivery))
	if err != nil {
		return err
	}
	return s.out.show(body, func() error {
		say(s.out.w, "%s is due again", delivery)
		return nil
	})
}
