package logformat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"comet/internal/protocol/v5/logformat"

	"github.com/stretchr/testify/require"

	"comet/internal/telemetry"
)

const (
	token = "0123456789abcdef0123456789abcdef"
	admin = "correct-horse-battery-staple-and-more"
)

func logger(t *testing.T, opts telemetry.LogOptions) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	opts.Formats = map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{"v5": logformat.NewHandler}
	log, err := telemetry.NewLogger(&out, &opts)
	require.NoError(t, err)
	return log, &out
}

// TestDocumentExamples checks the lines that PROTOCOL_V5 §10.3 prints.
func TestDocumentExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   int64
		line logformat.Line
		want string
	}{
		{14523, logformat.Line{Context: "S1", Task: "T1", From: "O1", To: "W1", Type: "R", Data: "call=web_search"},
			"[14523] [INFO] [S1] [T1] O1>W1 R - call=web_search"},
		{14530, logformat.Line{Context: "S1", Task: "T1", From: "W1", To: "O1", Type: "S", Data: "results=3"},
			"[14530] [INFO] [S1] [T1] W1>O1 S - results=3"},
		{14532, logformat.Line{Context: "S1", Task: "T2", From: "W2", To: "O1", Type: "E", Code: "E31", Data: "BUSY queue=5"},
			"[14532] [WARN] [S1] [T2] W2>O1 E E31 BUSY queue=5"},
	} {
		log, out := logger(t, telemetry.LogOptions{Format: "v5"})
		r := slog.NewRecord(time.UnixMilli(c.at), logformat.Level(c.line.Type), "a line", 0)
		r.AddAttrs(slog.Any("v5", c.line))
		require.NoError(t, log.Handler().Handle(context.Background(), r))
		require.Equal(t, c.want+"\n", out.String())
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	logged := func(t *testing.T, l logformat.Line) string {
		t.Helper()
		log, out := logger(t, telemetry.LogOptions{Format: "v5", Level: "debug"})
		log.Info("a line", "v5", l)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		_, rest, _ := strings.Cut(strings.TrimSuffix(out.String(), "\n"), "] ")
		return rest
	}
	h := logformat.Line{From: "W1", To: "O1", Type: "H"}

	t.Run("an absent part is a dash", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "[INFO] [-] [-] W1>O1 H - -", logged(t, h))
	})
	t.Run("DATA is truncated to 80 characters on one line", func(t *testing.T) {
		t.Parallel()
		long := h
		long.Data = "a\nb\r\u2028c" + strings.Repeat("é", 100)
		text := logged(t, long)
		_, data, _ := strings.Cut(text, "H - ")
		require.True(t, strings.HasPrefix(data, "a b  c"), data)
		require.Len(t, []rune(data), 80)
		require.True(t, strings.HasSuffix(data, "é…"))
	})
	t.Run("secrets are masked before DATA is truncated", func(t *testing.T) {
		t.Parallel()
		secret := h
		secret.Data = strings.Repeat("x", 60) + ";token=" + token
		require.NotContains(t, logged(t, secret), token[:8])
		log, out := logger(t, telemetry.LogOptions{Format: "v5", Secrets: []string{admin}})
		log.Info("starting with "+admin, "admin_token", "x", "url", "nats://u:"+token+"@h", "error", errors.New("not "+admin))
		require.NotContains(t, out.String(), admin)
		require.NotContains(t, out.String(), token)
		require.Contains(t, out.String(), "admin_token=********")
	})
	t.Run("a record without a line has its message and attributes", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{Format: "v5"})
		log.With("part", "bus").WithGroup("g").Warn("two words", "n", 3, "text", `a "b"`, slog.Group("in", "x", true), "at", time.Unix(0, 0))
		_, rest, _ := strings.Cut(out.String(), "] ")
		require.Equal(t, `[WARN] [-] [-] - - - two words part=bus g.n=3 g.text="a \"b\"" g.in.x=true g.at=1970-01-01T00:00:00.000Z`+"\n", rest)
	})
	t.Run("records below the level are dropped", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{Format: "v5", Level: "warn"})
		log.Info("a line", "v5", h)
		require.Empty(t, out.String())
	})
	t.Run("another format writes a group", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{Format: "json"})
		log.Info("a line", "v5", logformat.Line{Context: "S1", Task: "T1", From: "W1", To: "O1", Type: "U", Data: "token=" + token})
		require.Equal(t, map[string]any{"ctx": "S1", "tid": "T1", "from": "W1", "to": "O1", "type": "U", "err": "-", "data": "token=********"}, parse(t, out)["v5"])
	})
}

// parse decodes the only record that was written.
func parse(t *testing.T, out *bytes.Buffer) map[string]any {
	t.Helper()
	record := map[string]any{}
	require.NoError(t, json.Unmarshal(out.Bytes(), &record), out.String())
	return record
}
