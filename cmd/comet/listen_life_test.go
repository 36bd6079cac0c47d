package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// removing runs unregister against a server that responds with these statuses, one after the
// other, 0 for no response, and returns the printed messages.
func removing(t *testing.T, timeout time.Duration, statuses ...int) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete || r.URL.Path != "/api/v1/webhooks/w1" || len(statuses) == 0 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		status := statuses[0]
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	var notes bytes.Buffer
	err := (&session{http: server.Client(), server: server.URL, messages: &notes}).unregister(t.Context(), "w1", timeout)
	return strings.ReplaceAll(notes.String(), server.URL, "SERVER"), err
}

func TestListenerRemovesItsWebhook(t *testing.T) {
	t.Parallel()
	const removed = "removed webhook w1\n"
	const byHand = "The webhook w1 still exists. Remove it with\n  comet webhooks delete w1 --server SERVER\n"
	for name, c := range map[string]struct {
		statuses []int
		timeout  time.Duration
		want     string
		code     int
	}{
		"at once":                                {[]int{204}, removeTimeout, removed, exitOK},
		"or when the server is back":             {[]int{0, 503, 500, 204}, removeTimeout, removed, exitOK},
		"or not if it is removed already":        {[]int{404}, removeTimeout, removed, exitOK},
		"and says how where it may not":          {[]int{401}, removeTimeout, byHand, exitForbidden},
		"and says how where the server is gone":  {[]int{0}, time.Millisecond, byHand, exitUnavailable},
		"and says how where the server is broke": {[]int{503}, 100 * time.Millisecond, byHand, exitUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := removing(t, c.timeout, c.statuses...)
			require.Equal(t, c.code, exitCode(err))
			require.Equal(t, c.want, got)
		})
	}
}

// TestListenerThatCannotBeReached uses a server that registers the webhook and cannot deliver to
// it.
func TestListenerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	var asked sharedText
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(&asked, r.Method+" "+r.URL.Path+"\n")
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path {
		case "POST /api/v1/webhooks":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id":"w1","url":"http://127.0.0.1:7/"}`)
		case "POST /api/v1/webhooks/w1/test":
			_, _ = io.WriteString(w, `{"delivery_id":"d1","succeeded":false,"attempt":{"attempt":1,"duration_ms":3,"error":"connection refused"}}`)
		case "DELETE /api/v1/webhooks/w1":
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(server.Close)
	root, _ := newRootCommand()
	var notes bytes.Buffer
	root.SetErr(&notes)
	root.SetArgs([]string{"webhooks", "listen", "--server", server.URL, "--client-config", ""})
	err := root.ExecuteContext(t.Context())
	require.Equal(t, exitFailure, exitCode(err))
	require.ErrorContains(t, err, "the test was not delivered: connection refused after 3 ms")
	require.Equal(t, "POST /api/v1/webhooks\nPOST /api/v1/webhooks/w1/test\nDELETE /api/v1/webhooks/w1\n", asked.String())
	require.Contains(t, notes.String(), "COMET_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8,::1/128 comet serve")
	require.Contains(t, notes.String(), "removed webhook w1\n")
}

func TestListenerNeedsAnAddressThatTheServerCanReach(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		root, _ := newRootCommand()
		root.SetArgs([]string{"webhooks", "listen", "--listen", address, "--client-config", ""})
		err := root.ExecuteContext(t.Context())
		require.Equal(t, exitUsage, exitCode(err))
		require.ErrorContains(t, err, "--listen must have an address")
	}
}
