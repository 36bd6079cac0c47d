package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"

	"comet/internal/telemetry"
)

const (
	// between is the space between columns, in characters.
	between = 2
	// narrowest is how narrow a column is made at most.
	narrowest = 12
	// usualWidth is that of a terminal that does not say how wide it is.
	usualWidth = 80
)

// table prints rows under their headers, in columns. On a terminal the columns that hold
// prose are cut to its width; nothing is cut for programs.
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
		fit(headers, shown, widthOf(o.w))
	}
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, between, ' ', 0)
	for _, row := range shown {
		for _, cell := range row {
			_, _ = fmt.Fprintf(w, "%s\t", cell) // a buffer takes everything
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

// prose reports whether what stands under a header is for reading: half of it is better than
// two lines, while half of a name, a number or a time is worth nothing.
func prose(header string) bool {
	switch header {
	case "DESCRIPTION", "ERROR", "DIFFERS", "REASON", "CHANGES", "QUESTION", "OPTIONS", "CAPABILITIES", "RESPONSE", "ARGUMENTS", "EVENTS", "SCOPES":
		return true
	}
	return false
}

// fit cuts the columns of prose until the rows are no wider than a terminal, the widest first.
func fit(headers []string, rows [][]string, width int) {
	widths := make([]int, len(headers))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	over := -width - between
	for _, w := range widths {
		over += w + between
	}
	for ; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if prose(headers[i]) && w > narrowest && (widest < 0 || w > widths[widest]) {
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
			row[i] = cut(cell, widths[i])
		}
	}
}

// cut is a text of at most so many characters; one that is cut says so.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:most-1]), " ") + "…"
}

// widthOf is how wide a terminal is, in characters: what COLUMNS says, or the terminal.
func widthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return usualWidth
}
