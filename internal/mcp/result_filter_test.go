package mcp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResultFilter checks that errors in plain text become messages and other responses pass.
func TestResultFilter(t *testing.T) {
	t.Parallel()
	serve := func(fn http.HandlerFunc) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, Path, nil)
		a := newResultFilter(w, r, time.Minute, func(string) {})
		a.id = json.RawMessage("5")
		fn(a, r)
		a.finish()
		return w
	}

	t.Run("replaces plain text", func(t *testing.T) {
		t.Parallel()
		w := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "POST")
			http.Error(w, strings.Repeat("x", 10*maxSDKError), http.StatusMethodNotAllowed)
		})
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "POST", w.Header().Get("Allow"))
		require.Contains(t, w.Body.String(), `"id":5`)
		require.NotContains(t, w.Body.String(), "xx")
	})

	t.Run("passes messages", func(t *testing.T) {
		t.Parallel()
		w := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"a":1}`))
		})
		require.Equal(t, `{"a":1}`, w.Body.String())
	})

	t.Run("passes streams at once", func(t *testing.T) {
		t.Parallel()
		w := httptest.NewRecorder()
		a := newResultFilter(w, httptest.NewRequest(http.MethodPost, Path, nil), time.Minute, func(string) {})
		a.Header().Set("Content-Type", "text/event-stream")
		_, err := a.Write([]byte("data: 1\n\n"))
		require.NoError(t, err)
		require.NoError(t, http.NewResponseController(a).Flush())
		require.True(t, w.Flushed)
		require.Equal(t, "data: 1\n\n", w.Body.String(), "before the end")
		require.Same(t, w, a.Unwrap())
	})
}

// deadlines records the write deadlines of a response.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// TestResultFilterExtendsTheDeadlineAtTheEnd checks that the server can end a stream on which nothing
// was written for longer than the write timeout.
func TestResultFilterExtendsTheDeadlineAtTheEnd(t *testing.T) {
	t.Parallel()
	w := &deadlines{ResponseWriter: httptest.NewRecorder()}
	a := newResultFilter(w, httptest.NewRequest(http.MethodPost, Path, nil), time.Minute, func(string) {})
	_, err := a.Write([]byte("data: 1\n\n"))
	require.NoError(t, err)
	written := len(w.set)
	a.finish()
	require.Greater(t, len(w.set), written)
	require.WithinRange(t, w.set[len(w.set)-1], w.set[written-1], time.Now().Add(time.Minute))
}
