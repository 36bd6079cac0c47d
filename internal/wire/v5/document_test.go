package v5_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	v5 "comet/internal/wire/v5"
)

// example is a message, or DATA, of the document, and the expected result of parsing it.
type example struct{ name, kind, sent, want string }

// examples reads the document's examples: a file x/line, x/data or x/v4 and then x/want.
func examples(tb testing.TB) []example {
	tb.Helper()
	archive, err := txtar.ParseFile("testdata/document.txtar")
	require.NoError(tb, err)
	require.Zero(tb, len(archive.Files)%2)
	all := make([]example, 0, len(archive.Files)/2)
	for i := 0; i < len(archive.Files); i += 2 {
		name, kind, _ := strings.Cut(archive.Files[i].Name, "/")
		require.Equal(tb, name+"/want", archive.Files[i+1].Name)
		all = append(all, example{
			name: name, kind: kind,
			sent: strings.TrimSuffix(string(archive.Files[i].Data), "\n"),
			want: withoutNotes(string(archive.Files[i+1].Data)),
		})
	}
	return all
}

func withoutNotes(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "note: ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// TestDocumentExamples: every message of the document is parsed and written as the same message,
// or rejected with the checks that it fails.
func TestDocumentExamples(t *testing.T) {
	t.Parallel()
	all := examples(t)
	lines := 0
	for _, x := range all {
		if x.kind != "data" {
			lines++
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			switch x.kind {
			case "data":
				require.Equal(t, x.want, describeData(v5.Data(x.sent)))
			case "line":
				m, err := v5.Parse(x.sent)
				require.Equal(t, x.want, describe(m, err))
				if err != nil || m.Warnings != 0 {
					return
				}
				written, err := m.Format()
				require.NoError(t, err)
				require.Equal(t, x.sent, written)
			case "v4":
				_, err := v5.Parse(x.sent)
				require.Equal(t, x.want, describe(v5.Message{}, err))
			default:
				require.Fail(t, "a file is line, data or v4", x.kind)
			}
		})
	}
	require.Equal(t, 43, lines, "the number of messages in the document")
}

// describe writes a parsed message, or the checks that it fails.
func describe(m v5.Message, err error) string {
	var b strings.Builder
	var invalid *v5.Error
	if errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Fprintf(&b, "%s: %s\n", p.Code, p.Detail)
		}
		return b.String()
	}
	code := string(m.Err)
	if code == "" {
		code = "-"
	}
	context := m.Context
	if context == "" {
		context = "-"
	}
	fmt.Fprintf(&b, "message %d, from %s to %s, type %s, task %s, priority %s, state %s, code %s, depth %d, session %s, budget %s\n",
		m.Number, m.From, m.To, m.Type, m.Task, m.Priority, m.State, code, m.Depth, context, m.Budget)
	b.WriteString(describeData(m.Data))
	if m.Warnings != 0 {
		fmt.Fprintf(&b, "warnings %s\n", m.Warnings)
	}
	return b.String()
}

func describeData(d v5.Data) string {
	var b strings.Builder
	for p := range d.Pairs() {
		if p.Flag {
			fmt.Fprintf(&b, "flag %s\n", p.Key)
			continue
		}
		fmt.Fprintf(&b, "%s = %s\n", p.Key, p.Value())
		if r, err := v5.ParseRef(p.Value()); err == nil {
			fmt.Fprintf(&b, "  refers to %+v\n", r)
		}
	}
	for name, value := range d.Params() {
		fmt.Fprintf(&b, "parameter %s = %s\n", name, value)
	}
	return b.String()
}
