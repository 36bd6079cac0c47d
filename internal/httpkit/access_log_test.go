package httpkit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/requestid"
)

// logFixture is a router with a log whose entries can be read.
type logFixture struct {
	http.Handler
	log bytes.Buffer
}

func newLogFixture(every int) *logFixture {
	f := &logFixture{}
	r := chi.NewRouter()
	r.Use(RequestIDs, AccessLog(slog.New(slog.NewJSONHandler(&f.log, nil)), every), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				logToken(r.Context(), "t-1")
			}
			next.ServeHTTP(w, r)
		})
	})
	r.Get("/things/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(requestid.From(r.Context()))) })
	r.Get("/fail", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	f.Handler = r
	return f
}

func (f *logFixture) do(path string, headers ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	f.ServeHTTP(w, r)
	return w
}

// entries returns the log entries.
func (f *logFixture) entries(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(f.log.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		all = append(all, entry)
	}
	return all
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	f := newLogFixture(1)
	for _, id := range []string{"a", "Az09._-", strings.Repeat("x", 64), "4bf92f3577b34da6a3ce929d0e0e4736"} {
		w := f.do("/things/a", "X-Request-Id", id)
		require.Equal(t, id, w.Header().Get("X-Request-Id"), "a plain id of the client is used")
		require.Equal(t, id, w.Body.String())
	}
	for _, id := range []string{"", strings.Repeat("x", 65), "a b", "a\tb", `a"b`, "é", "a/b", "a=b"} {
		w := f.do("/things/a", "X-Request-Id", id)
		made, err := uuid.Parse(w.Header().Get("X-Request-Id"))
		require.NoError(t, err, id)
		require.Equal(t, uuid.Version(7), made.Version(), "another id is replaced")
		require.Equal(t, w.Header().Get("X-Request-Id"), w.Body.String())
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	t.Run("has everything but secrets", func(t *testing.T) {
		t.Parallel()
		f := newLogFixture(1)
		w := f.do("/things/a?token=s3cret&q=private", "Authorization", "Bearer t-1")
		entry := f.entries(t)[0]
		for key, want := range map[string]any{
			"level": "INFO", "method": "GET", "route": "/things/{id}", "path": "/things/a", "status": 200.0, "bytes": float64(w.Body.Len()), "token_id": "t-1",
		} {
			require.Equal(t, want, entry[key], key)
		}
		require.Contains(t, entry, "remote")
		require.Contains(t, entry, "duration_ms")
		for _, secret := range []string{"s3cret", "private", "Bearer"} {
			require.NotContains(t, f.log.String(), secret)
		}
	})
	t.Run("includes unknown routes and failures", func(t *testing.T) {
		t.Parallel()
		f := newLogFixture(1)
		f.do("/nowhere")
		f.do("/fail")
		entries := f.entries(t)
		require.InDelta(t, 404, entries[0]["status"], 0)
		require.Equal(t, "INFO", entries[0]["level"])
		require.NotContains(t, entries[0], "token_id")
		require.InDelta(t, 500, entries[1]["status"], 0)
		require.Equal(t, "WARN", entries[1]["level"])
	})
	t.Run("has every n-th success and all failures", func(t *testing.T) {
		t.Parallel()
		f := newLogFixture(5)
		for range 20 {
			f.do("/things/a")
		}
		for range 3 {
			f.do("/nowhere")
		}
		require.Len(t, f.entries(t), 20/5+3)
	})
	t.Run("ignores a token outside of the middleware", func(t *testing.T) {
		t.Parallel()
		logToken(t.Context(), "t-1")
	})
}
