//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTailReconnects checks the position in the request after each lost connection.
func TestTailReconnects(t *testing.T) {
	t.Parallel()
	event := func(position int) string {
		return fmt.Sprintf("id: %d\nevent: task.created\ndata: {\"position\":%d,\"key\":\"t\",\"at\":\"2026-01-10T15:30:00Z\",\"data\":{}}\n\n", position, position)
	}
	answers := []string{
		"retry: 1000\nid: 4\n\n", // before any event
		"retry: 1000\nid: 4\n\n" + event(5) + "id: 6\nevent: task.cre",
		": alive\nid: 9\n\nevent: gap\nid: 11\ndata: {\"after\":9}\n\n" + event(12) + event(13),
	}
	asked := make(chan string, len(answers))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := len(asked)
		asked <- strings.Join(append(r.Header["Last-Event-Id"], r.URL.RawQuery), " ")
		_, _ = io.WriteString(w, answers[n])
	}))
	defer server.Close()
	var out, notes bytes.Buffer
	root, _ := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&notes)
	root.SetArgs([]string{"tail", "--server", server.URL, "--token", "x", "--types", "task.created,task.failed", "--limit", "3", "--no-headers"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	close(asked)
	var all []string
	for one := range asked {
		all = append(all, one)
	}
	require.Equal(t, []string{"types=task.created%2Ctask.failed", "4 types=task.created%2Ctask.failed", "5 types=task.created%2Ctask.failed"}, all)
	require.Equal(t, 3, strings.Count(out.String(), "task.created"))
	require.Contains(t, notes.String(), "events were deleted")
	require.Equal(t, 2, strings.Count(notes.String(), "the stream ended"))
}

// TestTailReconnectsBeforeTheFirstEvent breaks the connections to a server before anything has come
// on them, so that the client has no position yet.
func TestTailReconnectsBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	s := startTestServer(t, "sqlite")
	address, err := url.Parse(s.url)
	require.NoError(t, err)
	connected := make(chan struct{})
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.ModifyResponse = func(*http.Response) error { // the server has chosen the position
		close(connected)
		return nil
	}
	requests := make(chan string, 4)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := len(requests)
		requests <- r.Header.Get("Last-Event-ID")
		switch n {
		case 0:
			_ = http.NewResponseController(w).Flush() // an accepted connection that breaks
			panic(http.ErrAbortHandler)
		case 1:
			panic(http.ErrAbortHandler) // no response
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	defer front.Close()
	var out, notes bytes.Buffer
	root, _ := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&notes)
	root.SetArgs([]string{"tail", "--server", front.URL, "--token", s.token, "--types", "agent.created", "--limit", "1"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(t.Context()) }()
	select {
	case err := <-ended:
		require.Fail(t, "the command ended before it was connected", "%v\n%s", err, notes.String())
	case <-connected:
	}
	w := s.newWorker(t)
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "agent.created  "+w.id)
	require.Equal(t, 3, strings.Count(notes.String(), "connecting again in"), notes.String())
	close(requests)
	for position := range requests {
		require.Empty(t, position, "no connection had one")
	}
}

// TestTailFailsWithoutAFirstConnection checks that a failed first connection is not retried.
func TestTailFailsWithoutAFirstConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, after := range [][]string{nil, {"--after", "7"}} {
		ctx, cancel := context.WithCancel(t.Context())
		root, _ := newRootCommand()
		root.SetOut(io.Discard)
		root.SetErr(writerFunc(func(note []byte) { // it would try for ever
			assert.Fail(t, "the command connects again", "%s", note)
			cancel()
		}))
		root.SetArgs(append([]string{"tail", "--server", server.URL, "--token", "x"}, after...))
		require.Equal(t, exitUnavailable, exitCode(root.ExecuteContext(ctx)))
		cancel()
	}
}

// writerFunc is called with what is written.
type writerFunc func(p []byte)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func TestCopyPrintable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, copyPrintable(&out, strings.NewReader("a\tb\n\x1b[2J\xc2\x9bc\r\xffä\u202e")))
	require.Equal(t, "a\tb\n\\u001b[2J\\u009bc\\u000d\\ufffdä\\u202e\n", out.String(), "the last line is ended")
	for text, want := range map[string]string{"": "", "\n": "\n", "done\n": "done\n", "done": "done\n"} {
		out.Reset()
		require.NoError(t, copyPrintable(&out, strings.NewReader(text)))
		require.Equal(t, want, out.String())
	}
}
