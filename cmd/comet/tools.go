package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

var toolGroups = []commandGroup{
	{name: "tools", aliases: []string{"tool"}, short: "Find and call tools, and manage who may call them", more: []func(*clientFlags) *cobra.Command{newToolsCallCommand}},
	{name: "upstreams", aliases: []string{"upstream"}, short: "Manage the upstream MCP servers"},
}

var toolCommands = []command{
	{
		use: "tools list", short: "List the tools that you may call",
		long:    "List the tools that you may call. With -o json the schemas of their arguments are included.",
		request: "GET /api/v1/tools",
		params:  []param{{"--upstream", "server", text, "only tools of this MCP `server`, or of comet itself: agentcards or comet"}, limitFlag},
		pages:   "tools", columns: []column{{"TOOL", "id"}, {"CLASS", "class"}, {"DESCRIPTION", "{{oneLine .description}}"}},
	},
	{
		use: "tools search WORDS...", short: "Find tools by what they do",
		example: `  comet tools search read a file --context memory:search_nodes --related`,
		request: "POST /api/v1/tools/search",
		params: []param{
			{"WORDS", "query", words, ""},
			{"--limit", "limit", number, "at most this many (default 5)"},
			{"--related", "include_related", yesOrNo, "also tools that are often used together with those found"},
			{"--context", "context_tools", textList, "a `tool` that you have used already; may be repeated, or a list with commas"},
			{"--stubs", "include_stubs", yesOrNo, "print a TypeScript declaration of each, for code (comet run)"},
		},
		show: showFoundTools,
	},
	{
		use: "tools calls", short: "List tool calls, newest first",
		long:    `List tool calls, newest first: the caller, the result and the cost. Calls of other tokens are shown to admins only.`,
		example: `  comet tools calls --upstream filesystem --outcome refused --limit 20`,
		request: "GET /api/v1/tools/calls",
		params: []param{
			{"--agent", "agent_id", text, "only calls that this `agent` paid for"},
			{"--token-id", "token_id", text, "only calls of the token with this `id`"},
			{"--upstream", "server", text, "only calls of this MCP `server`'s tools"},
			{"--tool", "tool", text, "only calls of tools with this `name`, without the server's"},
			{"--task", "task_id", text, "only calls of this `task`"},
			{"--parent", "parent_id", text, "only calls by this run of code, the `id` of its own call"},
			{"--outcome", "outcome", oneOf("success", "error", "refused"), "only calls with this `outcome`: success, error or refused"},
			limitOf("100"),
		},
		pages: "calls",
		columns: []column{
			{"ID", "id"}, {"AT", "at"}, {"TOOL", "tool"}, {"VIA", "source"}, {"BY", "actor"}, {"AGENT", "agent_id"}, {"OUTCOME", "outcome"},
			{"ERROR", "error"}, {"MS", "{{ms .duration_ms}}"}, {"TOKENS", "tokens"},
		},
	},
	{
		use: "tools approve SERVER:TOOL", short: "Approve a changed tool definition",
		long: `Approve a changed tool definition, so that the tool is listed and can be called again. With
--digest only the definition that you have read is approved; "comet upstreams tools SERVER
TOOL" shows the digest, and with -o json both definitions.`,
		example: `  comet tools approve filesystem:read_file`,
		request: "POST /api/v1/upstreams/{upstream_id}/tools/approve",
		params:  []param{{"--digest", "digest", text, "the `digest` of the definition that you have read"}},
		message: "approved {{.id}}", run: changeTool,
	},
	{
		use: "tools classify SERVER:TOOL CLASS", short: "Set the class of a tool: read, write, destructive, or none to use its annotations",
		request: "POST /api/v1/upstreams/{upstream_id}/tools/classify",
		params:  []param{{"CLASS", "class", toolClass, ""}},
		message: "{{.id}}: {{with .class}}its class is {{.}}{{else}}its annotations decide{{end}}", run: changeTool,
	},
	{
		use: "tools policy TOKEN-ID", short: "Show or set which tools a token may call",
		long: `Show or set which tools a token may call. What is set is the whole policy, which replaces the
one before. A pattern is SERVER:TOOL or SERVER, with * for any characters and ? for one.
Without --allow everything is allowed; --deny wins. Rules about arguments need --set.`,
		example: `  comet tools policy 01890a5d-ac96-774b-bcce-b302099a8058 --allow 'filesystem:*' --deny filesystem:write_file --class read,write
  comet tools policy 01890a5d-ac96-774b-bcce-b302099a8058 --clear`,
		request: "GET /api/v1/tokens/{token_id}/tool-policy",
		params: []param{
			{"--set", "", local.named("file"), "JSON `file` with allow, deny and classes; - is standard input"},
			{"--clear", "", switchOn, "remove the policy, so that everything is allowed"},
			{"--allow", "", localList, "a `pattern` of tools that may be called; may be repeated, or a list with commas"},
			{"--deny", "", localList, "a `pattern` of tools that may not be called"},
			{"--class", "", localList, "a `class` that may be called: read, write or destructive"},
		},
		show: showPolicy, run: changePolicy,
	},
}

