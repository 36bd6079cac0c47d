package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"comet/internal/input"
	"comet/openapi/client"
)

var upstreamCommands = []command{
	{
		use: "upstreams list", short: "List upstream MCP servers and their state", request: "GET /api/v1/upstreams",
		rows: "upstreams", empty: `there is no MCP server yet; "comet upstreams add" adds one`,
		columns: []column{
			{"ID", "id"}, {"STATE", "state"}, {"TRANSPORT", "transport"}, {"TOOLS", "tools"}, {"RESTARTS", "restarts"}, {"ERROR", "{{with .error}}{{.}}{{end}}"},
		},
	},
	{
		use: "upstreams get ID", aliases: []string{"show"}, short: "Show an upstream MCP server and its latest standard error",
		request: "GET /api/v1/upstreams/{upstream_id}",
		fields: []column{
			{"Upstream", "id"}, {"Agent", "agent_id"}, {"From", "source"}, {"State", "{{.state}} since {{.since}}"}, {"Error", "error"}, {"Next try", "next_try"},
			{"Restarts", "restarts"}, {"Transport", "transport"}, {"Command", "command"}, {"URL", "url"}, {"Process", "pid"}, {"Environment", "env"}, {"Headers", "headers"},
			{"Server", "{{with .server_name}}{{.}}{{end}}{{with .server_version}} {{.}}{{end}}"}, {"Protocol", "protocol_revision"}, {"Tools", "tools"},
			{"Resources", "{{add .resources .resource_templates}}"}, {"Prompts", "prompts"}, {"Longest call", "{{duration .timeout_ms}}"},
		},
		after: showUpstreamLog,
	},
	{
		use: "upstreams add ID [-- COMMAND [ARG...]]", short: "Add an upstream MCP server, or change one that was added",
		long: `Add an upstream MCP server on all replicas, or change one that was added. A program runs on
the machine of the comet server, as comet. Secrets are named and not given: '${NAME}' is a
variable of comet's own environment, '${file:/path}' a file on its machine.`,
		example: `  comet upstreams add memory -- npx -y @modelcontextprotocol/server-memory
  comet upstreams add github --url https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
  comet upstreams add memory --file ~/.cursor/mcp.json`,
		request: "PUT /api/v1/upstreams/{upstream_id}",
		params: []param{
			{"--command", "command", text, "the `program`, which is connected over stdio; instead of the words after --"},
			{"--arg", "args", array(""), "an `argument` of it; may be repeated"},
			{"--env", "env", array("="), "`NAME=value` in its environment; a secret is named: TOKEN='${TOKEN}'; may be repeated"},
			{"--cwd", "cwd", text, "the `directory` it runs in"},
			{"--url", "url", text, "the `address` of a server that is connected over HTTP"},
			{"--header", "headers", array(":"), "`'Name: value'` of requests to it; may be repeated"},
			{"--type", "type", oneOf("stdio", "http"), "stdio or http, if it does not follow from the rest"},
			{"--timeout", "comet.timeout", goDuration, "how long a call may take (default 30s)"},
			{"--file -f", "", local.named("file"), "JSON `file` with the entry, or with an mcpServers that has it; - is standard input; instead of the other flags"},
		},
		message: `{{if eq .version 1}}added{{else}}changed{{end}} {{.id}}; "comet upstreams get {{.id}}" shows its state`,
		run:     addUpstream,
	},
	{
		use: "upstreams remove ID", short: "Remove an upstream MCP server that was added",
		long:    "Remove an upstream MCP server that was added, with the approvals of its tools. A server of the file mcp.servers is removed there.",
		request: "DELETE /api/v1/upstreams/{upstream_id}", message: "removed {{.ID}}",
	},
	{
		use: "upstreams restart ID", short: "Restart an upstream MCP server at once; running calls fail",
		request: "POST /api/v1/upstreams/{upstream_id}/restart", message: "restarted {{.ID}}",
	},
	{
		use: "upstreams reload", short: "Reload the server's file of MCP servers",
		long: `Reload the server's file of MCP servers now, instead of within two seconds: new servers are
started, changed ones restarted, missing ones stopped. A file with a mistake changes nothing.`,
		request: "POST /api/v1/upstreams/reload", message: "reloaded the file",
	},
	{
		use: "upstreams tools ID [TOOL]", short: "List the tools of an upstream MCP server and their approvals",
		long: `List the tools of an upstream MCP server and their approvals. A tool whose definition has
changed is quarantined: it has the digest of the approved definition and that of the pending
one. With -o json the definitions are included.`,
		example: `  comet upstreams tools filesystem
  comet upstreams tools filesystem read_file -o json`,
		request: "GET /api/v1/upstreams/{upstream_id}/tools", rows: "tools",
		columns: []column{
			{"TOOL", "id"}, {"STATE", "state"}, {"SET CLASS", "class"}, {"CHANGED", "changed_at"},
			{"APPROVED DIGEST", "{{slice .digest 0 12}}"}, {"PENDING DIGEST", "{{with .pending_digest}}{{slice . 0 12}}{{else}}-{{end}}"},
		},
		run: showDefinitions,
	},
}

