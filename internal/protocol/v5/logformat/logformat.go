// Package logformat writes messages and log records in the log format of PROTOCOL_V5 §10.3.
package logformat

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Line is the line about a message. As the value of an attribute, the handler of this package
// writes the line and other handlers write a group.
type Line struct {
	// Context, Task, Code and Data are "" for "-". From is "" if the sender is unknown.
	Context, Task string
	From, To      string
	Type, Code    string
	Data          string
}

// LogValue implements slog.LogValuer.
func (l Line) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("ctx", cmp.Or(l.Context, "-")), slog.String("tid", cmp.Or(l.Task, "-")), slog.String("from", l.From), slog.String("to", l.To),
		slog.String("type", l.Type), slog.String("err", cmp.Or(l.Code, "-")), slog.String("data", cmp.Or(l.Data, "-")),
	)
}

// Append appends the line without a line break. TS is in milliseconds since 1970.
func (l Line) Append(out []byte, at time.Time, level slog.Level) []byte {
	route := "-"
	if l.From != "" {
		route = l.From + ">" + l.To
	}
	out = appendHead(out, at, level, l.Context, l.Task)
	for _, part := range []string{route, l.Type, cmp.Or(l.Code, "-"), summary(l.Data)} {
		out = append(append(out, ' '), part...)
	}
	return out
}

// AppendText appends a line that is about no message, without a line break.
func AppendText(out []byte, at time.Time, level slog.Level, text string) []byte {
	return append(appendHead(out, at, level, "", ""), " - - - "+summary(text)...)
}

func appendHead(out []byte, at time.Time, level slog.Level, names ...string) []byte {
	out = strconv.AppendInt(append(out, '['), at.UnixMilli(), 10)
	out = append(out, "] ["+level.String()+"]"...)
	for _, name := range names {
		out = append(out, " ["+cmp.Or(name, "-")+"]"...)
	}
	return out
}

// Level returns the level of messages of a type: a warning for an error, debug for a heartbeat.
func Level(messageType string) slog.Level {
	switch messageType {
	case "E":
		return slog.LevelWarn
	case "H":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// maxSummary is the maximum length of DATA_SUMMARY, in characters.
const maxSummary = 80

// summary returns DATA on one line, truncated to maxSummary characters, "-" for none.
func summary(data string) string {
	data = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, data))
	if utf8.RuneCountInString(data) > maxSummary {
		data = string([]rune(data)[:maxSummary-1]) + "…"
	}
	return cmp.Or(data, "-")
}

// handler writes records that have a Line as that line, and other records as their message and
// attributes behind a head of dashes.
type handler struct {
	out  *output
	opts slog.HandlerOptions
	text slog.Handler // writes the attributes to out.attrs
}

type output struct {
	mu    sync.Mutex
	w     io.Writer
	attrs bytes.Buffer
}

// NewHandler returns a handler that writes to w. opts.Level and opts.ReplaceAttr must be set;
// ReplaceAttr also receives the message and DATA.
func NewHandler(w io.Writer, opts *slog.HandlerOptions) slog.Handler {
	out := &output{w: w}
	return handler{out, *opts, slog.NewTextHandler(&out.attrs, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			_, isLevel := a.Value.Any().(slog.Level)
			if isLevel || a.Equal(slog.String(slog.MessageKey, "")) { // they are in the head
				return slog.Attr{}
			}
			return opts.ReplaceAttr(groups, a)
		},
	})}
}

// Enabled implements slog.Handler.
func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.opts.Level.Level()
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	replace := func(text string) string {
		return h.opts.ReplaceAttr(nil, slog.String(slog.MessageKey, text)).Value.String()
	}
	var line *Line
	rest := slog.NewRecord(time.Time{}, r.Level, "", 0)
	r.Attrs(func(a slog.Attr) bool {
		if l, ok := a.Value.Any().(Line); ok {
			line = &l
			return false
		}
		rest.AddAttrs(a)
		return true
	})
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.attrs.Reset()
	var text []byte
	if line != nil {
		line.Data = replace(line.Data)
		text = append(line.Append(nil, r.Time, r.Level), '\n')
	} else {
		if err := h.text.Handle(ctx, rest); err != nil {
			return err
		}
		text = AppendText(nil, r.Time, r.Level, replace(r.Message))
		if h.out.attrs.Len() > 1 {
			text = append(text, ' ')
		}
		text = append(text, h.out.attrs.Bytes()...)
	}
	_, err := h.out.w.Write(text)
	return err
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.text = h.text.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	h.text = h.text.WithGroup(name)
	return h
}
