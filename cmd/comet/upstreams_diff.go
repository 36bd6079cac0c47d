package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/diff"
)

// part is a part of a tool's definition, before and after, as text; "" where it has none.
type part struct{ name, old, new string }

// partsOf are the parts of two definitions, in the order in which a person decides by them.
func partsOf(before, after jsontext.Value) []part {
	old, now := membersOf(before), membersOf(after)
	all := maps.Clone(old)
	maps.Copy(all, now)
	var out []part
	for _, p := range []struct{ member, name string }{
		{"title", "title"}, {"description", "description"}, {"annotations", "annotations"},
		{"inputSchema", "input schema"}, {"outputSchema", "output schema"},
	} {
		if all[p.member] != "" {
			out = append(out, part{p.name, old[p.member], now[p.member]})
		}
		delete(all, p.member)
	}
	for _, member := range slices.Sorted(maps.Keys(all)) { // of a server newer than this program
		out = append(out, part{member, old[member], now[member]})
	}
	return out
}

// membersOf are the members of a definition as text: one that is text as it is, the others as
// JSON, a member a line.
func membersOf(definition jsontext.Value) map[string]string {
	out, members := map[string]string{}, map[string]jsontext.Value{}
	if json.Unmarshal(definition, &members) != nil {
		return out
	}
	for name, value := range members {
		text := ""
		if value.Kind() != '"' || json.Unmarshal(value, &text) != nil {
			_ = value.Indent(jsontext.WithIndent("  ")) // it was read: it is JSON
			text = string(value)
		}
		out[name] = text
	}
	return out
}

// showParts prints the parts of a definition that differ, line by line, or all of one that
// is the same as before.
func (s *session) showParts(parts []part) error {
	same := !slices.ContainsFunc(parts, func(p part) bool { return p.old != p.new })
	var b bytes.Buffer
	for _, p := range parts {
		if !same && p.old == p.new {
			continue
		}
		_, _ = fmt.Fprintf(&b, "\n%s:\n", printable(p.name)) // a buffer takes everything
		for _, line := range p.lines() {
			_, _ = fmt.Fprintf(&b, "  %s\n", s.painted(line, !same))
		}
	}
	_, err := s.out.w.Write(b.Bytes())
	return err
}

// lines are those of a part: what it says, or how it was changed.
func (p part) lines() []string {
	if p.old == p.new {
		return strings.Split(p.new, "\n")
	}
	if p.name == "description" {
		if out := changes(sentences(p.old), sentences(p.new)); len(out) > 0 {
			return out
		} // else only line breaks differ
	}
	return changes(strings.Split(p.old, "\n"), strings.Split(p.new, "\n"))
}

// sentences cuts a text into lines, and lines into sentences: descriptions are often one line,
// of which one word is new.
func sentences(text string) (out []string) {
	for _, line := range strings.Split(text, "\n") {
		from := 0
		for i := 1; i+1 < len(line); i++ {
			if line[i] == ' ' && strings.IndexByte(".!?", line[i-1]) >= 0 {
				out, from = append(out, line[from:i]), i+1
			}
		}
		out = append(out, line[from:])
	}
	return out
}

// changes are the lines of a unified diff, without its header; none where nothing differs.
func changes(old, now []string) []string {
	text := func(lines []string) []byte {
		if len(lines) == 1 && lines[0] == "" {
			return nil
		}
		return []byte(strings.Join(lines, "\n") + "\n")
	}
	const header = 3 // lines
	out := strings.Split(strings.TrimSuffix(string(diff.Diff("", text(old), "", text(now))), "\n"), "\n")
	return out[min(header, len(out)):]
}

// painted is a line as a terminal shows it: nothing in it is hidden, nothing does anything,
// and of a comparison what is new is green and what is gone is red.
func (s *session) painted(line string, compared bool) string {
	colour := plain
	if compared && colourful(s.out.w) {
		switch {
		case strings.HasPrefix(line, "+"):
			colour = green
		case strings.HasPrefix(line, "-"):
			colour = red
		case strings.HasPrefix(line, "@@"):
			colour = dim
		}
	}
	if line = visible(line); colour == plain {
		return line
	}
	return colour + line + reset
}

// visible shows also what a terminal would show as nothing: a definition may say something to
// a model that the person who approves it is not to see.
func visible(line string) string {
	var b strings.Builder
	for _, r := range line {
		hidden := !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r)
		switch {
		case !hidden:
			b.WriteRune(r)
		case r > 0xffff:
			_, _ = fmt.Fprintf(&b, `\U%08x`, r)
		default:
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
