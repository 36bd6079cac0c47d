package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// toolOf splits SERVER:TOOL.
func toolOf(name string) (server, tool string, err error) {
	server, tool, ok := strings.Cut(name, ":")
	if !ok || server == "" || tool == "" {
		return "", "", usagef("a tool must be named SERVER:TOOL, not %q", name)
	}
	return server, tool, nil
}

func newToolsApproveCommand(flags *clientFlags) *cobra.Command {
	var digest string
	cmd := &cobra.Command{
		Use:   "approve SERVER:TOOL",
		Short: "Take a tool's changed definition for right",
		Long: `Take a tool's changed definition for right, so that it is shown and called again. With
--digest only the definition that you have looked at is approved; "comet upstreams tools
SERVER TOOL" shows what is new, and the whole command.`,
		Args:    cobra.ExactArgs(1),
		Example: `  comet tools approve filesystem:read_file`,
	}
	cmd.Flags().StringVar(&digest, "digest", "", "the `digest` of what you have looked at")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		server, tool, err := toolOf(args[0])
		if err != nil {
			return err
		}
		before, err := s.definition(ctx, server, tool)
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("digest") && before.waits() {
			digest = *before.PendingDigest // what is said to be approved is what is approved
		}
		body, err := s.answer(s.api.ApproveTool(ctx, server, client.ToolApproval{Tool: tool, Digest: &digest}))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			if before.waits() {
				say(s.out.w, "approved %s, in which this is new: %s", args[0], before.differs())
			} else {
				say(s.out.w, "%s is approved already; nothing of it waits", args[0])
			}
			return nil
		})
	})
}

func newToolsClassifyCommand(flags *clientFlags) *cobra.Command {
	classes := []string{"read", "write", "destructive", "none"}
	cmd := &cobra.Command{
		Use:       "classify SERVER:TOOL read|write|destructive|none",
		Short:     "Say what a tool may do, instead of its own annotations; none believes those again",
		Args:      cobra.ExactArgs(2),
		ValidArgs: classes,
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		server, tool, err := toolOf(args[0])
		if err != nil {
			return err
		}
		if !slices.Contains(classes, args[1]) {
			return usagef("the class must be read, write, destructive or none, not %q", args[1])
		}
		var class any // null believes the annotations
		said := "its own annotations count again"
		if args[1] != "none" {
			class, said = args[1], "its class is "+args[1]
		}
		request, err := json.Marshal(map[string]any{"tool": tool, "class": class})
		if err != nil {
			return err
		}
		if _, err := s.definition(ctx, server, tool); err != nil {
			return err
		}
		body, err := s.answer(s.api.ClassifyToolWithBody(ctx, server, "application/json", bytes.NewReader(request)))
		if err != nil {
			return err
		}
		return s.out.show(body, func() error {
			say(s.out.w, "%s: %s", args[0], said)
			return nil
		})
	})
}

// policyFlags are what a token may do with tools.
type policyFlags struct {
	file                 string
	clear                bool
	allow, deny, classes []string
}

func newToolsPolicyCommand(flags *clientFlags) *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:   "policy TOKEN-ID",
		Short: "Show what a token may do with tools, or say it",
		Long: `Show what a token may do with tools, or say it: the whole policy, which takes the place of
the one before. A pattern is SERVER:TOOL or SERVER, with * for any characters and ? for one.
Without --allow everything is allowed; --deny wins. Rules about arguments are for --set.`,
		Args: cobra.ExactArgs(1),
		Example: `  comet tools policy 01890a5d-ac96-774b-bcce-b302099a8058 --allow 'filesystem:*' --deny filesystem:write_file --class read,write
  comet tools policy 01890a5d-ac96-774b-bcce-b302099a8058 --clear`,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.file, "set", "", "JSON `file` with allow, deny and classes; - is standard input")
	fs.BoolVar(&f.clear, "clear", false, "take the policy away, so that everything is allowed")
	fs.StringSliceVar(&f.allow, "allow", nil, "a `pattern` of tools that may be called; may be repeated or a list with commas")
	fs.StringSliceVar(&f.deny, "deny", nil, "a `pattern` of tools that may not")
	fs.StringSliceVar(&f.classes, "class", nil, "a `class` that may be called: read, write or destructive")
	for _, flag := range []string{"allow", "deny", "class"} {
		cmd.MarkFlagsMutuallyExclusive("set", "clear", flag)
	}
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		id := args[0]
		if f.clear {
			_, err := s.answer(s.api.DeleteToolPolicy(ctx, id))
			return s.done(err, "cleared", "the policy of "+id)
		}
		request, err := f.request(cmd, s)
		if err != nil {
			return err
		}
		var body []byte
		if request == nil {
			body, err = s.answer(s.api.GetToolPolicy(ctx, id, nil))
		} else {
			body, err = s.answer(s.api.PutToolPolicyWithBody(ctx, id, "application/json", bytes.NewReader(request)))
		}
		if err != nil {
			return err
		}
		return s.out.show(body, func() error { return showPolicy(s, body) })
	})
}

// request is the policy that is to count, nil where none was given.
func (f *policyFlags) request(cmd *cobra.Command, s *session) ([]byte, error) {
	if cmd.Flags().Changed("set") {
		return readInput(s.in, f.file)
	}
	if !cmd.Flags().Changed("allow") && !cmd.Flags().Changed("deny") && !cmd.Flags().Changed("class") {
		return nil, nil
	}
	rules := func(patterns []string) []client.ToolRule {
		out := make([]client.ToolRule, len(patterns))
		for i, p := range patterns {
			out[i].Tool = p
		}
		return out
	}
	classes := make([]client.ToolPolicyClasses, len(f.classes))
	for i, c := range f.classes {
		classes[i] = client.ToolPolicyClasses(c)
	}
	return json.Marshal(client.ToolPolicy{Allow: new(rules(f.allow)), Deny: new(rules(f.deny)), Classes: &classes})
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
		words := make([]string, len(p.Classes))
		for i, c := range p.Classes {
			words[i] = string(c)
		}
		rows = append(rows, []string{"only", "class " + strings.Join(words, ", "), ""})
	}
	return s.out.table([]string{"RULE", "TOOLS", "ARGUMENTS"}, rows)
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
