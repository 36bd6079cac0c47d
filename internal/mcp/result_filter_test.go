package mcp

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnAnswer keeps back what the SDK refuses in plain text, and nothing else.
func TestAnAnswer(t *testing.T) {
	t.Parallel()
	serve := func(fn http.HandlerFunc) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, Path, nil)
		a := &resultFilter{deadlineWriter: newDeadlineWriter(w, time.Minute), r: r, id: json.RawMessage("5")}
		fn(a, r)
		a.finish()
		return w
	}

	t.Run("of plain text is said anew", func(t *testing.T) {
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

	t.Run("that is a message goes its way", func(t *testing.T) {
		t.Parallel()
		w := serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"a":1}`))
		})
		require.Equal(t, `{"a":1}`, w.Body.String())
	})

	t.Run("that is a stream goes its way at once", func(t *testing.T) {
		t.Parallel()
		w := httptest.NewRecorder()
		a := &resultFilter{deadlineWriter: newDeadlineWriter(w, time.Minute), r: httptest.NewRequest(http.MethodPost, Path, nil)}
		a.Header().Set("Content-Type", "text/event-stream")
		_, err := a.Write([]byte("data: 1\n\n"))
		require.NoError(t, err)
		require.NoError(t, http.NewResponseController(a).Flush())
		require.True(t, w.Flushed)
		require.Equal(t, "data: 1\n\n", w.Body.String(), "before it has come to its end")
		require.Same(t, w, a.Unwrap())
	})
}

// TestAStreamEndsInOrder although nothing was said on it for longer than its client may take
// to hear anything.
func TestAStreamEndsInOrder(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &resultFilter{deadlineWriter: newDeadlineWriter(w, 10*time.Millisecond), r: r}
		defer a.finish()
		a.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(a, "data: 1\n\n")
		a.Flush()
		<-over
	}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	_, err = in.ReadString('\n')
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, func() { close(over) })
	rest, err := io.ReadAll(in)
	require.NoError(t, err, "not cut")
	require.Equal(t, "\n", string(rest))
}
