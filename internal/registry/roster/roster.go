// Package roster is the codec of a roster: a document that lists agents, to be
// imported or exported as a whole. A person writes it by hand, so a mistake is
// answered with its line, and all mistakes of the document at once. YAML and
// JSON are read into one tree and judged by one set of rules. It does no I/O and
// knows nothing of the registry's tree; those rules are registry's.
package roster

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/models"
)

// Version is the version of the document's format.
const Version = 1

// Limits on a document.
const (
	// MaxAgents is how many agents one document may list.
	MaxAgents = 10_000
	// MaxParts is how many lines (YAML) and entries a document may have. It is
	// far more than MaxAgents need, and keeps what a document costs to read near
	// what it says.
	MaxParts = 300_000
	// MaxViolations is how many broken rules are listed, with the last one that
	// counts the rest, as many as fit a response.
	MaxViolations = errs.MaxFields - 1
)

// Format is how a document is written.
type Format string

// The formats.
const (
	YAML Format = "yaml"
	JSON Format = "json"
)

// Document is a roster.
type Document struct {
	Version int
	Agents  []Entry

	root *node
}

// Entry is one agent of a roster. Its members are those of a create request,
// and is_active.
type Entry struct {
	models.AgentDraft
	// IsActive is nil where it was not given, which means true.
	IsActive *bool `json:"is_active"`
}

// Active reports whether the entry describes an active agent.
func (e Entry) Active() bool { return e.IsActive == nil || *e.IsActive }

// Parse reads a document and lists every broken rule that can be told from the
// document alone, in its order and with lines: its syntax, unknown, repeated,
// missing and mistyped members, the field rules of models.AgentDraft and ids
// given twice. The document is never nil; what could not be read of it is left
// out, so rules that look further must skip members the violations point at. Of
// more violations than MaxViolations, or than fit a response, the last
// one counts the rest, and all entries are empty.
// The codes are errs.MalformedYAML, MalformedJSON and InvalidRequest.
func Parse(data []byte, format Format) (*Document, errs.Violations) {
	r := &reader{doc: &Document{}}
	switch {
	case tooManyParts(data, format):
		r.at(1, errs.InvalidRequest, "", "max", "the document has more than %d lines and entries; import it in parts", MaxParts)
	case format == JSON:
		r.doc.root = r.readJSON(data)
	default:
		r.doc.root = r.readYAML(data)
	}
	if r.doc.root != nil {
		r.document(r.doc.root)
	}
	return r.doc, r.finish()
}

// tooManyParts counts what separates values; commas in text count too.
func tooManyParts(data []byte, format Format) bool {
	parts := bytes.Count(data, []byte(","))
	if format != JSON {
		parts += bytes.Count(data, []byte("\n"))
	}
	return parts > MaxParts
}

// Line returns the 1-based line on which the value of a JSON pointer stands:
// that of its name in an object. A value that is not there is placed at the
// nearest one around it.
func (d *Document) Line(pointer string) int {
	n, line := d.root, 1
	if n == nil {
		return line
	}
	line = n.line
	for token := range jsontext.Pointer(pointer).Tokens() {
		m, ok := n.member(token)
		if !ok {
			break
		}
		n, line = m.value, m.line
	}
	return line
}

// kind is what a value of a document is, whichever format it is written in.
type kind uint8

const (
	object kind = iota
	list
	text
	number
	boolean
	null
	unknown // reported already, not to be judged again
)

// String is how a sentence calls the kind.
func (k kind) String() string {
	return [...]string{"an object", "a list", "a string", "a number", "true or false", "null", "an unknown value"}[k]
}

// node is one value of a document.
type node struct {
	kind    kind
	text    string // of scalars, as written where it is not a string
	line    int
	members []member
	items   []*node
}

type member struct {
	name  string
	line  int
	value *node
}

// member returns the member of an object or the item of a list that a token of
// a JSON pointer selects.
func (n *node) member(token string) (member, bool) {
	if n.kind == list {
		i, err := strconv.Atoi(token)
		if err != nil || i < 0 || i >= len(n.items) {
			return member{}, false
		}
		return member{line: n.items[i].line, value: n.items[i]}, true
	}
	for _, m := range n.members {
		if m.name == token {
			return m, true
		}
	}
	return member{}, false
}
