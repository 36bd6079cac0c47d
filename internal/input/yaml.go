package input

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"comet/internal/errs"
)

// parseYAML parses a YAML document. It accepts one document without anchors, aliases, merge keys,
// tags and repeated keys. Root is nil without a violation for an empty document.
func (d *Document) parseYAML(data []byte) {
	if !d.checkBytes(data) {
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return
	}
	if err != nil {
		d.failYAML(err, data)
		return
	}
	root := Node{Line: doc.Content[0].Line}
	d.readYAML(doc.Content[0], &root)
	d.Root = &root
	switch err := dec.Decode(&second); {
	case err == nil:
		d.Report(second.Line, errs.MalformedYAML, "", "trailing_data", "there is a second YAML document here; only one is allowed")
	case !errors.Is(err, io.EOF):
		d.failYAML(err, data)
	}
}

// checkBytes rejects the characters that the library would reject without a line.
func (d *Document) checkBytes(data []byte) bool {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.fail(lineAt(data, i), errs.MalformedYAML, "", "utf8", "the document is not valid UTF-8 here")
			return false
		case r < ' ' && r != '\t' && r != '\r' && r != '\n', r == 0x7f:
			d.fail(lineAt(data, i), errs.MalformedYAML, "", "printable", "the control character U+%04X is not allowed", r)
			return false
		}
		i += size
	}
	return true
}

// maxMessage is the maximum length of the library's message, in characters. It may repeat the
// document.
const maxMessage = 200

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): (?s)(.*)$`)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	yamlParser = regexp.MustCompile(`^did not find expected (key|node|'-'|','|<)`)
	tabIndent  = regexp.MustCompile(`^ *\t`)
)

// failYAML records an error of the library. The library's line is the one on which an unfinished
// value begins; its parser counts from 0. An unknown alias has no line.
func (d *Document) failYAML(err error, data []byte) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = m[2]
		if yamlParser.MatchString(message) {
			line++
			message += fmt.Sprintf(" in the value that begins on line %d; check its indentation and brackets", line)
		}
	}
	if m := yamlAnchor.FindStringSubmatch(message); m != nil {
		line = lineAt(data, max(0, bytes.Index(data, []byte("*"+m[1]))))
		d.fail(line, errs.MalformedYAML, "", "alias", "the alias *%s is not allowed; write the value out", Clip(m[1]))
		return
	}
	lines := bytes.SplitAfter(bytes.TrimRight(data, " \t\r\n"), []byte("\n"))
	if len(data) <= maxSearched {
		line = max(line, firstFailure(lines, err))
	}
	line = min(line, len(lines))
	if tabIndent.Match(lines[line-1]) {
		message = "a tab is used to indent; YAML allows only spaces there"
	}
	d.fail(line, errs.MalformedYAML, "", "syntax", "the document is not valid YAML: %s", ClipTo(message, maxMessage))
}

// maxSearched is the maximum size in bytes of a document that firstFailure searches. It parses the
// document about 20 times.
const maxSearched = 512 << 10

// firstFailure returns the number of the line that causes failure: the last line of the shortest
// beginning of a document that fails with the same error. It returns 0 for a second document.
func firstFailure(lines [][]byte, failure error) int {
	n := sort.Search(len(lines), func(i int) bool {
		err := yaml.Unmarshal(bytes.Join(lines[:i+1], nil), new(yaml.Node))
		return err != nil && err.Error() == failure.Error()
	})
	return (n + 1) % (len(lines) + 1)
}

// readYAML converts a node of the library. out is Invalid after a violation.
func (d *Document) readYAML(n *yaml.Node, out *Node) {
	out.Line = n.Line
	if len(d.path) > MaxDepth {
		d.report(n.Line, errs.MalformedYAML, "depth", "is nested deeper than %d levels", MaxDepth)
		return
	}
	valid := d.checkYAML(n)
	switch n.Kind {
	case yaml.SequenceNode:
		out.Kind, out.Members = Array, make([]Member, len(n.Content))
		for i, item := range n.Content {
			out.Members[i].Line = item.Line
			d.below(step{index: i}, func() { d.readYAML(item, &out.Members[i].Value) })
		}
	case yaml.MappingNode:
		out.Kind = Object
		d.readMapping(n, out)
	case yaml.ScalarNode:
		if valid {
			out.Kind, out.Text = scalarKind(n), n.Value
		}
	}
}

// checkYAML checks a node without its children.
func (d *Document) checkYAML(n *yaml.Node) bool {
	before := len(d.violations) + d.more
	if n.Anchor != "" {
		d.report(n.Line, errs.MalformedYAML, "anchor", "must not have an anchor (&%s); write the value out", Clip(n.Anchor))
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.report(n.Line, errs.MalformedYAML, "tag", "must not have a tag (%s)", Clip(n.Tag))
	}
	switch {
	case n.Kind == yaml.AliasNode:
		d.report(n.Line, errs.MalformedYAML, "alias", "must not be an alias (*%s); write the value out", Clip(n.Value))
	case n.Kind == yaml.ScalarNode && strings.ContainsRune(n.Value, 0):
		d.report(n.Line, errs.MalformedYAML, "printable", "must not contain the NUL character (U+0000)")
	}
	return len(d.violations)+d.more == before
}

// scalarKind returns the kind of a scalar. YAML's types beyond those of JSON are strings.
func scalarKind(n *yaml.Node) Kind {
	switch n.ShortTag() {
	case "!!int", "!!float":
		return Number
	case "!!bool":
		return Boolean
	case "!!null":
		return Null
	}
	return String
}

func (d *Document) readMapping(n *yaml.Node, out *Node) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode && key.ShortTag() != "!!merge" {
			d.report(key.Line, errs.MalformedYAML, "key", "must have plain words as keys")
			continue
		}
		d.below(step{key.Value, -1}, func() { d.readMember(key, value, out, lines) })
	}
}

// readMember reads one member of a mapping. lines has the lines of the keys before it.
func (d *Document) readMember(key, value *yaml.Node, out *Node, lines map[string]int) {
	switch {
	case key.ShortTag() == "!!merge":
		d.report(key.Line, errs.MalformedYAML, "merge", "is a merge key, which is not allowed; write the members out")
		return
	case len(key.Value) > MaxName:
		d.report(key.Line, errs.MalformedYAML, "max", "has a name longer than %d bytes", MaxName)
		return
	}
	d.checkYAML(key)
	if first, repeated := lines[key.Value]; repeated {
		d.report(key.Line, errs.MalformedYAML, "duplicate_key", "is given twice, first on line %d", first)
		return
	}
	lines[key.Value] = key.Line
	out.Members = append(out.Members, Member{Name: key.Value, Line: key.Line})
	d.readYAML(value, &out.Members[len(out.Members)-1].Value)
}
