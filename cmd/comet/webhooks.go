package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// Parameters of webhooks that several commands have.
var (
	webhookEvents      = param{"--events", "events", textList, "the `events` that are sent, such as agent.created; may be repeated, or a list with commas"}
	webhookDescription = param{"--description", "description", text, "what the webhook is for"}
	webhookAgent       = param{"--agent", "agent_id", textOrNil, `only events of this agent; "" for every agent`}
	webhookSubtree     = param{"--subtree", "subtree", yesOrNo, "also events of the agents below --agent"}
	webhookOrdering    = param{"--ordering", "ordering", oneOf("none", "agent"), "`order` of deliveries: none, or agent for one after the other for each agent"}
	webhookEnabled     = param{"--enabled", "enabled", yesOrNo, "--enabled=false stops deliveries, --enabled starts them again"}
	webhookAsymmetric  = param{"--asymmetric", "asymmetric", yesOrNo, "sign with an Ed25519 key as well"}
	webhookSecret      = param{"--secret", "secret", secretIn, "a `secret` of your own, whsec_ and 24 to 64 bytes in base64; - reads it from standard input, where others cannot see it"}
)

const (
	webhookOwner  = `{{if not .agent_id}}all{{else if .subtree}}{{.agent_id}} and below{{else}}{{.agent_id}}{{end}}`
	secretMessage = `{{range .public_keys}}public key {{.}}
{{end}}`
)

var webhookFields = []column{
	{"Webhook", "id"}, {"URL", "url"}, {"Description", "description"}, {"Events", `{{join .events ","}}`}, {"Agent", webhookOwner},
	{"Ordering", "ordering"}, {"Enabled", "enabled"}, {"Disabled because", `{{with .disabled_reason}}{{.}}, {{$.disabled_at}}{{end}}`},
	{"Failing since", "failing_since"}, {"Secrets", `{{with .previous_secret_expires_at}}old and new until {{.}}{{end}}`}, {"Public keys", `{{join .public_keys " "}}`},
	{"Created", "{{.created_at}} by {{.created_by}}"}, {"Updated", "updated_at"},
}

var webhookGroups = []commandGroup{
	{name: "webhooks", aliases: []string{"webhook"}, short: "Send events to other servers", more: []func(*clientFlags) *cobra.Command{newListenCommand}},
}

