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

// TestWatchReconnects checks that events which the state already contains are not printed again, and that a lost connection
// loses no events.
func TestWatchReconnects(t *testing.T) {
	t.Parallel()
	step := func(version int, kind, step, status, more string) string {
		return fmt.Sprintf("id: %d\nevent: workflow.%s\ndata: {\"data\":{\"step\":%q,\"step_status\":%q,\"version\":%d%s}}\n\n", 40+version, kind, step, status, version, more)
	}
	streams := []string{
		"id: 40\n\n" + step(1, "step_started", "a", "running", "") + step(2, "step_started", "b", "running", "") + "id: 43\nevent: workflow.st",
		step(3, "step_ended", "a", "success", "") + step(4, "step_ended", "b", "error", `,"duration_ms":7,"error":"no\nink"`) + "id: 45\nevent: workflow.ended\ndata: {\"data\":{\"version\":5}}\n\n",
	}
	state := func(status string, tasks ...string) string {
		return `{"status":"` + status + `","workflow_id":"wf_1","task_results":[` + strings.Join(tasks, ",") + `]}`
	}
	task := func(id, status string) string {
		return fmt.Sprintf(`{"taskId":%q,"status":%q,"duration_ms":5}`, id, status)
	}
	states := []string{ // after each connection, and after the end
		state("running", task("a", "running"), task("b", "pending")),
		state("running", task("a", "success"), task("b", "running")), state("error", task("a", "success"), task("b", "error")),
	}
	versions := []string{"1", "3", "5"}
	var read, followed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/events" {
			followed = append(followed, strings.Join(append(r.Header["Last-Event-Id"], r.URL.RawQuery), " "))
			_, _ = io.WriteString(w, streams[len(followed)-1])
			return
		}
		read = append(read, r.URL.Path)
		w.Header().Set("ETag", `"`+versions[len(read)-1]+`.0000"`)
		_, _ = io.WriteString(w, states[len(read)-1])
	}))
	defer server.Close()
	var out, notes bytes.Buffer
	root, _ := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&notes)
	root.SetArgs([]string{"workflows", "watch", "wf_1", "--server", server.URL, "--token", "x"})
	require.EqualError(t, root.ExecuteContext(t.Context()), "the status of the workflow is error")
	require.Equal(t, []string{"workflow_id=wf_1", "42 workflow_id=wf_1"}, followed)
	require.Equal(t, []string{"/api/v1/workflows/wf_1", "/api/v1/workflows/wf_1", "/api/v1/workflows/wf_1"}, read)
	require.Regexp(t, `^a  running\nb  running\nthe stream ended; connecting again in .*\na  success  5ms\nb  error  7ms  no ink\n$`, notes.String())
	require.Contains(t, out.String(), "Status:    error\n")
}