// showUpstreamLog prints the warnings and the standard error of an upstream server.
func showUpstreamLog(c *call, body []byte) error {
	var u client.UpstreamView
	if err := decode(body, &u); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{{"Warnings:", u.Warnings}, {"Standard error:", u.Stderr}} {
		if len(part.lines) > 0 {
			printLine(c.out.w, "\n%s", part.title)
		}
		for _, line := range part.lines {
			printLine(c.out.w, "  %s", line)
		}
	}
	return nil
}

// showDefinitions lists the tools of an upstream server, or shows one.
func showDefinitions(ctx context.Context, c *call) error {
	if len(c.args) == 1 {
		return sendAndShow(ctx, c)
	}
	body, err := c.send(ctx, c.request)
	if err != nil {
		return err
	}
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := decode(body, &list); err != nil {
		return err
	}
	for _, raw := range list.Tools {
		var d client.ToolDefinitionView
		if err := decode(raw, &d); err != nil {
			return err
		}
		if d.Tool == c.args[1] || d.ID == c.args[1] {
			c.rows, c.columns = "", nil
			c.fields = []column{
				{"Tool", "id"}, {"State", "state"}, {"Set class", "class"}, {"First seen", "first_seen_at"}, {"Changed", "changed_at"},
				{"Approved", "{{with .approved_at}}{{.}} by {{$.approved_by}}{{end}}"}, {"Approved digest", "digest"}, {"Pending digest", "pending_digest"},
			}
			if d.PendingDigest != nil {
				printLine(c.messages, "to approve it: comet tools approve %s --digest %s", shellWord(d.ID), *d.PendingDigest)
			}
			return c.printResponse(raw)
		}
	}
	detail := fmt.Sprintf("the upstream %q has no tool %q", c.args[0], c.args[1])
	return &apiError{status: http.StatusNotFound, problem: client.Problem{Title: "Not found", Detail: &detail}}
}

// shellWord quotes a word for a shell: an MCP server chooses the names of its tools, and a
// person copies the line.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_.:/-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func addUpstream(ctx context.Context, c *call) error {
	command := c.args[1:]
	if c.cmd.ArgsLenAtDash() != 1 && len(command) > 0 {
		return usagef("give one ID, and the command after --: comet upstreams add %s -- %s", c.args[0], strings.Join(command, " "))
	}
	given, err := c.values()
	switch {
	case err != nil:
		return err
	case c.changed("file") && len(given)+len(command) > 0:
		return usagef("--file replaces the flags and the command that describe the server; give one or the other")
	case c.changed("file"):
		return c.addUpstreamFrom(ctx, c.flagText("file"))
	case len(command) > 0 && (c.changed("command") || c.changed("arg")):
		return usagef("the command is given twice: by --command or --arg, and after --")
	case len(given)+len(command) == 0:
		return usagef("a server is a program (-- COMMAND), an address (--url), or in a file (--file)")
	}
	c.fixed = maps.Clone(c.fixed)
	if len(command) > 0 {
		c.fixed = map[string]any{"command": command[0]}
	}
	if len(command) > 1 {
		c.fixed["args"] = command[1:]
	}
	return sendAndShow(ctx, c)
}

// addUpstreamFrom adds the server of a file.
func (c *call) addUpstreamFrom(ctx context.Context, file string) error {
	data, err := readInput(c.in, file)
	if err != nil {
		return err
	}
	entry, err := entryOf(nameOf(file), c.args[0], data)
	if err != nil {
		return err
	}
	body, err := c.readResponse(c.api.PutUpstreamWithBody(ctx, c.args[0], "application/json", bytes.NewReader(entry)))
	if err != nil {
		return err
	}
	return c.printResponse(body)
}

// entryOf finds an entry in a file: the file itself, or the entry with that id in its
// mcpServers, which some clients call servers.
func entryOf(file, id string, data []byte) ([]byte, error) {
	object, err := readObject(file, data)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"mcpServers", "servers"} {
		all := object.Member(name)
		if all == nil {
			continue
		}
		if all.Value.Kind != input.Object {
			return nil, usagef("%s: %s must be an object", file, name)
		}
		if entry := all.Value.Member(id); entry != nil {
			return entry.Value.JSON(), nil
		}
		var ids []string
		for _, m := range all.Value.Members {
			ids = append(ids, m.Name)
		}
		if len(ids) == 0 {
			return nil, usagef("%s has no server %s; its %s is empty", file, id, name)
		}
		slices.Sort(ids)
		return nil, usagef("%s has no server %s; it has %s", file, id, strings.Join(ids, ", "))
	}
	return data, nil
}
