package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"comet/cmd/comet/viewtext"
	"comet/internal/template"

	"github.com/go-json-experiment/json/jsontext"
)

// column is a column of a table, or a field of one object. The value is a member of the
// response, such as "stats.sessions_today", or a template over it.
type column struct{ head, value string }

// viewFuncs are the functions of the templates besides those of viewtext.
var viewFuncs = map[string]any{"yesno": yesNo, "count": count[int64], "indented": indented, "word": shellWord}

// viewData is the data of the templates: the response, and the arguments by their names.
func (c *call) viewData(body []byte) (map[string]any, error) {
	data := map[string]any{}
	if len(body) > 0 {
		if err := decodeView(body, &data); err != nil {
			return nil, err
		}
	}
	for i, name := range argumentNames(c.use) {
		if i < len(c.args) {
			data[strings.ReplaceAll(name, ":", "_")] = printable(c.args[i])
		}
	}
	data["BODY"] = string(body)
	return data, nil
}

// printResult prints the body of a response unless err is set.
func (c *call) printResult(body []byte, err error) error {
	if err != nil {
		return err
	}
	return c.printResponse(body)
}

// printView prints a response as the row says.
func (c *call) printView(data map[string]any) error {
	to := c.out.w
	if c.secret != "" {
		to = c.messages
	}
	if err := printText(to, c.message, data); err != nil {
		return err
	}
	if secret, ok := data[c.secret].(string); ok {
		printLine(c.out.w, "%s", secret)
	}
	if len(c.fields) > 0 {
		if err := c.printFields(c.fields, data); err != nil {
			return err
		}
	}
	if err := c.printEntries(data); err != nil {
		return err
	}
	if err := c.printTemplateTable(data); err != nil {
		return err
	}
	return printText(c.out.w, c.after, data)
}

func (c *call) printEntries(data map[string]any) error {
	if c.rows+c.pages == "" {
		return nil
	}
	if len(c.fields) > 0 {
		printLine(c.out.w, "")
	}
	entries, _ := data[c.rows+c.pages].([]any)
	if len(entries) == 0 && c.empty != "" {
		return printText(c.messages, c.empty, data)
	}
	return c.printTable(c.columns, entries)
}

func (c *call) printTemplateTable(data map[string]any) error {
	text, err := render(c.table, data)
	if err != nil || text == "" {
		return err
	}
	var rows [][]string
	for line := range strings.Lines(text) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return c.out.table(rows[0], rows[1:])
}

func printText(w io.Writer, template string, data map[string]any) error {
	text, err := render(template, data)
	for line := range strings.Lines(text) {
		printLine(w, "%s", strings.TrimSuffix(line, "\n"))
	}
	return err
}

// failure returns the text of a template as an error, nil if it is empty.
func failure(template string, data map[string]any) error {
	text, err := render(template, data)
	if err == nil && text != "" {
		err = errors.New(text)
	}
	return err
}

// printFields prints fields of one object, a name and a value per line; empty ones are left out.
func (s *session) printFields(fields []column, data any) error {
	w := tabwriter.NewWriter(s.out.w, 0, 0, columnGap, ' ', 0)
	for _, f := range fields {
		text, err := f.render(data, ", ", "")
		if err == nil && text != "" {
			_, err = fmt.Fprintf(w, "%s:\t%s\n", f.head, printable(text))
		}
		if err != nil {
			return err
		}
	}
	return w.Flush()
}

// printTable prints a row for every entry.
func (s *session) printTable(columns []column, entries []any) error {
	headers := make([]string, len(columns))
	for i, c := range columns {
		headers[i] = c.head
	}
	rows := make([][]string, len(entries))
	for i, e := range entries {
		for _, c := range columns {
			text, err := c.render(e, ",", "-")
			if err != nil {
				return err
			}
			rows[i] = append(rows[i], text)
		}
	}
	return s.out.table(headers, rows)
}

var isMember = regexp.MustCompile(`^[a-z0-9_.]+$`)

// render returns the value of a column in data. A member that is missing is the text absent.
func (c column) render(data any, separator, absent string) (string, error) {
	if !isMember.MatchString(c.value) {
		return render(c.value, data)
	}
	for _, name := range strings.Split(c.value, ".") {
		object, _ := data.(map[string]any)
		data = object[name]
	}
	switch v := data.(type) {
	case nil:
		return absent, nil
	case bool:
		return yesNo(v), nil
	case []any:
		return viewtext.Join(v, separator), nil
	case map[string]any:
		return viewtext.JSON(v), nil
	}
	return fmt.Sprint(data), nil
}

func render(text string, data any) (string, error) {
	funcs := viewtext.Funcs()
	maps.Copy(funcs, viewFuncs)
	return template.Execute(text, data, funcs)
}

// decodeView reads a response for people: times are shown to the second in UTC, and texts, which
// may have several lines, are safe for a terminal. Numbers are int64 or float64.
func decodeView(body []byte, v *map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("the server's response cannot be read: %w", err)
	}
	for name, member := range *v {
		(*v)[name] = viewOf(member)
	}
	return nil
}

func viewOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = viewOf(member)
		}
	case []any:
		for i := range v {
			v[i] = viewOf(v[i])
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder has checked it
		return f
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
		lines := strings.Split(v, "\n")
		for i := range lines {
			lines[i] = printable(lines[i])
		}
		return strings.Join(lines, "\n")
	}
	return v
}

// indented returns a member of a response as received, but indented.
func indented(body, member string) (string, error) {
	var members map[string]jsontext.Value
	if err := decode([]byte(body), &members); err != nil {
		return "", err
	}
	value := members[member]
	err := value.Indent(jsontext.WithIndent("  "))
	return string(value), err
}
