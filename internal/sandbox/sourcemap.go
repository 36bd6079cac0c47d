package sandbox

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"comet/internal/input"
)

// sourceMap maps positions in the JavaScript to the caller's code.
type sourceMap struct {
	lines       [][]mapping // by line of the JavaScript, sorted by column
	sourceLines int         // number of lines of the caller's code
	frame       *regexp.Regexp
}

// mapping maps a column to a position in the source. All numbers begin at 0; the first line of the
// source is not the caller's (see compile.go).
type mapping struct{ column, line, at int }

func newSourceMap(js *compiled) *sourceMap {
	// The engine names code that the prelude evaluates <input>, and the prelude itself otherwise.
	m := &sourceMap{sourceLines: js.Lines, frame: regexp.MustCompile(`^\s*at (.*?) ?\(?<input>:(\d+):(\d+)\)?$`)}
	line, at := 0, 0
	for text := range strings.SplitSeq(js.Mappings, ";") {
		var all []mapping
		column := 0
		for segment := range strings.SplitSeq(text, ",") {
			n := base64VLQ(segment)
			if len(n) < 4 {
				continue
			}
			column, line, at = column+n[0], line+n[2], at+n[3]
			all = append(all, mapping{column, line, at})
		}
		m.lines = append(m.lines, all)
	}
	return m
}

// base64VLQ decodes the numbers of a segment: digits of five bits, the lowest first, then the sign.
func base64VLQ(segment string) []int {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var all []int
	value, shift := 0, 0
	for _, c := range []byte(segment) {
		digit := strings.IndexByte(digits, c)
		if digit < 0 || shift > 30 {
			return nil
		}
		value |= digit & 31 << shift
		if digit&32 != 0 {
			shift += 5
			continue
		}
		if value&1 != 0 {
			value = -value
		}
		all = append(all, value/2)
		value, shift = 0, 0
	}
	return all
}

// find maps a position in the JavaScript to the caller's code. Numbers begin at 1; 0 is unknown.
func (m *sourceMap) find(line, column int) (int, int) {
	if line < 1 || line > len(m.lines) {
		return 0, 0
	}
	all := m.lines[line-1]
	i, found := slices.BinarySearchFunc(all, column-1, func(a mapping, column int) int { return a.column - column })
	if !found {
		i--
	}
	if i < 0 || all[i].line < 1 || all[i].line > m.sourceLines {
		return 0, 0
	}
	return all[i].line, all[i].at + 1
}

// stack maps the engine's stack to the caller's code only, and returns the innermost position.
func (m *sourceMap) stack(engines string) (line, column int, stack string) {
	var out strings.Builder
	for text := range strings.Lines(engines) {
		found := m.frame.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if found == nil {
			continue
		}
		l, _ := strconv.Atoi(found[2])
		c, _ := strconv.Atoi(found[3])
		if l, c = m.find(l, c); l == 0 {
			continue
		}
		if line == 0 {
			line, column = l, c
		}
		name := strings.TrimPrefix(strings.TrimPrefix(found[1], "async"), " ")
		if name == "" || strings.HasSuffix(name, "<anonymous>") {
			name = "the code"
		}
		fmt.Fprintf(&out, "at %s (%d:%d)\n", name, l, c)
	}
	return line, column, strings.TrimRight(out.String(), "\n")
}

// locate maps the position of a failure to the caller's code.
func (m *sourceMap) locate(f failedFrame) failedFrame {
	if f.Line == 0 {
		f.Line, f.Column, f.Stack = m.stack(f.Stack)
	} else {
		f.Line, f.Column = m.find(f.Line, f.Column)
		f.Stack = ""
	}
	f.Message, f.Stack = input.ClipBytes(f.Message, maxMessage), input.ClipBytes(f.Stack, maxMessage)
	return f
}
