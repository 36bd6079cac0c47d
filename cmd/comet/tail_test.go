package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
