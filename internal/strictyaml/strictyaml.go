// Package strictyaml parses the part of YAML in which a document means what a
// person sees: one document, no anchors, aliases, merge keys or tags, no
// repeated keys. It hands out the library's nodes, never decoded values, so
// that nothing is turned into a date or a boolean behind the reader's back.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxDepth is how deep collections may be nested.
const MaxDepth = 32

// Problem is one thing a document may not contain.
type Problem struct {
	// Line is 1-based.
	Line int
	// Pointer is an RFC 6901 pointer to the value, "" for the document.
	Pointer string
	// Rule is a short stable word: utf8, printable, syntax, trailing_data, alias,
	// anchor, merge, tag, duplicate_key, key or depth.
	Rule string
	// Detail is one sentence.
	Detail string
}

// Parse returns the node of the document's value, nil for an empty document. A
// document that is not YAML at all has one problem and no node; otherwise every
// problem is listed in the order of the document. Alias nodes are left in the
// tree, unresolved: they have been reported.
func Parse(data []byte) (*yaml.Node, []Problem) {
	if p, ok := checkBytes(data); !ok {
		return nil, []Problem{p}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, []Problem{syntaxProblem(err, data)}
	}
	var w walker
	root := doc.Content[0]
	w.walk(root, "", 0)
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		w.add(second.Line, "", "trailing_data", "there is a second YAML document here; only one is allowed")
	case !errors.Is(err, io.EOF):
		return nil, []Problem{syntaxProblem(err, data)}
	}
	return root, w.problems
}

// Escape returns the token of a JSON pointer that stands for a key.
func Escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// checkBytes refuses what the library would report without a line.
func checkBytes(data []byte) (Problem, bool) {
	line := 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return Problem{line, "", "utf8", "the document is not valid UTF-8 here"}, false
		case r == '\n':
			line++
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f:
			return Problem{line, "", "printable", fmt.Sprintf("the control character U+%04X is not allowed", r)}, false
		}
		i += size
	}
	return Problem{}, true
}

// syntaxProblem reads the line out of the library's message. Its parser counts
// from 0 where its scanner counts from 1, and names the line on which the
// collection begins that it could not finish; an unknown alias has no line.
func syntaxProblem(err error, data []byte) Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := regexp.MustCompile(`^line (\d+): (?s)(.*)$`).FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = m[2]
		if fromParser(message) {
			line++
			if !strings.HasSuffix(message, "content") && !strings.HasSuffix(message, "start>") {
				message += ", in what begins on this line"
			}
		}
	}
	if m := regexp.MustCompile(`^unknown anchor '(.*)' referenced$`).FindStringSubmatch(message); m != nil {
		line = 1 + bytes.Count(data[:max(0, bytes.Index(data, []byte("*"+m[1])))], []byte("\n"))
		return Problem{line, "", "alias", fmt.Sprintf("the alias *%s is not allowed; write the value out", m[1])}
	}
	line = min(line, 1+bytes.Count(bytes.TrimRight(data, " \t\r\n"), []byte("\n"))) // not behind the text
	if n := tabIndent(data, line); n > 0 {
		return Problem{n, "", "syntax", "a tab is used to indent; YAML allows only spaces there"}
	}
	return Problem{line, "", "syntax", "the document is not YAML: " + message}
}

// fromParser reports whether the library's parser, not its scanner, wrote the
// message.
func fromParser(message string) bool {
	for _, m := range []string{
		"did not find expected <document start>", "did not find expected node content",
		"did not find expected '-' indicator", "did not find expected key",
		"did not find expected ',' or", "found undefined tag handle",
		"found incompatible YAML document", "found duplicate %",
	} {
		if strings.HasPrefix(message, m) {
			return true
		}
	}
	return false
}

// tabIndent returns the line of a tab in the indentation at or just around the
// line that could not be parsed, 0 if there is none.
func tabIndent(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	for _, n := range []int{line, line + 1, line - 1} {
		if n < 1 || n > len(lines) {
			continue
		}
		text := lines[n-1]
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if bytes.ContainsRune(indent, '\t') {
			return n
		}
	}
	return 0
}

type walker struct{ problems []Problem }

func (w *walker) add(line int, pointer, rule, format string, args ...any) {
	w.problems = append(w.problems, Problem{line, pointer, rule, fmt.Sprintf(format, args...)})
}

func (w *walker) walk(n *yaml.Node, pointer string, depth int) {
	if depth > MaxDepth {
		w.add(n.Line, pointer, "depth", "values are nested more than %d deep", MaxDepth)
		return
	}
	if n.Anchor != "" {
		w.add(n.Line, pointer, "anchor", "the anchor &%s is not allowed; write the value out", n.Anchor)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		w.add(n.Line, pointer, "tag", "the tag %s is not allowed", n.Tag)
	}
	switch n.Kind {
	case yaml.AliasNode:
		w.add(n.Line, pointer, "alias", "the alias *%s is not allowed; write the value out", n.Value)
	case yaml.ScalarNode:
		if strings.ContainsRune(n.Value, 0) {
			w.add(n.Line, pointer, "printable", "the character U+0000 is not allowed")
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			w.walk(item, pointer+"/"+strconv.Itoa(i), depth+1)
		}
	case yaml.MappingNode:
		w.walkMapping(n, pointer, depth)
	}
}

func (w *walker) walkMapping(n *yaml.Node, pointer string, depth int) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := pointer + "/" + Escape(key.Value)
		switch {
		case key.ShortTag() == "!!merge":
			w.add(key.Line, at, "merge", "the merge key << is not allowed; write the members out")
			continue
		case key.Kind != yaml.ScalarNode:
			w.add(key.Line, pointer, "key", "a key must be a plain word")
			continue
		}
		w.walk(key, at, depth)
		if first, repeated := lines[key.Value]; repeated {
			w.add(key.Line, at, "duplicate_key", "%q is already given on line %d", key.Value, first)
			continue
		}
		lines[key.Value] = key.Line
		w.walk(value, at, depth+1)
	}
}
