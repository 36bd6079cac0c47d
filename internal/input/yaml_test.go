package input_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
)

func TestParseYAMLRejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		doc     string
		line    int
		pointer string
		rule    string
		says    string
	}{
		"a second document":               {"a: 1\n---\nb: 2\n", 2, "", "trailing_data", "second YAML document"},
		"an anchor":                       {"a: 1\nb: &x 2\n", 2, "/b", "anchor", "&x"},
		"an alias":                        {"a: 1\nb: *x\n", 2, "", "alias", "*x"},
		"a merge key":                     {"a:\n  <<: {b: 1}\n", 2, "/a/<<", "merge", "merge key"},
		"a tag":                           {"a: !!str 1\n", 1, "/a", "tag", "!!str"},
		"a local tag":                     {"a: !thing 1\n", 1, "/a", "tag", "!thing"},
		"a repeated key":                  {"a: 1\nb: 2\na: 3\n", 3, "/a", "duplicate_key", "given twice, first on line 1"},
		"a key that is a list":            {"? [a]\n: 1\n", 1, "", "key", "plain words"},
		"a NUL in a string":               {"a: \"x\\0y\"\n", 1, "/a", "printable", "U+0000"},
		"a NUL in a key":                  {"\"x\\0y\": 1\n", 1, "/x\x00y", "printable", "U+0000"},
		"a raw NUL":                       {"a: 1\nb: \x00\n", 2, "", "printable", "U+0000"},
		"an escape character":             {"a: 1\nb: \x1b[0m\n", 2, "", "printable", "U+001B"},
		"invalid UTF-8":                   {"a: 1\nb: \xff\n", 2, "", "utf8", "UTF-8"},
		"a tab for indentation":           {"a:\n\tb: 1\n", 2, "", "syntax", "tab"},
		"an unclosed bracket":             {"a: 1\nb: [1, 2\n", 2, "", "syntax", "not valid YAML"},
		"nesting that is too deep":        {strings.Repeat("[", 80) + strings.Repeat("]", 80), 1, strings.Repeat("/0", 65), "depth", "64"},
		"a wrong indentation":             {"agents:\n  - a: 1\n    b: 2\n  - a: 1\n   b: 2\n  - a: 1\n", 5, "", "syntax", "in the value that begins on line 2; check its indentation"},
		"a second document's indentation": {"a: 1\n---\nb:\n  - c: 1\n   d: 2\nf: 1\n", 4, "", "syntax", "value that begins on line 4"},
		"a second document's error":       {"a: 1\n---\n[\n", 3, "", "syntax", "not valid YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			violations := input.Parse([]byte(c.doc), input.YAML).Violations()
			require.Len(t, violations, 1)
			p := violations[0]
			require.Equal(t, errs.MalformedYAML, p.Code)
			require.Equal(t, c.rule, p.Rule, p.Detail)
			require.Equal(t, c.pointer, p.Pointer)
			require.Contains(t, p.Detail, c.says)
			require.Equal(t, c.line, p.Line, p.Detail)
		})
	}
}

func TestParseYAML(t *testing.T) {
	t.Parallel()

	t.Run("every problem of a document is listed in its order", func(t *testing.T) {
		t.Parallel()
		d := input.Parse([]byte("a: &x 1\nb: *x\na: 2\nc/d: !!int 3\n"), input.YAML)
		var rules, pointers []string
		for _, p := range d.Violations() {
			rules, pointers = append(rules, p.Rule), append(pointers, p.Pointer)
		}
		require.Equal(t, []string{"anchor", "alias", "duplicate_key", "tag"}, rules)
		require.Equal(t, []string{"/a", "/b", "/a", "/c~1d"}, pointers)
	})

	t.Run("an alias bomb costs nothing", func(t *testing.T) {
		t.Parallel()
		doc := "a: &a [x,x,x,x,x,x,x,x]\n"
		for c := 'b'; c <= 'z'; c++ {
			prev := "*" + string(c-1)
			doc += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat(prev+",", 9), ",") + "]\n"
		}
		require.NotEmpty(t, input.Parse([]byte(doc), input.YAML).Violations())
	})

	t.Run("an empty document has no node", func(t *testing.T) {
		t.Parallel()
		for _, doc := range []string{"", "\n", "# only a comment\n"} {
			d := input.Parse([]byte(doc), input.YAML)
			require.Nil(t, d.Root)
			require.Empty(t, d.Violations())
		}
	})

	t.Run("plain words keep what was written", func(t *testing.T) {
		t.Parallel()
		d := input.Parse([]byte("---\na: no\nb: 2024-01-01\n...\n"), input.YAML)
		require.Empty(t, d.Violations())
		require.Equal(t, input.Object, d.Root.Kind)
		require.Equal(t, "no", d.Root.Member("a").Value.Text)
		require.Equal(t, "2024-01-01", d.Root.Member("b").Value.Text)
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range []string{"a: 1", "- {a: [b]}", "a: |\n  x\n", "? a\n: b", "&a [*a]", "%YAML 1.1\n---\n", "a: 'b", "\ufeffa: 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range input.Parse(data, input.YAML).Violations() {
			require.Positive(t, p.Line)
			require.NotEmpty(t, p.Rule)
			require.NotEmpty(t, p.Detail)
		}
	})
}
