package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/a2a/remote"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// TestComet: another instance of comet executes tasks, over both bindings and in both versions.
func TestComet(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"JSON-RPC 1.0":  "/.well-known/agent-card.json?only=JSONRPC+1.0",
		"HTTP+JSON 1.0": "/.well-known/agent-card.json?only=HTTP%2BJSON+1.0",
		"JSON-RPC 0.3":  "/.well-known/agent.json",
		"tenant":        "/a2a/agents/echo-1/agent-card.json?only=HTTP%2BJSON+1.0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDatabases(t, func(t *testing.T, h *instance) {
				c := newComet(t, h.DB.Database())
				c.worker(t, "echo-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
					if strings.Contains(string(o.Input.Parameters), "ask") {
						if o.Task.Questions == 0 {
							_, _ = c.Clarify(ctx, "echo-1", o.Task.ID, orchestrator.Question{Text: "how many?", Options: []string{"1", "2"}})
							return
						}
						answer, _ := c.LastReply(ctx, o.Task)
						c.complete(ctx, o, "got "+answer)
						return
					}
					switch {
					case strings.Contains(string(o.Input.Parameters), "fail"):
						_, _ = c.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Failure: orchestrator.FailureWork, Text: "out of salt"})
					case strings.Contains(string(o.Input.Parameters), "forever"):
					case strings.Contains(string(o.Input.Parameters), "tokens"):
						_, _ = c.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Output: fmt.Appendf(nil, `{"budget":%d}`, *o.Task.Budget), Tokens: 42})
					case strings.Contains(string(o.Input.Parameters), "stream"):
						for i, piece := range []string{"one \"", "two\" ", "three"} {
							_, _ = c.Progress(ctx, "echo-1", o.Task.ID, orchestrator.Progress{Chunk: &orchestrator.Chunk{Start: int64([]int{0, 5, 10}[i]), Data: []byte(piece)}})
						}
						_, _ = c.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{})
					default:
						c.complete(ctx, o, string(o.Input.Parameters))
					}
				}, "echo")
				h.use(t, "proxy-1", c.server.URL+path, c.token, "echo")

				done, output := h.end(t, h.submit(t, "proxy-1", "echo", `{"n":12345678901234567890,"x":[1.0]}`))
				require.Equal(t, models.TaskDone, done.State, done.Error)
				require.JSONEq(t, `{"n":12345678901234567890,"x":[1.0]}`, output)
				require.Contains(t, output, "12345678901234567890")

				done, output = h.end(t, h.submit(t, "proxy-1", "echo", `{"text":"stream"}`))
				require.Equal(t, models.TaskDone, done.State, done.Error)
				require.JSONEq(t, `{"text":"one \"two\" three"}`, output)

				asked := h.submit(t, "proxy-1", "echo", `{"text":"ask"}`)
				waiting := h.WaitForTask(t, asked.ID, func(t models.Task) bool { return t.WaitingFor == models.WaitForReply })
				q, err := h.OpenQuestion(t.Context(), waiting)
				require.NoError(t, err)
				require.Equal(t, "how many?", q.Text)
				_, err = h.Reply(t.Context(), asked.ID, "2")
				require.NoError(t, err)
				done, output = h.end(t, asked)
				require.Equal(t, models.TaskDone, done.State, done.Error)
				require.Equal(t, 1, done.Questions)
				require.JSONEq(t, `{"text":"got 2"}`, output)

				done, _ = h.end(t, h.submit(t, "proxy-1", "echo", `{"text":"fail"}`))
				require.Equal(t, models.TaskFailed, done.State)
				require.Equal(t, string(orchestrator.FailureWork), done.ErrorCode)
				require.Contains(t, done.Error, "out of salt")
				require.Contains(t, string(done.Detail), `"REMOTE_FAILED"`)

				done, _ = h.end(t, h.submit(t, "proxy-1", "echo", `{"text":"a file","files":[{"name":"a.txt","media_type":"text/plain","bytes":"aGk="}]}`))
				require.Equal(t, models.TaskDone, done.State, done.Error)
				require.Contains(t, h.output(t, done), `"bytes":"aGk="`)

				limited, err := h.Submit(t.Context(), testkit.Admin(), orchestrator.Submission{
					Class: "quick", AgentID: "proxy-1", Capabilities: []string{"echo"}, Parameters: json.RawMessage(`{"text":"tokens"}`), Budget: new(int64(1000)),
				}, nil)
				require.NoError(t, err)
				done, output = h.end(t, limited.Task)
				require.Equal(t, models.TaskDone, done.State, done.Error)
				require.JSONEq(t, `{"budget":1000}`, output)
				require.EqualValues(t, 42, done.Tokens, "the remote agent reports the tokens of its task")

				long := h.submit(t, "proxy-1", "echo", `{"text":"forever"}`)
				h.WaitForTask(t, long.ID, func(t models.Task) bool { return t.State == models.TaskRunning })
				_, err = h.Cancel(t.Context(), long.ID, "enough", nil)
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					all, err := c.OpenTasksOf(t.Context(), "echo-1")
					return err == nil && len(all) == 0
				}, testkit.Timeout, 5*time.Millisecond, "the cancellation is forwarded")

				view, err := h.remotes.Get(t.Context(), "proxy-1")
				require.NoError(t, err)
				require.Equal(t, remote.AuthView{Type: "bearer", Header: "Authorization"}, view.Auth)
				require.NotNil(t, view.CheckedAt)
				require.Empty(t, view.Error)
				signature := "none"
				if !strings.Contains(path, "?only=") {
					signature = "verified"
				}
				require.Equal(t, signature, view.Card.Signature)
			})
		})
	}
}
