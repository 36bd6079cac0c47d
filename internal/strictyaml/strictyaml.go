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

	"comet/internal/words"
)

// MaxDepth is how deep collections may be nested.
const MaxDepth = 32

// MaxProblems is how many problems are listed before the rest are only counted.
const MaxProblems = 500

// Problem is one thing a document may not contain.
type Problem struct {
	// Line is 1-based.
	Line int
	// Pointer is an RFC 6901 pointer to the value, "" for the document.
	Pointer string
	// Rule is a short stable word: utf8, printable, syntax, trailing_data, alias,
	// anchor, merge, tag, duplicate_key, key, depth or max (a key longer than
	// words.MaxName, or the count of problems that are not listed).
	Rule string
	// Detail is one sentence.
	Detail string
}

// Parse returns the node of the document's value, nil for an empty document. A
// document that is not YAML at all has one problem and no node; otherwise every
// problem is listed in the order of the document, up to MaxProblems. Alias nodes
// are left in the tree, unresolved: they have been reported. Below a key that is
// too long nothing is looked at.
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
	w.walk(root)
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		w.add(second.Line, "trailing_data", "there is a second YAML document here; only one is allowed")
	case !errors.Is(err, io.EOF):
		return nil, []Problem{syntaxProblem(err, data)}
	}
	return root, w.list()
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

// maxMessage is how much of the library's message is shown, in characters. It may
// repeat the document.
const maxMessage = 200

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
		return Problem{line, "", "alias", fmt.Sprintf("the alias *%s is not allowed; write the value out", words.Clip(m[1]))}
	}
	line = min(line, 1+bytes.Count(bytes.TrimRight(data, " \t\r\n"), []byte("\n"))) // not behind the text
	if n := tabIndent(data, line); n > 0 {
		return Problem{n, "", "syntax", "a tab is used to indent; YAML allows only spaces there"}
	}
	return Problem{line, "", "syntax", "the document is not YAML: " + words.ClipTo(message, maxMessage)}
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

// walker collects the problems of a tree.
type walker struct {
	path     []string // the keys and indices that lead to the node
	problems []Problem
	more     int // beyond MaxProblems
}

// add records a problem of the node that path leads to. Only here is its pointer
// made: it is as long as all the keys above the node.
func (w *walker) add(line int, rule, format string, args ...any) {
	if len(w.problems) == MaxProblems {
		w.more++
		return
	}
	var pointer strings.Builder
	for _, token := range w.path {
		pointer.WriteString("/" + words.Escape(token))
	}
	w.problems = append(w.problems, Problem{line, words.Pointer(pointer.String()), rule, fmt.Sprintf(format, args...)})
}

func (w *walker) list() []Problem {
	if w.more > 0 {
		last := w.problems[MaxProblems-1].Line
		return append(w.problems, Problem{last, "", "max", fmt.Sprintf("there are %d more problems like these", w.more)})
	}
	return w.problems
}

// below runs walk for the node that token leads to.
func (w *walker) below(token string, walk func()) {
	w.path = append(w.path, token)
	walk()
	w.path = w.path[:len(w.path)-1]
}

func (w *walker) walk(n *yaml.Node) {
	if len(w.path) > MaxDepth {
		w.add(n.Line, "depth", "values are nested more than %d deep", MaxDepth)
		return
	}
	w.scan(n)
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			w.below(strconv.Itoa(i), func() { w.walk(item) })
		}
	case yaml.MappingNode:
		w.walkMapping(n)
	}
}

// scan judges a node by itself.
func (w *walker) scan(n *yaml.Node) {
	if n.Anchor != "" {
		w.add(n.Line, "anchor", "the anchor &%s is not allowed; write the value out", words.Clip(n.Anchor))
	}
	if n.Style&yaml.TaggedStyle != 0 {
		w.add(n.Line, "tag", "the tag %s is not allowed", words.Clip(n.Tag))
	}
	switch {
	case n.Kind == yaml.AliasNode:
		w.add(n.Line, "alias", "the alias *%s is not allowed; write the value out", words.Clip(n.Value))
	case n.Kind == yaml.ScalarNode && strings.ContainsRune(n.Value, 0):
		w.add(n.Line, "printable", "the character U+0000 is not allowed")
	}
}

func (w *walker) walkMapping(n *yaml.Node) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode && key.ShortTag() != "!!merge" {
			w.add(key.Line, "key", "a key must be a plain word")
			continue
		}
		w.below(key.Value, func() { w.member(key, value, lines) })
	}
}

// member judges one member of a mapping; lines are those of the keys before it.
func (w *walker) member(key, value *yaml.Node, lines map[string]int) {
	switch {
	case key.ShortTag() == "!!merge":
		w.add(key.Line, "merge", "the merge key << is not allowed; write the members out")
		return
	case len(key.Value) > words.MaxName:
		w.add(key.Line, "max", "a key must not be longer than %d bytes", words.MaxName)
		return
	}
	w.scan(key)
	if first, repeated := lines[key.Value]; repeated {
		w.add(key.Line, "duplicate_key", "%s is already given on line %d", words.Quote(key.Value), first)
		return
	}
	lines[key.Value] = key.Line
	w.walk(value)
}
