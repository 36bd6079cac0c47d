package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"comet/openapi/client"
)

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
