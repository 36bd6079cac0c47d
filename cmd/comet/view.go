package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"
	"time"
)

// column is a column of a table, or a field of one object. The value is a member of the
// response, such as "stats.sessions_today", or a text/template over it.
type column struct{ head, value string }

// viewFuncs are the functions of the templates.
var viewFuncs = template.FuncMap{
	"join": joinAny, "json": compact, "budget": budgetText, "yesno": yesNo, "count": countText,
	"remaining": remainingText, "percent": percentText, "oneLine": oneLine, "waits": waitsText,
	"duration": durationText, "ms": milliseconds, "add": func(a, b any) int64 { return toInt(a) + toInt(b) },
}

// printView prints a response as the row says.
func (c *call) printView(body []byte) error {
	var data map[string]any
	if err := decodeView(body, &data); err != nil {
		return err
	}
	if err := c.printMessage(c.messagesTo(), data); err != nil {
		return err
	}
	if secret, ok := data[c.secret].(string); ok {
		printLine(c.session.out.w, "%s", secret)
	}
	if len(c.fields) > 0 {
		if err := c.printFields(c.fields, data); err != nil {
			return err
		}
	}
	if c.rows+c.pages == "" {
		return nil
	}
	if len(c.fields) > 0 {
		printLine(c.out.w, "")
	}
	entries, _ := data[c.rows+c.pages].([]any)
	if len(entries) == 0 && c.empty != "" {
		printLine(c.messages, "%s", c.empty)
	}
	return c.printTable(c.columns, entries)
}

func (c *call) messagesTo() io.Writer {
	if c.secret != "" {
		return c.messages
	}
	return c.out.w
}

// printMessage prints the message of the row, whose template may use the arguments as well.
func (c *call) printMessage(w io.Writer, data map[string]any) error {
	if c.message == "" {
		return nil
	}
	for i, name := range argumentNames(c.use) {
		if i < len(c.args) {
			data[strings.ReplaceAll(name, ":", "_")] = printable(c.args[i])
		}
	}
	text, err := render(c.message, data)
	for line := range strings.Lines(text) {
		printLine(w, "%s", strings.TrimSuffix(line, "\n"))
	}
	return err
}

// printFields prints fields of one object; empty ones are left out.
func (s *session) printFields(fields []column, data any) error {
	var pairs []string
	for _, f := range fields {
		text, err := f.render(data, ", ", "")
		if err != nil {
			return err
		}
		pairs = append(pairs, f.head, text)
	}
	return s.out.fields(pairs...)
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
		return joinAny(v, separator), nil
	case map[string]any:
		return compact(v), nil
	}
	return fmt.Sprint(data), nil
}

func render(text string, data any) (string, error) {
	t, err := template.New("").Funcs(viewFuncs).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

// decodeView reads a response for people: times are shown to the second in UTC, and texts do
// nothing to a terminal. Numbers are int64 or float64.
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
		return printable(v)
	}
	return v
}

func joinAny(list any, separator string) string {
	all, _ := list.([]any)
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, separator)
}

// compact is a value as JSON in one line.
func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func budgetText(tokens any) string {
	if tokens == nil {
		return "unlimited"
	}
	return fmt.Sprint(tokens)
}

func countText(n int64, one, many string) string { return count(int(n), one, many) }

// remainingText describes the remaining tokens of a budget.
func remainingText(balance map[string]any) string {
	if balance["remaining"] == nil {
		return "the budget is unlimited"
	}
	return fmt.Sprintf("%v of %v tokens remain until %v", balance["remaining"], balance["budget"], balance["reset_at"])
}

func percentText(part any) string {
	if f, ok := part.(float64); ok {
		return fmt.Sprintf("%.1f%%", 100*f)
	}
	if n, ok := part.(int64); ok {
		return fmt.Sprintf("%d.0%%", 100*n)
	}
	return "-"
}

// oneLine is a text, which may have pages, in one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func durationText(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

// milliseconds is a number with one decimal.
func milliseconds(ms any) string {
	if f, ok := ms.(float64); ok {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%d.0", ms)
}

func toInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case int:
		return int64(v)
	}
	return 0
}

// waitsText describes what a task waits for.
func waitsText(waits string) string {
	return map[string]string{"worker": "waiting for a worker", "retry": "waiting to retry", "reply": "waiting for a reply"}[waits]
}

// moment is a time in UTC, "-" for none.
func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
