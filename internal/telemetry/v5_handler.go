package telemetry

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// v5Handler writes records in the log format of PROTOCOL_V5 §10.3: those of a line as the
// document has it, and others with their message and attributes behind a head of dashes.
type v5Handler struct {
	out    *lockedWriter
	level  slog.Level
	mask   redactor
	groups []string
	given  string // the attributes that every record has
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Enabled implements slog.Handler.
func (h v5Handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// Handle implements slog.Handler.
func (h v5Handler) Handle(_ context.Context, r slog.Record) error {
	var line *V5Line
	var rest strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		if l, is := a.Value.Any().(V5Line); is {
			line = &l
			return false
		}
		h.attr(&rest, h.groups, a)
		return true
	})
	var out []byte
	if line != nil {
		line.Data = h.mask.text(line.Data)
		out = line.Append(nil, r.Time, r.Level)
	} else {
		out = appendV5Head(nil, r.Time, r.Level, "", "")
		out = append(out, " - - - "+h.mask.text(V5Summary(r.Message))+h.given+rest.String()...)
	}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := h.out.w.Write(append(out, '\n'))
	return err
}

// WithAttrs implements slog.Handler.
func (h v5Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var more strings.Builder
	for _, a := range attrs {
		h.attr(&more, h.groups, a)
	}
	h.given += more.String()
	return h
}

// WithGroup implements slog.Handler.
func (h v5Handler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.groups = append(h.groups[:len(h.groups):len(h.groups)], name)
	}
	return h
}

// attr writes an attribute as " key=value", those of a group each with its name before.
func (h v5Handler) attr(out *strings.Builder, groups []string, a slog.Attr) {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			groups = append(groups[:len(groups):len(groups)], a.Key)
		}
		for _, member := range a.Value.Group() {
			h.attr(out, groups, member)
		}
		return
	}
	a = h.mask.replace(groups, a)
	out.WriteByte(' ')
	for _, g := range groups {
		out.WriteString(g + ".")
	}
	out.WriteString(a.Key + "=" + valueText(a.Value))
}

// valueText is a value in one word, in quotes where it would not be one.
func valueText(v slog.Value) string {
	text := v.String()
	if v.Kind() == slog.KindTime {
		text = v.Time().Format(time.RFC3339Nano)
	}
	if text == "" || strings.ContainsAny(text, " \"=") || strconv.Quote(text) != `"`+text+`"` {
		return strconv.Quote(text)
	}
	return text
}
