// Package telemetry provides structured logs without secrets, metrics and traces. Any package may
// import it.
package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"comet/internal/redact"
	"comet/internal/requestid"
)

// LogOptions configures NewLogger. The zero value logs from info on, as text on a terminal and as
// JSON otherwise.
type LogOptions struct {
	// Level is debug, info, warn or error; "" is info.
	Level string
	// Format is auto, text, json or a key of Formats; "" is auto.
	Format string
	// Formats are further formats. A handler must pass every attribute to ReplaceAttr, which masks
	// secrets.
	Formats map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler
	// Secrets are values that are never written, such as a configured admin token. Short ones are
	// ignored.
	Secrets []string
}

// minSecretLength is the length from which on secrets are masked: a shorter one may be a word.
const minSecretLength = 8

// NewLogger returns a logger that writes to w. Every record has the request id of its context as
// request_id, and the other ids of the request. It returns an error for an unknown level or format.
func NewLogger(w io.Writer, opts *LogOptions) (*slog.Logger, error) {
	opts = cmp.Or(opts, &LogOptions{})
	var level slog.Level
	if opts.Level != "" {
		if err := level.UnmarshalText([]byte(opts.Level)); err != nil {
			return nil, fmt.Errorf("unknown log level %q", opts.Level)
		}
	}
	r := newRedactor(opts.Secrets)
	handlerOpts := &slog.HandlerOptions{Level: level, ReplaceAttr: r.replace}
	var h slog.Handler
	switch opts.Format {
	case "text":
		h = slog.NewTextHandler(w, handlerOpts)
	case "json":
		h = slog.NewJSONHandler(w, handlerOpts)
	case "", "auto":
		if IsTerminal(w) {
			h = slog.NewTextHandler(w, handlerOpts)
		} else {
			h = slog.NewJSONHandler(w, handlerOpts)
		}
	default:
		newHandler, ok := opts.Formats[opts.Format]
		if !ok {
			return nil, fmt.Errorf("unknown log format %q", opts.Format)
		}
		h = newHandler(w, handlerOpts)
	}
	buffer, _ := w.(*Buffer)
	return slog.New(contextHandler{h, buffer}), nil
}

// IsTerminal reports whether w is a terminal, or a Buffer in front of one.
func IsTerminal(w io.Writer) bool {
	if b, ok := w.(*Buffer); ok {
		w = b.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// contextHandler adds the ids of the context's request to each record. Warnings and errors leave the
// buffer at once.
type contextHandler struct {
	slog.Handler
	buffer *Buffer // nil without one
}

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if ids := requestid.Attrs(ctx); len(ids) > 0 {
		r = r.Clone()
		r.AddAttrs(ids...)
	}
	err := h.Handler.Handle(ctx, r)
	if h.buffer != nil && r.Level >= slog.LevelWarn {
		err = errors.Join(err, h.buffer.Flush())
	}
	return err
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs), h.buffer}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name), h.buffer}
}

// redactor masks secrets in every attribute and in the message.
type redactor struct{ literal *strings.Replacer }

func newRedactor(secrets []string) redactor {
	var pairs []string
	for _, s := range secrets {
		if len(s) >= minSecretLength {
			pairs = append(pairs, s, redact.Mask)
		}
	}
	if pairs == nil {
		return redactor{}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) replace(groups []string, a slog.Attr) slog.Attr {
	if redact.Key(a.Key) && a.Value.Kind() != slog.KindGroup {
		return slog.String(a.Key, redact.Mask)
	}
	switch a.Value.Kind() {
	case slog.KindString:
		if redact.ID(a.Key) { // the answer carries it too, and the two must be found together
			return slog.String(a.Key, r.known(a.Value.String()))
		}
		return slog.String(a.Key, r.text(a.Value.String()))
	case slog.KindTime:
		return slog.Time(a.Key, a.Value.Time().UTC())
	case slog.KindAny:
		a.Value = r.any(a.Value.Any())
	}
	return a
}

// text masks the configured secrets and text that looks like a secret.
func (r redactor) text(s string) string { return redact.Text(r.known(s)) }

// known masks the configured secrets.
func (r redactor) known(s string) string {
	if r.literal == nil {
		return s
	}
	return r.literal.Replace(s)
}

// any masks secrets inside structured values: an error or a Stringer is converted to its
// text, any other value to JSON.
func (r redactor) any(v any) slog.Value {
	switch v := v.(type) {
	case nil:
		return slog.AnyValue(nil)
	case slog.Level:
		return slog.StringValue(v.String())
	case error:
		return slog.StringValue(r.text(v.Error()))
	case fmt.Stringer:
		return slog.StringValue(r.text(v.String()))
	case []byte:
		return slog.StringValue(r.text(string(v)))
	}
	data, err := json.Marshal(v)
	if err != nil {
		return slog.StringValue(r.text(fmt.Sprintf("%+v", v)))
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return slog.StringValue(r.text(string(data)))
	}
	return slog.AnyValue(r.tree(tree))
}

func (r redactor) tree(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			v[i] = r.tree(v[i])
		}
	case map[string]any:
		for k := range v {
			if redact.Key(k) {
				v[k] = redact.Mask
				continue
			}
			v[k] = r.tree(v[k])
		}
	}
	return v
}

const (
	// bufferSize is the number of buffered bytes at which a Buffer writes.
	bufferSize = 64 << 10
	// bufferDelay is the maximum time for which a Buffer delays bytes.
	bufferDelay = 100 * time.Millisecond
)

// Buffer writes log records together: at 64 KiB, 100 ms after the first one, and when Flush is
// called. A logger of NewLogger calls Flush after each warning and error. Buffer is safe for
// concurrent use, and a slow w delays the callers of Write.
type Buffer struct {
	w io.Writer

	mu    sync.Mutex
	buf   []byte
	timed bool // a flush is due
}

// NewBuffer returns a buffer in front of w. The caller calls Flush before the program exits.
func NewBuffer(w io.Writer) *Buffer { return &Buffer{w: w} }

// Write implements io.Writer. The error of a delayed write is dropped, because loggers ignore it.
func (b *Buffer) Write(record []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf = append(b.buf, record...); len(b.buf) >= bufferSize {
		return len(record), b.flush()
	}
	if !b.timed {
		b.timed = true
		time.AfterFunc(bufferDelay, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.timed = false
			_ = b.flush()
		})
	}
	return len(record), nil
}

// Flush writes the buffered bytes.
func (b *Buffer) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *Buffer) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	_, err := b.w.Write(b.buf)
	if b.buf = b.buf[:0]; cap(b.buf) > 2*bufferSize {
		b.buf = nil
	}
	return err
}
