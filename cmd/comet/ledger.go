package main

import "context"

// repairTable lists corrections that were made, then differences with their corrections.
const repairTable = "{{if or .corrections .differences}}AGENT\tSUM\tSTORED\tCOMPUTED\tWHERE\tCORRECTION\n" +
	"{{range .corrections}}" + repairRow + "corrected\n{{end}}" +
	"{{range .differences}}" + repairRow + "{{with .not_repairable}}none: {{.}}{{else}}{{.correction}}{{end}}\n{{end}}{{end}}"

const repairRow = "{{or .agent_id `-`}}\t{{.sum}}\t{{.stored}}\t{{.computed}}\t{{or .key `-`}}\t"

// verifyLedger verifies the ledger, lists the corrections, or makes them.
func verifyLedger(ctx context.Context, c *call) error {
	repair, yes := given[bool](c, "repair"), given[bool](c, "yes")
	switch {
	case yes && !repair:
		return usagef("--yes makes the corrections of --repair; give both")
	case yes:
		c.request, c.table = "POST /api/v1/ledger/repair", repairTable
		c.after += "\n{{with .total_corrections}}{{count . `correction was` `corrections were`}}{{else}}0 corrections were{{end}} made"
	case repair:
		c.table = repairTable
		c.after += "\n{{if .total_differences}}nothing was changed; add --yes to make the corrections{{end}}"
	}
	return sendAndShow(ctx, c)
}
