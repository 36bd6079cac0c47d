package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The output formats.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func formats() []string { return []string{formatTable, formatJSON, formatYAML} }

func addOutputFlag(fs *pflag.FlagSet, into *string) {
	fs.StringVarP(into, "output", "o", "", "output `format`: table, json or yaml (COMET_OUTPUT; default table)")
}

// output prints results: a table for people, or what the server answered as JSON
// or YAML for programs.
type output struct {
	w         io.Writer
	format    string
	noHeaders bool
}

func newOutput(w io.Writer, format string, noHeaders bool) (output, error) {
	if format == "" {
		format = formatTable
	}
	if !slices.Contains(formats(), format) {
		return output{}, usagef("the output format must be table, json or yaml, not %q", format)
	}
	return output{w: w, format: format, noHeaders: noHeaders}, nil
}

// show prints body, a JSON document, in the chosen format; table prints it for
// people.
func (o output) show(body []byte, table func() error) error {
	switch o.format {
	case formatJSON:
		text := jsontext.Value(slices.Clone(body))
		if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("the server's answer is not JSON: %w", err)
		}
		_, err := fmt.Fprintf(o.w, "%s\n", bytes.TrimRight(text, "\n"))
		return err
	case formatYAML:
		return o.yaml(body)
	}
	return table()
}

// fields prints one thing, a name and a value a line. Empty values are left out.
func (o output) fields(pairs ...string) error {
	w := tabwriter.NewWriter(o.w, 0, 0, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s:\t%s\n", pairs[i], printable(pairs[i+1])); err != nil {
			return err
		}
	}
	return w.Flush()
}

// yaml prints a JSON document as YAML, members in the same order.
func (o output) yaml(body []byte) error {
	node, err := yamlNode(jsontext.NewDecoder(bytes.NewReader(body)))
	if err != nil {
		return fmt.Errorf("the server's answer is not JSON: %w", err)
	}
	enc := yaml.NewEncoder(o.w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(node), enc.Close())
}

func yamlNode(dec *jsontext.Decoder) (*yaml.Node, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		return yamlCollection(dec, yaml.MappingNode, '}')
	case '[':
		return yamlCollection(dec, yaml.SequenceNode, ']')
	case '"':
		// Encode quotes what any version of YAML takes for something else.
		n := &yaml.Node{}
		return n, n.Encode(token.String())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
}

func yamlCollection(dec *jsontext.Decoder, kind yaml.Kind, end jsontext.Kind) (*yaml.Node, error) {
	n := &yaml.Node{Kind: kind}
	for dec.PeekKind() != end {
		item, err := yamlNode(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	_, err := dec.ReadToken()
	return n, err
}

// printable keeps text from elsewhere from doing anything to a terminal but
// being shown: line breaks become spaces, other controls their escapes.
func printable(s string) string {
	if !strings.ContainsFunc(s, moves) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case moves(r):
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// moves reports whether a terminal does something else with r than show it.
func moves(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// optional writes a value that may be missing.
func optional[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}
