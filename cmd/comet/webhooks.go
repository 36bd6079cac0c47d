package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// newWebhooksCommand holds what can be done with webhooks.
func newWebhooksCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "webhooks", Aliases: []string{"webhook"}, Short: "Send events to other servers"}
	flags := addClientFlags(cmd)
	cmd.AddCommand(
		newWebhooksCreateCommand(flags), newWebhooksListCommand(flags), newWebhooksGetCommand(flags),
		newWebhooksUpdateCommand(flags), newWebhooksDeleteCommand(flags), newWebhooksRotateCommand(flags),
		newWebhooksTestCommand(flags), newDeliveriesCommand(flags), newDeliveryCommand(flags),
		newRedeliverCommand(flags), newListenCommand(flags),
	)
	return cmd
}

func newWebhooksListCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List webhooks, also disabled ones, without their secrets", Args: cobra.NoArgs}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, _ []string) error {
		entries, err := s.pages(0, "webhooks", func(size int, cursor *string) (*http.Response, error) {
			return s.api.ListWebhooks(ctx, &client.ListWebhooksParams{Limit: &size, Cursor: cursor})
		})
		if err != nil {
			return err
		}
		return list(s, "webhooks", entries, []string{"ID", "URL", "EVENTS", "AGENT", "ORDERING", "ENABLED", "FAILING SINCE"}, func(w client.WebhookView) []string {
			return []string{w.ID, w.URL, eventList(w.Events), webhookAgent(w), string(w.Ordering), yesNo(w.Enabled), moment(w.FailingSince)}
		})
	})
}

func newWebhooksGetCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Show a webhook without its secret", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.GetWebhook(ctx, args[0], nil))
		if err != nil {
			return err
		}
		return showWebhook(s, body)
	})
}

// showWebhook prints a webhook.
func showWebhook(s *session, body []byte) error {
	return s.out.show(body, func() error {
		var w client.WebhookView
		if err := decode(body, &w); err != nil {
			return err
		}
		disabled, both := "", ""
		if w.DisabledReason != nil {
			disabled = *w.DisabledReason + ", " + moment(w.DisabledAt)
		}
		if w.PreviousSecretExpiresAt != nil {
			both = "old and new until " + moment(w.PreviousSecretExpiresAt)
		}
		return s.out.fields(
			"Webhook", w.ID, "URL", w.URL, "Description", w.Description, "Events", eventList(w.Events), "Agent", webhookAgent(w),
			"Ordering", string(w.Ordering), "Enabled", yesNo(w.Enabled), "Disabled because", disabled,
			"Failing since", moment(w.FailingSince), "Secrets", both, "Public keys", strings.Join(w.PublicKeys, " "),
			"Created", moment(&w.CreatedAt)+" by "+w.CreatedBy, "Updated", moment(&w.UpdatedAt),
		)
	})
}

// webhookAgent says whose events a webhook hears of.
func webhookAgent(w client.WebhookView) string {
	switch {
	case w.AgentID == nil:
		return "all"
	case w.Subtree:
		return *w.AgentID + " and below"
	}
	return *w.AgentID
}

func eventList[E ~string](events []E) string {
	words := make([]string, len(events))
	for i, e := range events {
		words[i] = string(e)
	}
	return strings.Join(words, ",")
}

func newWebhooksDeleteCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "delete ID", Short: "Remove a webhook and its deliveries", Args: cobra.ExactArgs(1)}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.answer(s.api.DeleteWebhook(ctx, args[0])); err != nil {
			return err
		}
		say(s.notes, "deleted %s", args[0])
		return nil
	})
}

func newWebhooksTestCommand(flags *clientFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test ID",
		Short: "Send a test event and wait for what becomes of it",
		Long:  "Send a test event, once, and wait for what becomes of it. A receiver that does not take it is exit code 1.",
		Args:  cobra.ExactArgs(1),
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, err := s.answer(s.api.TestWebhook(ctx, args[0]))
		if err != nil {
			return err
		}
		var t client.WebhookTested
		if err := decode(body, &t); err != nil {
			return err
		}
		if !t.Succeeded {
			err = undelivered(t)
		}
		shown := s.out.show(body, func() error {
			if t.Succeeded {
				say(s.out.w, "delivered: %s", attemptResult(t.Attempt))
			}
			return nil
		})
		if shown != nil {
			return shown
		}
		return err
	})
}
