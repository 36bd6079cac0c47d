package main

import "time"

const issuedMessage = "token {{.name}} ({{.id}}); its secret is shown only once:"

var tokenFields = []column{
	{"Token", "id"}, {"Name", "name"}, {"Scopes", `{{join .scopes ","}}`}, {"Agent", "agent_id"}, {"Created", "{{.created_at}} by {{.created_by}}"},
	{"Rotated", "rotated_at"}, {"Expires", "expires_at"}, {"Revoked", "revoked_at"},
}

var tokenGroups = []commandGroup{{name: "tokens", aliases: []string{"token"}, short: "Issue and revoke tokens"}}

var tokenCommands = []command{
	{
		use: "tokens create NAME", short: "Issue a token",
		long: `Issue a token. Its secret is printed to standard output, only once; everything else goes to
standard error, so TOKEN=$(comet tokens create …) works.`,
		example: `  comet tokens create ci-importer --scope agents:read,agents:write --valid-for 30d`,
		request: "POST /api/v1/tokens",
		params: []param{
			{"NAME", "name", text, ""},
			{"--scope", "scopes", textList, "a `scope`, such as admin, agents:read or agents:write; may be repeated, or a list with commas"},
			{"--agent", "agent_id", text, "the `agent` that will use the token"},
			{"--expires-at", "expires_at", timestamp, "when it expires, a `time` such as 2027-01-10T00:00:00Z"},
			{"--valid-for", "expires_at", fromNow, "how long it is valid, such as 30d; instead of --expires-at"},
		},
		required: []string{"--scope"},
		message:  "created " + issuedMessage, secret: "token",
	},
	{
		use: "tokens list", short: "List tokens, with expired and revoked ones, without their secrets", request: "GET /api/v1/tokens", pages: "tokens",
		columns: []column{
			{"ID", "id"}, {"NAME", "name"}, {"SCOPES", "scopes"}, {"AGENT", "agent_id"}, {"CREATED", "created_at"}, {"EXPIRES", "expires_at"}, {"REVOKED", "revoked_at"},
		},
	},
	{use: "tokens get ID", short: "Show a token without its secret", request: "GET /api/v1/tokens/{token_id}", fields: tokenFields},
	{use: "tokens revoke ID", short: "Revoke a token", request: "DELETE /api/v1/tokens/{token_id}", message: "revoked {{.ID}}"},
	{
		use: "tokens rotate ID", short: "Give a token a new secret; the old one ends",
		long:    "Give a token a new secret; the old one ends. The new secret is printed to standard output, only once.",
		request: "POST /api/v1/tokens/{token_id}/rotate", message: "rotated " + issuedMessage, secret: "token",
	},
	{
		use: "me", short: "Show the token and the agent that you use", request: "GET /api/v1/me",
		fields: []column{
			{"Token", "token.id"}, {"Name", "token.name"}, {"Scopes", `{{join .token.scopes ","}}`}, {"Agent", "token.agent_id"},
			{"Created", "{{.token.created_at}} by {{.token.created_by}}"}, {"Rotated", "token.rotated_at"}, {"Expires", "token.expires_at"},
			{"Reports to", `{{range $i, $a := .chain_of_command}}{{if $i}} < {{end}}{{$a.id}} (L{{$a.level}}){{end}}`},
		},
	},
}

// moment is a time in UTC, "-" for none.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