var webhookCommands = []command{
	{
		use: "webhooks create URL", short: "Send events to a URL",
		long: `Send events to a URL. The secret that verifies their signatures is printed to standard
output, only once; everything else goes to standard error.`,
		example: `  comet webhooks create https://your-server.com/webhook --events agent.created,agent.budget_warning
  comet webhooks create https://your-server.com/finance --events agent.updated --agent orch-personnel --subtree --ordering agent`,
		request: "POST /api/v1/webhooks",
		params: []param{
			{"URL", "url", text, ""}, webhookEvents, webhookDescription, webhookAgent, webhookSubtree, webhookOrdering, webhookEnabled, webhookAsymmetric, webhookSecret,
		},
		message: secretMessage + "created webhook {{.id}}; its secret is shown only once:", secret: "secret",
	},
	{
		use: "webhooks list", short: "List webhooks, with disabled ones, without their secrets", request: "GET /api/v1/webhooks", pages: "webhooks",
		columns: []column{
			{"ID", "id"}, {"URL", "url"}, {"EVENTS", "events"}, {"AGENT", webhookOwner}, {"ORDERING", "ordering"}, {"ENABLED", "enabled"}, {"FAILING SINCE", "failing_since"},
		},
	},
	{use: "webhooks get ID", short: "Show a webhook without its secret", request: "GET /api/v1/webhooks/{webhook_id}", fields: webhookFields},
	{
		use: "webhooks update ID", short: "Change a webhook; only what is given changes",
		example: `  comet webhooks update 01890a5d-ac96-774b-bcce-b302099a8057 --events agent.created --enabled`,
		request: "PATCH /api/v1/webhooks/{webhook_id}",
		params: []param{
			{"--url", "url", text, "where the events go, an http or https `URL`"},
			webhookEvents, webhookDescription, webhookAgent, webhookSubtree, webhookOrdering, webhookEnabled, webhookAsymmetric,
		},
		fields: webhookFields,
	},
	{use: "webhooks delete ID", short: "Delete a webhook and its deliveries", request: "DELETE /api/v1/webhooks/{webhook_id}", message: "deleted {{.ID}}"},
	{
		use: "webhooks rotate-secret ID", short: "Give a webhook a new secret; the old one signs as well for a while",
		long: `Give a webhook a new secret. The old one signs every delivery as well until the grace period
ends. The new secret is printed to standard output, only once.`,
		request: "POST /api/v1/webhooks/{webhook_id}/rotate-secret",
		params: []param{
			webhookSecret,
			{"--grace", "grace_seconds", seconds, "how long the old secret signs as well, up to 168h; 0 ends it at once (default 24h)"},
		},
		message: secretMessage + "rotated webhook {{.id}}; its secret is shown only once:", secret: "secret",
	},
	{
		use: "webhooks test ID", short: "Send a test event and report the response",
		long:    "Send a test event, once, and report the response. A receiver that does not accept it is exit code 1.",
		request: "POST /api/v1/webhooks/{webhook_id}/test", run: testWebhook,
	},
	{
		use: "webhooks deliveries ID", short: "List the deliveries of a webhook, newest first",
		example: `  comet webhooks deliveries 01890a5d-ac96-774b-bcce-b302099a8057 --status dead --since 24h`,
		request: "GET /api/v1/webhooks/{webhook_id}/deliveries",
		params: []param{
			{"--status", "status", oneOf("pending", "succeeded", "dead"), "only deliveries that are pending, succeeded or dead"},
			{"--event", "event", text, "only deliveries of this `event`"},
			{"--since", "since", timeOrAgo, "only deliveries since this `time`, such as 2026-01-10T00:00:00Z, or 2h ago"},
			{"--until", "until", timeOrAgo, "only deliveries before this `time`"},
			limitFlag,
		},
		pages: "deliveries",
		columns: []column{
			{"ID", "id"}, {"EVENT", "event"}, {"SUBJECT", "key"}, {"AT", "event_at"}, {"STATUS", "status"}, {"ATTEMPTS", "attempt_count"}, {"NEXT", "next_attempt_at"},
		},
	},
	{
		use: "webhooks delivery ID DELIVERY", short: "Show a delivery, its attempts and its payload",
		request: "GET /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", after: showPayload,
		fields: []column{
			{"Delivery", "id"}, {"Webhook", "webhook_id"}, {"Event", "event"}, {"Event id", "event_id"}, {"Subject", "key"}, {"At", "event_at"},
			{"Status", "status"}, {"Next attempt", "next_attempt_at"}, {"Ended", "ended_at"},
		},
		rows: "attempts",
		columns: []column{
			{"ATTEMPT", "attempt"}, {"AT", "at"}, {"STATUS", "status"}, {"TOOK", "{{.duration_ms}} ms"}, {"ERROR", "{{with .error}}{{.}}{{end}}"},
			{"RESPONSE", "{{with .response_excerpt}}{{.}}{{end}}"},
		},
	},
	{
		use: "webhooks redeliver ID [DELIVERY]", short: "Send one delivery again, or all dead ones since a time",
		example: `  comet webhooks redeliver 01890a5d-ac96-774b-bcce-b302099a8057 01890a5d-ac96-774b-bcce-b302099a8059
  comet webhooks redeliver 01890a5d-ac96-774b-bcce-b302099a8057 --since 24h`,
		request: "POST /api/v1/webhooks/{webhook_id}/redeliver",
		params:  []param{{"--since", "since", timeOrAgo, "all dead deliveries created since this `time`, such as 2026-01-10T00:00:00Z, or 24h ago"}},
		message: `{{count .redelivered "delivery is" "deliveries are"}} due again`, run: redeliver,
	},
}

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
