package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"comet/openapi/client"
)

// Parameters of a report of usage.
var factParams = []param{
	{"--tokens", "tokens", number, "how many tokens were used"},
	{"--model", "model", text, "the language `model` that used them"},
	{"--kind", "kind", text, "the `kind` of usage, a word of your own"},
	{"--task", "task_id", text, "the `task` they were used for"},
	{"--outcome", "outcome", oneOf("success", "failed", "timeout", "cancelled"), "how the work ended: success, failed, timeout or cancelled"},
	{"--duration", "duration_ms", millis, "how long the work took, such as 1.5s"},
	{"--session", "session_id", text, "the `session` of the work"},
}

var usageGroups = []commandGroup{
	{name: "usage", short: "Show and record the tokens that agents use"},
	{name: "budgets", aliases: []string{"budget"}, short: "Show, set and extend the budgets of agents"},
	{name: "ledger", short: "Check the sums of the ledger"},
}

var usageCommands = []command{
	{
		use: "usage get AGENT", short: "Show what an agent used today, and what remains of its budget",
		request: "GET /api/v1/agents/{agent_id}/usage",
		fields: []column{
			{"Agent", "agent_id"}, {"Budget", "{{budget .budget}}{{if .additional_budget}}, {{.additional_budget}} of it temporary{{end}}"},
			{"Budget limits", "{{scope .budget_scope}}"}, {"Used today", "used_today"}, {"Used this hour", "used_this_hour"},
			{"Written off today", "{{if .forgiven_today}}{{.forgiven_today}}{{end}}"}, {"Reserved", "reserved"}, {"Remaining", "{{budget .remaining}}"},
			{"Resets at", "reset_at"}, {"Subtree used today", "subtree_used_today"}, {"Subtree remaining", "subtree_remaining"},
		},
	},
	{
		use: "usage record AGENT", short: "Record what an agent used",
		long: `Record one fact from flags, or many from a file: a JSON array of facts, or one fact per line.
A file is sent in batches of 1,000, each recorded as a whole or not at all. Facts with a
request_id count once, so a file of them can be sent again.`,
		example: `  comet usage record finance-personal --tokens 1250 --model gpt-5-mini --request-id req-01J9
  comet usage record finance-personal --file facts.jsonl`,
		request: "POST /api/v1/agents/{agent_id}/usage",
		params: append(factParams[:len(factParams):len(factParams)],
			param{"--request-id", "request_id", text, "`id` that makes the fact count once, however often it is sent"},
			param{"--file -f", "", local, "JSON `file` with facts, - for standard input; instead of the other flags"},
			param{"--idempotency-key", "Idempotency-Key", text, "a `key`; a request that is repeated with it gets the response of the first; batches add their number to it"},
		),
		required: []string{"--tokens|--file"},
		message:  `{{if .replayed}}already recorded{{else}}recorded{{end}}{{with .tokens}} {{.}} tokens{{end}}; {{remaining .balance}}`,
		run:      recordUsage,
	},
	{
		use: "usage history AGENT", short: "Show what an agent used over time, per hour or per day",
		example: `  comet usage history finance-personal
  comet usage history finance-personal --window day --from 2026-01-01 --by model --top 3`,
		request: "GET /api/v1/agents/{agent_id}/usage/history",
		params: []param{
			{"--window", "window", oneOf("hour", "day"), "`width` of a window: hour or day (default hour)"},
			{"--by", "group_by", oneOf("model", "kind", "task"), "break windows down by model, kind or task; windows without usage are left out"},
			{"--from", "from", text, "begin, a `time` such as 2026-01-10T15:00:00Z or a day such as 2026-01-10"},
			{"--to", "to", text, "end, a `time` or a day (default now)"},
			{"--top", "top", number, "how many groups of a window are named (1-100; default 10)"},
		},
		show: showUsageHistory,
	},
	{
		use: "usage reserve AGENT", short: "Reserve tokens of an agent's budget",
		long: `Hold tokens of an agent's budget until they are settled or released, or the reservation
expires. Its id is printed to standard output, everything else goes to standard error. A
budget that does not cover it ends with exit code 7.`,
		example: `  ID=$(comet usage reserve finance-personal --tokens 2000 --ttl 10m)
  comet usage settle finance-personal $ID --tokens 1730`,
		request: "POST /api/v1/agents/{agent_id}/reservations",
		params: []param{
			{"--tokens", "tokens", number, "how many tokens to hold"},
			{"--ttl", "ttl_seconds", seconds, "how long to hold them, in whole seconds up to 24h (default 5m)"},
			idempotencyKey,
		},
		required: []string{"--tokens"},
		message:  "{{.tokens}} tokens of {{.agent_id}} are held until {{.expires_at}}", secret: "id",
	},
	{
		use: "usage settle AGENT RESERVATION", short: "Settle a reservation with what was really used",
		request: "POST /api/v1/agents/{agent_id}/reservations/{reservation_id}/settle",
		params:  factParams, required: []string{"--tokens"},
		message: `settled with {{or .settled_tokens 0}} of {{.tokens}} tokens; {{remaining .balance}}` +
			`{{if .replayed}} (it was settled before){{else if .late}} (it had expired, but what was used counts){{end}}`,
	},
	{
		use: "usage release AGENT RESERVATION", short: "Release what a reservation holds",
		request: "DELETE /api/v1/agents/{agent_id}/reservations/{reservation_id}", message: "released {{.RESERVATION}}",
	},
	{
		use: "usage reservations AGENT", short: "List an agent's reservations, newest first",
		request: "GET /api/v1/agents/{agent_id}/reservations",
		params: []param{
			{"--state", "state", oneOf("held", "settled", "released", "expired"), "only those in this `state`: held, settled, released or expired"},
			limitFlag,
		},
		pages:   "reservations",
		columns: []column{{"ID", "id"}, {"TOKENS", "tokens"}, {"STATE", "state"}, {"SETTLED", "settled_tokens"}, {"CREATED", "created_at"}, {"EXPIRES", "expires_at"}},
	},
	{
		use: "budgets list [ROOT]", short: "List the budgets of active agents and what was used of them today",
		example: `  comet budgets list
  comet budgets list orch-personnel --depth 1`,
		request: "GET /api/v1/hierarchy", fixed: map[string]any{"usage": true, "active_only": true},
		params: []param{
			{"ROOT", "root", text, ""},
			{"--depth", "depth", number, "how many levels below the root (0-3); all if not given"},
			{"--all", "active_only", notSet, "inactive agents too"},
		},
		show: showBudgets,
	},
	{
		use: "budgets set AGENT [TOKENS]", short: "Set how many tokens an agent may use per day, and what the budget limits",
		example: `  comet budgets set finance-personal 25000
  comet budgets set orch-personnel --scope subtree`,
		request: "PATCH /api/v1/agents/{agent_id}",
		params:  []param{{"TOKENS", "token_budget", number, ""}, {"--scope", "budget_scope", agentScope.kind, agentScope.help}},
		message: "{{.id}} may use {{budget .token_budget}} tokens per day, a limit for {{scope .budget_scope}}",
	},
	{
		use: "budgets add AGENT TOKENS", short: "Add to an agent's budget for a time",
		example: `  comet budgets add finance-personal 50000 --for 8h --reason "month-end closing"`,
		request: "POST /api/v1/agents/{agent_id}/budget/additions",
		params: []param{
			{"TOKENS", "tokens", number, ""},
			{"--until", "expires_at", timestamp, "when it ends, a `time` such as 2026-01-11T00:00:00Z"},
			{"--for", "expires_at", fromNow, "how long it counts, such as 8h; instead of --until"},
			auditReason, idempotencyKey,
		},
		required: []string{"--until|--for", "--reason"},
		message:  "{{.agent_id}} may use {{.tokens}} more tokens per day until {{.expires_at}}", secret: "id",
	},
	{
		use: "budgets additions AGENT", short: "List an agent's additional budgets",
		request: "GET /api/v1/agents/{agent_id}/budget/additions",
		params:  []param{{"--all", "include_inactive", yesOrNo, "also those that no longer count"}},
		rows:    "additions",
		columns: []column{{"ID", "id"}, {"TOKENS", "tokens"}, {"ACTIVE", "active"}, {"EXPIRES", "expires_at"}, {"BY", "created_by"}, {"REASON", "reason"}},
	},
	{
		use: "budgets remove AGENT ADDITION", short: "Remove an additional budget",
		request: "DELETE /api/v1/agents/{agent_id}/budget/additions/{addition_id}", message: "removed {{.ADDITION}}",
	},
	{
		use: "budgets reset AGENT", short: "Write off what an agent used today",
		long: `Write off what an agent used today, so that its whole budget is available again before
midnight. Nothing is deleted: the facts and the history stay as they are.`,
		request: "POST /api/v1/agents/{agent_id}/usage/reset", params: []param{auditReason}, required: []string{"--reason"},
		message: "{{.AGENT}} has used {{.used_today}} tokens since; {{remaining .}}",
	},
	{
		use: "ledger verify", short: "Recompute every sum of the ledger and report differences",
		long: `Recompute every sum of the ledger from the facts and reservations it is made of. Each
difference is listed, and the exit code is 1 if there is one.`,
		request: "GET /api/v1/ledger/verify", run: verifyLedger,
	},
}

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
