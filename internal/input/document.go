// Package input reads the documents that comet receives: request bodies, configuration files,
// rosters and files of MCP servers. It accepts one strict JSON or YAML document, compares it with
// the Go type it is decoded into, and reports every error with its JSON pointer, its line and a
// sentence that names the fix. The standard decoders report the first error only, in terms of Go
// types.
package input

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
)

// MaxDepth is the maximum nesting of objects and arrays in a document.
const MaxDepth = 64

// Format is the language of a document.
type Format string

// The formats.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// Document is a parsed document and the errors found in it so far. The number of errors is
// limited: further errors are only counted.
type Document struct {
	// Root is the document's value, nil for a document that is empty or malformed.
	Root *Node

	path       []step // leads to the value being checked
	limit      int    // of violations
	violations errs.Violations
	bytes      int // approximate size of the violations in a response
	more       int // violations beyond the limits
	pointers   map[string]bool
}

// step is one level of a path: the name of a member, or the index of an item.
type step struct {
	name  string
	index int // -1 for a member
}

// maxBytes limits the violations in a response. The last violation, which counts the rest, fits
// beside it.
const maxBytes = 1<<20 - 1024

// maxViolations is how many violations of a document are kept; errs reports one more, the number of the rest.
const maxViolations = 999

// Parse parses a document. Its violations have the codes errs.MalformedJSON, errs.MalformedYAML and
// errs.InvalidRequest and the rules required, syntax, utf8, printable, trailing_data, depth,
// duplicate_key, max, and in YAML anchor, alias, merge, tag and key. Values with a violation have
// the kind Invalid. Numbers keep their text.
func Parse(data []byte, format Format) *Document { return parse(data, format, maxViolations) }

func parse(data []byte, format Format, limit int) *Document {
	d := &Document{limit: limit, pointers: map[string]bool{}}
	if format == JSON {
		d.parseJSON(data)
	} else {
		d.parseYAML(data)
	}
	return d
}

// Decode checks the document against the type of v, a non-nil pointer, and stores the valid values
// in v. Rules: unknown_field, type, range, not_null and date_time. An invalid member is left out;
// an invalid item of an array becomes the zero value.
func (d *Document) Decode(v any) error {
	if d.Root == nil {
		return nil
	}
	if !d.check(v) {
		return nil
	}
	if err := json.Unmarshal(d.Root.appendJSON(nil), v); err != nil {
		return fmt.Errorf("decode document: %w", err)
	}
	return nil
}

// Report records a violation of a value.
func (d *Document) Report(line int, code errs.Code, pointer, rule, format string, args ...any) {
	if d.Full() {
		d.more++
		return
	}
	f := errs.Field{Code: code, Pointer: Pointer(pointer), Rule: rule, Line: line, Detail: fmt.Sprintf(format, args...)}
	if d.bytes += f.Size(); d.bytes > maxBytes {
		d.more++
		return
	}
	d.pointers[pointer] = true
	d.violations = append(d.violations, f)
}

// report is Report for the value at the current path. The sentence begins with the value's name.
func (d *Document) report(line int, code errs.Code, rule, format string, args ...any) {
	if d.Full() {
		d.more++
		return
	}
	var b strings.Builder
	for _, s := range d.path {
		if s.index < 0 {
			b.WriteString("/" + Escape(s.name))
		} else {
			b.WriteString("/" + strconv.Itoa(s.index))
		}
	}
	pointer := Pointer(b.String())
	d.Report(line, code, pointer, rule, "%s %s", Field(pointer), fmt.Sprintf(format, args...))
}

// Full reports whether further violations are only counted.
func (d *Document) Full() bool { return len(d.violations) >= d.limit || d.bytes > maxBytes }

// Truncated reports whether there are more violations than Violations returns.
func (d *Document) Truncated() bool { return d.more > 0 }

// HasViolation reports whether a violation with the pointer was recorded.
func (d *Document) HasViolation(pointer string) bool { return d.pointers[pointer] }

// Violations returns the violations in the order of the document. If there are too many, the last
// one has the rule max and counts the rest.
func (d *Document) Violations() errs.Violations {
	all := slices.Clone(d.violations)
	slices.SortStableFunc(all, func(a, b errs.Field) int { return a.Line - b.Line })
	if d.more > 0 {
		last := 1
		if n := len(all); n > 0 {
			last = all[n-1].Line
		}
		all.Add(errs.InvalidRequest, "", "max", "there are %d more errors like these", d.more)
		all[len(all)-1].Line = last // keeps its position if the list is sorted again
	}
	return all
}

// Line returns the 1-based line of the value with the JSON pointer; a member has the line of its
// name. A missing value has the line of the nearest value around it.
func (d *Document) Line(pointer string) int {
	if d.Root == nil {
		return 1
	}
	n, line := d.Root, d.Root.Line
	for token := range jsontext.Pointer(pointer).Tokens() {
		m := n.Member(token)
		if i, err := strconv.Atoi(token); n.Kind == Array && err == nil && i >= 0 && i < len(n.Members) {
			m = &n.Members[i]
		}
		if m == nil {
			break
		}
		n, line = &m.Value, m.Line
	}
	return line
}

// fail discards the violations so far and records the one that makes the document malformed.
func (d *Document) fail(line int, code errs.Code, pointer, rule, format string, args ...any) {
	d.Root, d.violations, d.bytes, d.more = nil, nil, 0, 0
	d.Report(line, code, pointer, rule, format, args...)
}

// below runs check with the path extended by one step.
func (d *Document) below(s step, check func()) {
	d.path = append(d.path, s)
	check()
	d.path = d.path[:len(d.path)-1]
}

// lineAt returns the 1-based line of an offset.
func lineAt(data []byte, offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }

// isSingleLine reports whether the document has one line.
func isSingleLine(data []byte) bool {
	return bytes.IndexByte(bytes.TrimRight(data, " \t\r\n"), '\n') < 0
}
