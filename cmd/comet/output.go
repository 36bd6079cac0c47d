package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/term"

	"comet/cmd/comet/viewtext"
	"comet/internal/telemetry"
)

// The output formats.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

func formats() []string { return []string{formatTable, formatJSON, formatYAML} }

// output prints results: a table for people, or the response as JSON or YAML for programs.
type output struct {
	w         io.Writer
	format    string
	noHeaders bool
}

func newOutput(w io.Writer, format string, noHeaders bool) (output, error) {
	format = cmp.Or(format, formatTable)
	if !slices.Contains(formats(), format) {
		return output{}, usagef("the output format must be table, json or yaml, not %q", format)
	}
	return output{w: w, format: format, noHeaders: noHeaders}, nil
}

// show prints body, a JSON document, in the chosen format; table prints the table.
func (o output) show(body []byte, table func() error) error {
	switch o.format {
	case formatJSON:
		text := jsontext.Value(slices.Clone(body))
		if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
			return fmt.Errorf("the server's response is not JSON: %w", err)
		}
		_, err := fmt.Fprintf(o.w, "%s\n", bytes.TrimRight(text, "\n"))
		return err
	case formatYAML:
		return viewtext.YAML(o.w, body)
	}
	return table()
}

// printable makes text from elsewhere harmless for a terminal: line breaks become spaces, other
// control characters their escapes.
func printable(s string) string {
	if !strings.ContainsFunc(s, isControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case isControl(r):
			_, _ = fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isControl reports whether r is a control character for a terminal.
func isControl(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

const (
	// columnGap is the space between columns, in characters.
	columnGap = 2
	// minColumn is the least width that a column is cut to.
	minColumn = 12
	// defaultWidth is the width of a terminal that does not report it.
	defaultWidth = 80
)

// table prints rows under their headers, in columns. On a terminal the columns of prose are cut
// to its width; nothing is cut in pipes and files.
func (o output) table(headers []string, rows [][]string) error {
	shown := make([][]string, 0, len(rows)+1)
	if !o.noHeaders {
		shown = append(shown, slices.Clone(headers))
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		shown = append(shown, cells)
	}
	if telemetry.IsTerminal(o.w) {
		for _, row := range shown {
			for i := range row {
				row[i] = viewtext.RelativeTime(row[i], time.Now())
			}
		}
		fit(headers, shown, widthOf(o.w))
		for i, header := range headers {
			for _, row := range shown {
				if header == "STATE" || header == "STATUS" || header == "OUTCOME" {
					row[i] = o.paint(colourOf(row[i]), row[i])
				}
			}
		}
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	for _, row := range shown {
		for _, cell := range row {
			_, _ = fmt.Fprintf(w, "%s\t", cell) // a buffer returns no error
		}
		_, _ = fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(o.w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// The colours of a terminal. Their sequences have the same length, which keeps columns aligned.
const (
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	neutral = "\x1b[39m"
)

// colourOf returns the colour of a state.
func colourOf(state string) string {
	switch state {
	case "failed", "dead", "error", "refused", "quarantined":
		return red
	case "done", "ready", "online", "succeeded", "success", "approved":
		return green
	}
	return neutral
}

// paint colours a text on a terminal, unless NO_COLOR is set or the terminal is dumb.
func (o output) paint(colour, text string) string {
	if !telemetry.IsTerminal(o.w) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return colour + text + "\x1b[0m"
}

// isProse reports whether a column holds prose: half of a sentence is useful, half of a name, a
// number or a time is not.
func isProse(header string) bool {
	switch header {
	case "DESCRIPTION", "ERROR", "DIFFERS", "REASON", "CHANGES", "QUESTION", "OPTIONS", "CAPABILITIES", "RESPONSE", "ARGUMENTS", "EVENTS", "SCOPES":
		return true
	}
	return false
}

// fit cuts the columns of prose, the widest first, until the rows fit the terminal.
func fit(headers []string, rows [][]string, width int) {
	widths := make([]int, len(headers))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	over := -width - columnGap
	for _, w := range widths {
		over += w + columnGap
	}
	for ; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if isProse(headers[i]) && w > minColumn && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = viewtext.Cut(cell, widths[i])
		}
	}
}

// widthOf is the width of a terminal in characters: COLUMNS, or what the terminal reports.
func widthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return defaultWidth
}