// toolClass is the class of a tool; none makes its annotations decide.
var toolClass = kind{choices: []string{"read", "write", "destructive", "none"}, parse: func(_ *session, text string) (any, error) {
	switch text {
	case "read", "write", "destructive":
		return text, nil
	case "none":
		return nil, nil //nolint:nilnil // null in the request
	}
	return nil, fmt.Errorf("%q is not read, write, destructive or none", text)
}}

func showFoundTools(s *session, body []byte) error {
	var found client.ToolSearchResult
	if err := decode(body, &found); err != nil {
		return err
	}
	if len(found.Tools) == 0 {
		printLine(s.messages, "none of %s matches", count(found.Meta.TotalTools, "tool", "tools"))
		return nil
	}
	rows, stubs := make([][]string, len(found.Tools)), []string{}
	for i, t := range found.Tools {
		rows[i] = []string{t.Name, fmt.Sprintf("%.2f", t.Score), string(t.Class), oneLine(t.Description)}
		if t.Stub != nil {
			stubs = append(stubs, *t.Stub)
		}
	}
	if err := s.out.table([]string{"TOOL", "SCORE", "CLASS", "DESCRIPTION"}, rows); err != nil || len(stubs) == 0 {
		return err
	}
	printLine(s.out.w, "")
	for _, stub := range stubs {
		if err := s.print(s.out.w, stub); err != nil {
			return err
		}
	}
	return nil
}

// changeTool sends a request about the tool SERVER:TOOL.
func changeTool(ctx context.Context, c *call) error {
	server, tool, ok := strings.Cut(c.args[0], ":")
	if !ok || server == "" || tool == "" {
		return usagef("a tool must be named SERVER:TOOL, not %q", c.args[0])
	}
	c.fixed = map[string]any{"upstream_id": server, "tool": tool}
	return sendAndShow(ctx, c)
}

func changePolicy(ctx context.Context, c *call) error {
	lists, set := map[string][]string{}, []string{}
	for _, name := range []string{"allow", "deny", "class"} {
		if lists[name], _ = c.cmd.Flags().GetStringSlice(name); c.changed(name) && len(set) == 0 {
			set = append(set, "--allow, --deny and --class")
		}
	}
	for _, name := range []string{"set", "clear"} {
		if c.changed(name) {
			set = append(set, "--"+name)
		}
	}
	var body []byte
	var err error
	switch {
	case len(set) > 1:
		return usagef("give %s, not both", strings.Join(set, " or "))
	case c.changed("clear"):
		c.request, c.message = "DELETE /api/v1/tokens/{token_id}/tool-policy", "cleared the policy of {{index . \"TOKEN-ID\"}}"
		return sendAndShow(ctx, c)
	case c.changed("set"):
		body, err = readInput(c.in, c.flagText("set"))
	case len(set) == 1:
		body, err = json.Marshal(newPolicy(lists))
	default:
		return sendAndShow(ctx, c)
	}
	if err != nil {
		return err
	}
	if body, err = c.readResponse(c.api.PutToolPolicyWithBody(ctx, c.args[0], "application/json", bytes.NewReader(body))); err != nil {
		return err
	}
	return c.printResponse(body)
}

func newPolicy(lists map[string][]string) client.ToolPolicy {
	rules := func(patterns []string) *[]client.ToolRule {
		out := make([]client.ToolRule, len(patterns))
		for i, p := range patterns {
			out[i].Tool = p
		}
		return &out
	}
	classes := make([]client.ToolPolicyClasses, len(lists["class"]))
	for i, c := range lists["class"] {
		classes[i] = client.ToolPolicyClasses(c)
	}
	return client.ToolPolicy{Allow: rules(lists["allow"]), Deny: rules(lists["deny"]), Classes: &classes}
}

func showPolicy(s *session, body []byte) error {
	var p client.ToolPolicyView
	if err := decode(body, &p); err != nil {
		return err
	}
	rows := [][]string{}
	for _, list := range []struct {
		verb  string
		rules []client.ToolRule
	}{{"deny", p.Deny}, {"allow", p.Allow}} {
		for _, r := range list.rules {
			rows = append(rows, []string{list.verb, r.Tool, argumentsOf(r)})
		}
	}
	if len(p.Allow) == 0 {
		rows = append(rows, []string{"allow", "everything", ""})
	}
	if len(p.Classes) > 0 {
		rows = append(rows, []string{"only", "class " + joined(p.Classes, ", "), ""})
	}
	return s.out.table([]string{"RULE", "TOOLS", "ARGUMENTS"}, rows)
}

func joined[T ~string](list []T, separator string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = string(v)
	}
	return strings.Join(words, separator)
}

// argumentsOf are a rule's patterns of arguments, in the order of their paths.
func argumentsOf(r client.ToolRule) string {
	var out []string
	if r.Arguments != nil {
		for path, pattern := range *r.Arguments {
			out = append(out, path+"="+pattern)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
