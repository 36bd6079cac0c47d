package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"comet/openapi/client"
)

// showPayload prints the payload of a delivery.
func showPayload(c *call, body []byte) error {
	var raw struct{ Payload jsontext.Value }
	if err := decode(body, &raw); err != nil {
		return err
	}
	if err := raw.Payload.Indent(jsontext.WithIndent("  ")); err != nil {
		return fmt.Errorf("the server's response cannot be read: %w", err)
	}
	printLine(c.out.w, "")
	for line := range strings.Lines(string(raw.Payload)) {
		printLine(c.out.w, "%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

func testWebhook(ctx context.Context, c *call) error {
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	var t client.WebhookTested
	if err := decode(body, &t); err != nil {
		return err
	}
	err = c.out.show(body, func() error {
		if t.Succeeded {
			printLine(c.out.w, "delivered: %s", attemptResult(t.Attempt))
		}
		return nil
	})
	if err == nil && !t.Succeeded {
		err = undelivered(t)
	}
	return err
}

// undelivered is the error of a test that the receiver did not accept.
func undelivered(t client.WebhookTested) error {
	return fmt.Errorf("the test was not delivered: %s", attemptResult(t.Attempt))
}

// attemptResult describes the result of an attempt.
func attemptResult(a client.DeliveryAttempt) string {
	took := fmt.Sprintf(" after %d ms", a.DurationMS)
	switch {
	case a.Error != nil:
		return *a.Error + took
	case a.Status != nil:
		return fmt.Sprintf("%d %s", *a.Status, http.StatusText(*a.Status)) + took
	}
	return "unknown"
}

func redeliver(ctx context.Context, c *call) error {
	if c.changed("since") == (len(c.args) == 2) {
		return usagef("give a DELIVERY or --since, one of the two")
	}
	if !c.changed("since") {
		c.params = nil
		c.request, c.message = "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", "{{.DELIVERY}} is due again"
	}
	return sendAndShow(ctx, c)
}
