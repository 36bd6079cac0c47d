package roster

import (
	"bytes"
	"errors"
	"sort"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"comet/internal/errs"
	"comet/internal/strictjson"
	"comet/internal/strictyaml"
	"comet/internal/words"
)

// readYAML turns a YAML document into a tree; nil when there is nothing to judge.
func (r *reader) readYAML(data []byte) *node {
	root, problems := strictyaml.Parse(data)
	for _, p := range problems {
		detail := p.Detail
		if p.Pointer != "" {
			detail = words.Field(p.Pointer) + ": " + detail
		}
		r.at(p.Line, errs.MalformedYAML, p.Pointer, p.Rule, "%s", detail)
	}
	if root == nil {
		if len(problems) == 0 {
			r.at(1, errs.MalformedYAML, "", "required", "the document is empty")
		}
		return nil
	}
	return fromYAML(root)
}

func fromYAML(n *yaml.Node) *node {
	out := &node{kind: unknown, line: n.Line}
	switch n.Kind {
	case yaml.MappingNode:
		out.kind = object
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || len(key.Value) > words.MaxName || key.ShortTag() == "!!merge" || seen[key.Value] {
				continue // reported
			}
			seen[key.Value] = true
			out.members = append(out.members, member{key.Value, key.Line, fromYAML(n.Content[i+1])})
		}
	case yaml.SequenceNode:
		out.kind = list
		for _, item := range n.Content {
			out.items = append(out.items, fromYAML(item))
		}
	case yaml.ScalarNode:
		out.kind, out.text = scalarKind(n), n.Value
	}
	return out
}

// scalarKind is what a scalar is to us. A plain date is text: YAML's own types
// beyond those of JSON do not exist here.
func scalarKind(n *yaml.Node) kind {
	if n.Style&yaml.TaggedStyle != 0 {
		return unknown
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return number
	case "!!bool":
		return boolean
	case "!!null":
		return null
	default:
		return text
	}
}

// readJSON turns a JSON document into a tree; nil when there is nothing to judge.
func (r *reader) readJSON(data []byte) *node {
	b := &jsonBuilder{
		r:   r,
		dec: jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true)),
	}
	for i, c := range data {
		if c == '\n' {
			b.ends = append(b.ends, i)
		}
	}
	root, err := b.value()
	if err == nil {
		_, err = b.dec.ReadToken()
		if err == nil {
			err = errors.New("trailing data")
		} else if isEnd(err) {
			return root
		}
	}
	// The duplicates noted so far come after what makes it no JSON at all.
	r.reset()
	r.malformedJSON(data, err)
	return nil
}

// malformedJSON words the failure as every JSON API does.
func (r *reader) malformedJSON(data []byte, cause error) {
	var v any
	var e *errs.Error
	if errors.As(strictjson.Decode(data, &v), &e) && len(e.Fields) > 0 {
		for _, f := range e.Fields {
			r.at(max(f.Line, 1), e.Code, f.Pointer, f.Rule, "%s", f.Detail)
		}
		return
	}
	r.at(1, errs.MalformedJSON, "", "syntax", "the document is not valid JSON: %v", cause)
}

type jsonBuilder struct {
	r    *reader
	dec  *jsontext.Decoder
	ends []int // offsets of the line feeds
}

func (b *jsonBuilder) line() int {
	return sort.SearchInts(b.ends, int(b.dec.InputOffset())) + 1
}

func (b *jsonBuilder) value() (*node, error) {
	token, err := b.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	if b.dec.StackDepth() > strictjson.MaxDepth {
		return nil, errors.New("nested too deep")
	}
	n := &node{line: b.line()}
	switch token.Kind() {
	case '{':
		n.kind = object
		return n, b.members(n)
	case '[':
		n.kind = list
		for b.dec.PeekKind() != ']' {
			item, err := b.value()
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err := b.dec.ReadToken()
		return n, err
	case '"':
		n.kind = text
	case '0':
		n.kind = number
	case 'n':
		n.kind = null
	default:
		n.kind = boolean
	}
	n.text = strings.Clone(token.String())
	if n.kind == text && strings.ContainsRune(n.text, 0) {
		b.report(n.line, errs.InvalidRequest, "printable", func(place string) string {
			return place + " must not contain the NUL character (\\u0000)"
		})
		n.kind = unknown
	}
	return n, nil
}

// report records a rule broken by the value or name that was read last. Only here
// is its pointer made: it is as long as all the names above it.
func (b *jsonBuilder) report(line int, code errs.Code, rule string, detail func(place string) string) {
	if b.r.full() {
		b.r.more++
		return
	}
	pointer := words.Pointer(string(b.dec.StackPointer()))
	b.r.at(line, code, pointer, rule, "%s", detail(words.Field(pointer)))
}

func (b *jsonBuilder) members(n *node) error {
	lines := map[string]int{}
	for b.dec.PeekKind() != '}' {
		token, err := b.dec.ReadToken()
		if err != nil {
			return err
		}
		m := member{name: strings.Clone(token.String()), line: b.line()}
		if len(m.name) > words.MaxName {
			b.report(m.line, errs.InvalidRequest, "max", func(place string) string {
				return place + " has a name longer than " + strconv.Itoa(words.MaxName) + " bytes"
			})
			if err := b.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		m.value, err = b.value()
		if err != nil {
			return err
		}
		if first, repeated := lines[m.name]; repeated {
			b.report(m.line, errs.MalformedJSON, "duplicate_key", func(place string) string {
				return place + ": " + words.Quote(m.name) + " is already given on line " + strconv.Itoa(first)
			})
			continue
		}
		lines[m.name] = m.line
		n.members = append(n.members, m)
	}
	_, err := b.dec.ReadToken()
	return err
}
