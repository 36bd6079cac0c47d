package main

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"comet/openapi/client"
)

// toolDefinition is what is known of a tool. It has its definitions as they came.
type toolDefinition struct {
	client.ToolDefinitionView

	Definition jsontext.Value `json:"definition"`
	Pending    jsontext.Value `json:"pending"`
}

// waits reports whether another definition than the approved one waits for approval.
func (d toolDefinition) waits() bool { return d.PendingDigest != nil }

// differs names the parts in which what waits is another than what was approved.
func (d toolDefinition) differs() string {
	var names []string
	for _, p := range partsOf(d.Definition, d.Pending) {
		if d.waits() && p.old != p.new {
			names = append(names, p.name)
		}
	}
	return strings.Join(names, ", ")
}

func newUpstreamsToolsCommand(flags *clientFlags) *cobra.Command {
	var differences bool
	cmd := &cobra.Command{
		Use:   "tools ID [TOOL]",
		Short: "List what is known of an MCP server's tools, and what waits for approval",
		Long: `List what is known of an MCP server's tools, and what waits for approval: in which parts
the definition that it has now is another than the one that was approved. Of one TOOL both
are compared line by line, - was approved and + is new; with --diff those of all that wait.
With -o json both definitions are there.`,
		Args: cobra.RangeArgs(1, 2),
		Example: `  comet upstreams tools filesystem
  comet upstreams tools filesystem read_file`,
	}
	cmd.Flags().BoolVar(&differences, "diff", false, "compare what waits with what was approved, line by line")
	return clientCommand(flags, cmd, func(ctx context.Context, s *session, args []string) error {
		body, all, err := s.definitions(ctx, args[0])
		if err != nil {
			return err
		}
		if len(args) == 2 {
			return s.showNamedTool(body, all, args[0], args[1])
		}
		return s.out.show(body, func() error {
			switch {
			case len(all) == 0:
				return s.noteNone(ctx, args[0])
			case differences:
				return s.showDifferences(args[0], all)
			}
			return s.showDefinitions(args[0], all)
		})
	})
}

// definitions returns what is known of an MCP server's tools, also as it came.
func (s *session) definitions(ctx context.Context, id string) (body []byte, all []toolDefinition, err error) {
	if id == "" {
		return nil, nil, usagef("the id of the MCP server must not be empty")
	}
	body, err = s.answer(s.api.ListToolDefinitions(ctx, id, nil))
	if err != nil {
		return nil, nil, s.upstreamMeant(ctx, err, id)
	}
	var list struct {
		Tools []toolDefinition `json:"tools"`
	}
	if err := decode(body, &list); err != nil {
		return nil, nil, err
	}
	return body, list.Tools, nil
}

// definition returns what is known of one tool, or the error that nothing is.
func (s *session) definition(ctx context.Context, server, tool string) (toolDefinition, error) {
	_, all, err := s.definitions(ctx, server)
	if err != nil {
		return toolDefinition{}, err
	}
	for _, d := range all {
		if d.Tool == tool {
			return d, nil
		}
	}
	return toolDefinition{}, noTool(server, tool, namesOf(all))
}

// showDefinitions prints a table of tools, and how to see what is new of those that wait.
func (s *session) showDefinitions(id string, all []toolDefinition) error {
	rows, waiting := make([][]string, len(all)), 0
	for i, d := range all {
		differs := d.differs()
		if d.waits() {
			waiting++
		}
		if differs == "" {
			differs = "-"
		}
		rows[i] = []string{d.ID, string(d.State), optional(d.Class), moment(d.ChangedAt), differs}
	}
	if err := s.out.table([]string{"TOOL", "STATE", "SET CLASS", "CHANGED", "DIFFERS"}, rows); err != nil || waiting == 0 {
		return err
	}
	say(s.notes, `%s for approval; "comet upstreams tools %s --diff" shows what is new`, count(waiting, "tool waits", "tools wait"), id)
	return nil
}

// showDifferences prints what is new of all the tools that wait.
func (s *session) showDifferences(id string, all []toolDefinition) error {
	waiting := slices.DeleteFunc(slices.Clone(all), func(d toolDefinition) bool { return !d.waits() })
	if len(waiting) == 0 {
		say(s.notes, "no tool of %s waits for approval", id)
	}
	for i, d := range waiting {
		if i > 0 {
			say(s.out.w, "")
		}
		if err := s.showDefinition(d); err != nil {
			return err
		}
	}
	return nil
}

// showNamedTool prints what is known of one tool.
func (s *session) showNamedTool(body []byte, all []toolDefinition, id, name string) error {
	var raw struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := decode(body, &raw); err != nil {
		return err
	}
	for i, d := range all {
		if d.Tool == name || d.ID == name {
			return s.out.show(raw.Tools[i], func() error { return s.showDefinition(d) })
		}
	}
	return noTool(id, name, namesOf(all))
}

// showDefinition prints what is known of a tool: what is new, or what was approved.
func (s *session) showDefinition(d toolDefinition) error {
	state, by := string(d.State), ""
	if d.waits() {
		state += ": " + d.differs() + " not as approved"
	}
	if d.ApprovedAt != nil {
		by = moment(d.ApprovedAt) + " by " + text(d.ApprovedBy)
	}
	changed := ""
	if d.ChangedAt != nil {
		changed = moment(d.ChangedAt)
	}
	err := s.out.fields("Tool", d.ID, "State", state, "Set class", strings.TrimPrefix(optional(d.Class), "-"), "First seen", moment(&d.FirstSeenAt),
		"Changed", changed, "Approved", by, "Digest", d.Digest, "Waiting", text(d.PendingDigest))
	if err != nil {
		return err
	}
	now := d.Pending
	if !d.waits() {
		now = d.Definition
	}
	if err := s.showParts(partsOf(d.Definition, now)); err != nil || !d.waits() {
		return err
	}
	say(s.out.w, "\nTake the new definition for right:")
	say(s.out.w, "  comet tools approve %s --digest %s", shellWord(d.ID), *d.PendingDigest)
	return nil
}

func namesOf(all []toolDefinition) []string {
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Tool
	}
	return names
}

// shellWord is a word as a shell takes it for one, whatever stands in it: an MCP server
// chooses the names of its tools, and a person copies the line.
func shellWord(word string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_.:/-]+$`).MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
