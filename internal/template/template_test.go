package template_test

import (
	"errors"
	"strings"
	"testing"
	texttemplate "text/template"

	"github.com/stretchr/testify/require"

	"comet/internal/template"
)

type inner struct{ Status string }

type page struct {
	inner
	Version string
	Checks  map[string]string
	Workers []inner
}

func funcs() map[string]any {
	return map[string]any{
		"join": func(list any, separator string) string {
			all, _ := list.([]any)
			words := make([]string, len(all))
			for i := range all {
				words[i], _ = all[i].(string)
			}
			return strings.Join(words, separator)
		},
		"double": func(n int64) int64 { return 2 * n },
		"none":   func(object map[string]any) bool { return object == nil },
		"broken": func() (string, error) { return "", errors.New("it is broken") },
	}
}

func object() map[string]any {
	return map[string]any{
		"id": "a&b", "n": int64(3), "zero": int64(0), "part": 0.5, "yes": true, "null": nil, "empty": []any{}, "TOKEN-ID": "t",
		"list": []any{"x", "y"}, "objects": []any{map[string]any{"id": "1"}, map[string]any{"id": "2", "last": true}},
		"deep": map[string]any{"er": map[string]any{"text": "found"}}, "checks": map[string]any{"b": "bad", "a": "ok"},
	}
}

// TestExecuteIsTextTemplate compares the output with that of text/template.
func TestExecuteIsTextTemplate(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "plain", "{{.id}} {{.n}} {{.part}} {{.yes}} {{.list}}", "{{.missing}} {{.missing.member}} {{.null}}", "{{.deep.er.text}}",
		"{{if .n}}n{{end}}{{if .zero}}z{{end}}{{if .empty}}e{{else}}none{{end}}{{if .yes}}y{{end}}{{if .missing}}m{{else if .list}}l{{end}}",
		"{{with .deep.er}}{{.text}} {{$.id}}{{end}}{{with .null}}null{{else}}absent{{end}}{{with $v := .n}}{{$v}}{{end}}",
		"{{range .list}}{{.}},{{end}}{{range .missing}}m{{else}}none{{end}}{{range .empty}}e{{else}}none{{end}}",
		"{{range $i, $o := .objects}}{{if $i}}, {{end}}{{$i}}={{$o.id}}{{if not $o.last}}…{{end}}{{end}}",
		"{{range $o := .objects}}{{$o.id}}{{end}}{{range $name, $v := .checks}}{{$name}}={{$v}} {{end}}{{range .checks}}{{.}}{{end}}",
		`{{$gap := ""}}{{range .list}}{{$gap}}{{.}}{{$gap = "; "}}{{end}}{{$gap}}`,
		`{{$v := 1}}{{if .id}}{{$v := 2}}{{$v}}{{end}}{{$v}}`,
		`{{or .missing "W1"}} {{or .id "W1"}} {{or .zero 0}} {{or (.missing) .null "c"}} {{and .id .zero}} {{and .id .n}} {{not .id}}`,
		`{{eq .n 3}} {{eq .id "a&b"}} {{ne .id "c"}} {{if or (eq .n 1) (eq .n 3)}}one{{end}} {{if and .id (ne .id "x")}}and{{end}}`,
		`{{index . "TOKEN-ID"}} {{slice .id 0 2}} {{html .id}} {{html "<'\">"}} {{html .n}}`,
		`{{join .list " | "}} {{double .n}} {{double 4}} {{none .missing}} {{none .deep}}`,
		"a\n  {{- if .id}}\n  b\n  {{- end}}\nc", "{{- \" \"}}x{{/* comment */}}", "{{`raw`}} {{(.id)}}",
		// errors of both
		"{{", "{{unknown .id}}", "{{.id.member}}", "{{range .id}}{{end}}{{range .part}}{{end}}", "{{broken}}", "{{double .id}}", "{{double .missing}}",
		"{{double}}", "{{slice .id 2 9}}", "{{.id 1}}", `{{template "x"}}`, "{{$x}}", "{{index .id 9}}",
	} {
		requireSame(t, text, object())
	}
	for _, text := range []string{
		"{{.Status}} {{html .Version}}{{range $name, $result := .Checks}}{{if ne $result `ok`}} {{$name}}: {{$result}}{{end}}{{end}}",
		"{{range .Workers}}{{.Status}}{{else}}none{{end}}", "{{.Missing}}",
	} {
		requireSame(t, text, page{inner{"ready"}, "v1", map[string]string{"z": "bad", "a": "late", "b": "ok"}, []inner{{"busy"}}})
		requireSame(t, text, page{})
	}
}

func requireSame(t *testing.T, text string, data any) {
	t.Helper()
	var want strings.Builder
	parsed, err := texttemplate.New("").Funcs(funcs()).Parse(text)
	if err == nil {
		err = parsed.Execute(&want, data)
	}
	got, gotErr := template.Execute(text, data, funcs())
	if err != nil {
		require.Error(t, gotErr, text)
		return
	}
	require.NoError(t, gotErr, text)
	require.Equal(t, want.String(), got, text)
}

func TestExecuteErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{{.id.member}}":        "template: .id.member: string has no member member",
		"{{double .part}}":      "template: double: argument 1 must be of type int64, not float64",
		"{{double 1 2}}":        "template: double: the function takes 1 arguments, not 2",
		"{{broken}}":            "template: broken: it is broken",
		"{{range .n}}{{end}}":   "template: {{range .n}}{{end}}: int64 is not a list or a map",
		"{{.list.x}}{{.id.y}}":  "template: .list.x: []interface {} has no member x",
		"{{break}}":             "template: template:1: {{break}} outside {{range}}",
		"{{double 1 | double}}": "template: double 1 | double: a pipeline must be a value or one function with arguments",
		"{{1.5}}":               "template: 1.5: this operand is not supported",
	} {
		_, err := template.Execute(text, object(), funcs())
		require.EqualError(t, err, want)
	}
}
