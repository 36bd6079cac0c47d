package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/requestid"
	"comet/internal/telemetry"
)

const (
	token = "0123456789abcdef0123456789abcdef"
	admin = "correct-horse-battery-staple-and-more"
)

func logger(t *testing.T, opts telemetry.LogOptions) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, &opts)
	require.NoError(t, err)
	return log, &out
}

// parse decodes the only record that was written.
func parse(t *testing.T, out *bytes.Buffer) map[string]any {
	t.Helper()
	record := map[string]any{}
	require.NoError(t, json.Unmarshal(out.Bytes(), &record), out.String())
	return record
}

func TestNewLogger(t *testing.T) {
	t.Parallel()

	t.Run("what is not a terminal gets JSON", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{})
		log.Info("hello", "agent_id", "nova", "level", 0)
		record := parse(t, out)
		require.Equal(t, "hello", record["msg"])
		require.Equal(t, "nova", record["agent_id"])
	})
	t.Run("text can be asked for", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{Format: "text"})
		log.Info("hello", "agent_id", "nova")
		require.Contains(t, out.String(), `level=INFO msg=hello agent_id=nova`)
	})
	t.Run("records below the level are dropped", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{Level: "warn"})
		log.Info("hello")
		require.Empty(t, out.String())
		log.Warn("hello")
		require.NotEmpty(t, out.String())
	})
	t.Run("the request id of the context is in the record, also of derived loggers", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{})
		log.With("a", 1).InfoContext(requestid.With(t.Context(), "req-1"), "hello")
		require.Equal(t, "req-1", parse(t, out)["request_id"])
	})
	t.Run("an unknown level or format is an error", func(t *testing.T) {
		t.Parallel()
		_, err := telemetry.NewLogger(&bytes.Buffer{}, &telemetry.LogOptions{Level: "loud"})
		require.ErrorContains(t, err, "loud")
		_, err = telemetry.NewLogger(&bytes.Buffer{}, &telemetry.LogOptions{Format: "xml"})
		require.ErrorContains(t, err, "xml")
	})
	t.Run("nil options are the defaults", func(t *testing.T) {
		t.Parallel()
		_, err := telemetry.NewLogger(&bytes.Buffer{}, nil)
		require.NoError(t, err)
	})
}

type credentials struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	address, err := url.Parse("postgres://comet:hunter2@db/comet")
	require.NoError(t, err)
	cause := errors.New("cannot connect to postgres://comet:hunter2@db:5432/comet with " + token)
	for name, write := range map[string]func(*slog.Logger){
		"under a secret name":          func(l *slog.Logger) { l.Info("x", "token", "hunter2") },
		"under a name that ends so":    func(l *slog.Logger) { l.Info("x", "admin_token", "hunter2", "dbPassword", "hunter2") },
		"under a header's name":        func(l *slog.Logger) { l.Info("x", "Authorization", "Bearer hunter2") },
		"bound to the logger":          func(l *slog.Logger) { l.With("secret", "hunter2").Info("x") },
		"in a group":                   func(l *slog.Logger) { l.WithGroup("g").Info("x", "password", "hunter2") },
		"in an inline group":           func(l *slog.Logger) { l.Info("x", slog.Group("token", "password", "hunter2")) },
		"in the message":               func(l *slog.Logger) { l.Info("token " + token + " bearer hunter2") },
		"in a string":                  func(l *slog.Logger) { l.Info("x", "header", "Bearer "+token) },
		"in an error":                  func(l *slog.Logger) { l.Error("x", "err", cause) },
		"in a wrapped error":           func(l *slog.Logger) { l.Error("x", "err", fmt.Errorf("open: %w", cause)) },
		"in a URL":                     func(l *slog.Logger) { l.Info("x", "url", address, "text", address.String()) },
		"in a struct":                  func(l *slog.Logger) { l.Info("x", "body", credentials{"u", "hunter2"}) },
		"in headers":                   func(l *slog.Logger) { l.Info("x", "h", http.Header{"Authorization": {"hunter2"}, "A": {token}}) },
		"in a map in a list":           func(l *slog.Logger) { l.Info("x", "l", []any{map[string]any{"secret": "hunter2", "b": token}}) },
		"in bytes":                     func(l *slog.Logger) { l.Info("x", "b", []byte(token)) },
		"in what JSON cannot write":    func(l *slog.Logger) { l.Info("x", "c", struct{ F func() }{}, "s", []any{func() {}, token}) },
		"that the configuration knows": func(l *slog.Logger) { l.Info("got "+admin, "a", admin, "e", errors.New(admin)) },
		"in a LogValuer":               func(l *slog.Logger) { l.Info("x", "v", valuer{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"json", "text"} {
				log, out := logger(t, telemetry.LogOptions{Format: format, Secrets: []string{admin, ""}})
				write(log)
				require.NotEmpty(t, out.String())
				for _, secret := range []string{token, admin, "hunter2"} {
					require.NotContains(t, out.String(), secret)
				}
			}
		})
	}

	t.Run("what is no secret stays as it was", func(t *testing.T) {
		t.Parallel()
		log, out := logger(t, telemetry.LogOptions{})
		log.Info("created", "token_budget", 15000, "token_id", "01890a5d-ac96-774b-bcce-b302099a8057", "list", []int{1, 2})
		record := parse(t, out)
		require.EqualValues(t, 15000, record["token_budget"])
		require.Equal(t, "01890a5d-ac96-774b-bcce-b302099a8057", record["token_id"])
		require.Equal(t, []any{1.0, 2.0}, record["list"])
	})
	t.Run("an id that looks like a token stays", func(t *testing.T) {
		t.Parallel()
		for _, format := range []string{"json", "text"} {
			log, out := logger(t, telemetry.LogOptions{Format: format, Secrets: []string{admin}})
			log.InfoContext(requestid.With(t.Context(), token), "x")
			require.Contains(t, out.String(), token)
			out.Reset()
			log.Info("x", "token_id", token)
			require.Contains(t, out.String(), token)
			out.Reset()
			log.InfoContext(requestid.With(t.Context(), admin), "x", "trace", token)
			require.NotContains(t, out.String(), admin, "unless it is the configured secret")
			require.NotContains(t, out.String(), token, "under another name it may be one")
		}
	})
}

type valuer struct{}

func (valuer) LogValue() slog.Value {
	return slog.GroupValue(slog.String("password", "hunter2"), slog.String("u", "postgres://a:hunter2@b"))
}

func BenchmarkLog(b *testing.B) {
	log, err := telemetry.NewLogger(io.Discard, &telemetry.LogOptions{Format: "json", Secrets: []string{admin}})
	require.NoError(b, err)
	for b.Loop() {
		log.Info("request", "method", "GET", "route", "/api/v1/agents/{agent_id}", "status", 200,
			"path", "/api/v1/agents/finance-personal", "remote", "127.0.0.1:51514", "duration_ms", 1.2)
	}
}
