package telemetry

import (
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// V5Line is a line of PROTOCOL_V5 as a record tells of it (§10.3). As the value of an
// attribute it is a group to every handler but that of the format v5, which writes it as
// the document has it.
type V5Line struct {
	// Context, Task and Code are "" where the line has "-", and From where it is not known
	// who has said it.
	Context, Task string
	From, To      string
	Type, Code    string
	Data          string
}

// LogValue implements slog.LogValuer.
func (l V5Line) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("ctx", orDash(l.Context)), slog.String("tid", orDash(l.Task)), slog.String("from", l.From), slog.String("to", l.To),
		slog.String("type", l.Type), slog.String("err", orDash(l.Code)), slog.String("data", orDash(l.Data)),
	)
}

// Append appends the line in the form of §10.3, without a line break. TS is in
// milliseconds since 1970.
func (l V5Line) Append(out []byte, at time.Time, level slog.Level) []byte {
	out = appendV5Head(out, at, level, l.Context, l.Task)
	route := "-"
	if l.From != "" {
		route = l.From + ">" + l.To
	}
	for _, part := range []string{route, l.Type, orDash(l.Code), V5Summary(l.Data)} {
		out = append(append(out, ' '), part...)
	}
	return out
}

// AppendV5Note appends a record that is about no line, in the same form.
func AppendV5Note(out []byte, at time.Time, text string) []byte {
	return append(appendV5Head(out, at, slog.LevelInfo, "", ""), " - - - "+V5Summary(text)...)
}

func appendV5Head(out []byte, at time.Time, level slog.Level, parts ...string) []byte {
	out = strconv.AppendInt(append(out, '['), at.UnixMilli(), 10)
	out = append(append(append(out, "] ["...), level.String()...), ']')
	for _, part := range parts {
		out = append(append(append(out, " ["...), orDash(part)...), ']')
	}
	return out
}

// V5Level is how a line of a type is logged: an error as a warning, a heartbeat for
// debugging only.
func V5Level(lineType string) slog.Level {
	switch lineType {
	case "E":
		return slog.LevelWarn
	case "H":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// maxSummary is the longest DATA_SUMMARY, in characters.
const maxSummary = 80

// V5Summary is DATA as a log shows it: in one line and short, "-" where there is nothing.
func V5Summary(data string) string {
	data = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, data))
	if utf8.RuneCountInString(data) > maxSummary {
		data = string([]rune(data)[:maxSummary-1]) + "…"
	}
	return orDash(data)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
