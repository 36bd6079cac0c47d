package remote_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/replicas"
)

type handler = func(w http.ResponseWriter, r *http.Request, c call) string

// hang responds to nothing until the client is gone.
func hang(r *http.Request) string {
	<-r.Context().Done()
	return ""
}

// TestPolling: an agent without streams gets SendMessage, and its task is read until it ends.
func TestPolling(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		reads := 0
		f := newFake(t, pollingCard, nil)
		f.set(pollingCard, func(_ http.ResponseWriter, _ *http.Request, c call) string {
			if c.method == "SendMessage" {
				return `{"task":` + task("SUBMITTED", "}") + `}`
			}
			if reads++; reads < 3 {
				return task("WORKING", "}")
			}
			return task("COMPLETED", `},"artifacts":[{"artifactId":"1","parts":[{"text":"a"},{"text":"b"}]},
				{"artifactId":"2","parts":[{"data":{"n":1.50}},{"url":"https://x.example/f","filename":"f"}],"metadata":{"usage":{"tokens":7}}}]`)
		})
		h.use(t, "fake-1", f.url(), "secret", "cook")
		session, err := h.OpenSession(t.Context(), testkit.Admin(), "", nil)
		require.NoError(t, err)
		for _, contextID := range []string{"", "c-1"} {
			submitted, err := h.Submit(t.Context(), testkit.Admin(), orchestrator.Submission{
				Class: "quick", AgentID: "fake-1", Capabilities: []string{"custom:cook"}, Parameters: json.RawMessage(`{"text":"soup"}`), SessionID: session.ID, Traceparent: trace,
			}, nil)
			require.NoError(t, err)
			done, output := h.end(t, submitted.Task)
			require.Equal(t, models.TaskDone, done.State, done.Error)
			require.Equal(t, `{"text":"ab","data":{"n":1.50},"files":[{"name":"f","url":"https://x.example/f"}]}`, output)
			require.EqualValues(t, 7, done.Tokens)
			sent := f.called("SendMessage")
			last := sent[len(sent)-1]
			require.Equal(t, contextID, last.params.Message.ContextID, "a session is a context")
			require.Equal(t, done.ID+".1", last.params.Message.MessageID)
			require.JSONEq(t, `[{"text":"soup"}]`, string(last.params.Message.Parts))
			require.Equal(t, map[string]any{"capability": "cook", "comet_hops": 1.0, "traceparent": traceOf(t, h, done.ID)}, last.params.Message.Metadata)
			require.Equal(t, true, last.params.Configuration["returnImmediately"])
			require.Equal(t, []string{"1.0", "Bearer secret", traceOf(t, h, done.ID)}, []string{last.header.Get("A2A-Version"), last.header.Get("Authorization"), last.header.Get("Traceparent")})
		}
	})
}

// traceOf returns the trace context of a task.
func traceOf(t *testing.T, h *instance, id string) string {
	t.Helper()
	in, err := h.TaskWithInput(t.Context(), id)
	require.NoError(t, err)
	require.NotEmpty(t, in.Input.Trace)
	return in.Input.Trace
}

// TestStreams: pieces of a text are reported as they arrive; after a disconnection the stream is resumed.
func TestStreams(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		more := make(chan struct{})
		artifact := func(text, rest string) string {
			return `{"artifactUpdate":{"taskId":"r-1","contextId":"c-1","artifact":{"artifactId":"a","parts":[{"text":"` + text + `"}]},` + rest + `}}`
		}
		f := newFake(t, streamingCard, func(w http.ResponseWriter, _ *http.Request, c call) string {
			switch c.method {
			case "SendStreamingMessage":
				sse(w, `{"task":`+task("WORKING", "}")+`}`, artifact("one ", `"append":false,"lastChunk":false`), artifact("two ", `"append":true`))
				return "" // the connection ends
			case "SubscribeToTask":
				if c.header.Get("Last-Event-ID") != "3" {
					return "null"
				}
				<-more
				sse(w, `{"statusUpdate":{"taskId":"r-1","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"nearly"}]}},"metadata":{"progress":80}}}`,
					artifact("three", `"append":true,"lastChunk":true`), completed)
				return ""
			}
			select {
			case <-more:
				return task("COMPLETED", `},"artifacts":[{"artifactId":"a","parts":[{"text":"one "},{"text":"two three"}]}]`)
			default:
				return task("WORKING", `},"artifacts":[{"artifactId":"a","parts":[{"text":"one two "}]}]`)
			}
		})
		h.use(t, "fake-1", f.url(), "", "cook")
		submitted := h.submit(t, "fake-1", "cook", `{"a":1}`)
		h.WaitForTask(t, submitted.ID, func(now models.Task) bool { return h.output(t, now) == `{"text":"one two ` })
		f.waitFor(t, "SubscribeToTask", 1)
		close(more)
		done, output := h.end(t, submitted)
		require.Equal(t, models.TaskDone, done.State, done.Error)
		require.Equal(t, `{"text":"one two three"}`, output)
		require.Zero(t, done.LogBytes, "the pieces are the result")
		require.Len(t, f.called("SendStreamingMessage"), 1)
	})
}

// TestOutcomes: how a remote task that does not succeed ends the task.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	status := func(state, text string) string {
		return `{"statusUpdate":{"taskId":"r-1","status":{"state":"TASK_STATE_` + state + `","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"` + text + `"}]}}}}`
	}
	respond := func(events ...string) handler {
		return func(w http.ResponseWriter, _ *http.Request, c call) string {
			if c.method == "CancelTask" {
				return task("CANCELED", "}")
			}
			sse(w, append([]string{`{"task":` + task("WORKING", "}") + `}`}, events...)...)
			return ""
		}
	}
	plain := func(code int, body string) handler {
		return func(w http.ResponseWriter, _ *http.Request, c call) string {
			w.Header().Set("Location", "http://169.254.169.254/latest")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
			return ""
		}
	}
	for name, c := range map[string]struct {
		on       handler
		failure  orchestrator.Failure
		text     string
		canceled bool
	}{
		"failed":        {respond(status("FAILED", "burnt")), orchestrator.FailureWork, "REMOTE_FAILED: the remote task has failed: burnt", false},
		"rejected":      {respond(status("REJECTED", "no meat")), orchestrator.FailureUnsupported, "REMOTE_REJECTED: the remote agent rejects the task: no meat", false},
		"canceled":      {respond(status("CANCELED", "")), orchestrator.FailureWork, "REMOTE_CANCELED: the remote agent has canceled the task", false},
		"auth required": {respond(status("AUTH_REQUIRED", "log in")), orchestrator.FailureWork, "REMOTE_AUTH_REQUIRED: the remote agent requires another authorization, which comet cannot give: log in", true},
		"401":           {plain(401, ""), orchestrator.FailureWork, "REMOTE_UNAUTHORIZED: the remote agent rejects the credentials with 401", false},
		"redirect":      {plain(307, ""), orchestrator.FailureInvalid, "REMOTE_REFUSED: the remote agent responded with 307 to \"http://169.254.169.254/latest\"; redirects are not followed", false},
		"no JSON":       {plain(200, "<html>"), orchestrator.FailureWork, "REMOTE_INVALID_RESPONSE: a response of the remote agent is not one of JSON-RPC: \"<html>\"", false},
		"no event":      {respond(`{"pong":1}`), orchestrator.FailureWork, "REMOTE_INVALID_RESPONSE: a response of the remote agent is none of the events of A2A: \"{\\\"pong\\\":1}\"", true},
		"another task":  {respond(`{"statusUpdate":{"taskId":"r-2","status":{"state":"TASK_STATE_COMPLETED"}}}`), orchestrator.FailureWork, "REMOTE_INVALID_RESPONSE: the remote agent sends events of the task \"r-2\" instead of \"r-1\"", true},
		"huge event":    {respond(status("WORKING", strings.Repeat("x", 13<<20))), orchestrator.FailureWork, "REMOTE_LIMIT_EXCEEDED: an event of the remote agent has more than 12582912 bytes", true},
		"error":         {plain(200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such dish","data":[{"reason":"INVALID_PARAMS"}]}}`), orchestrator.FailureInvalid, "REMOTE_REFUSED: the remote agent reports the error -32602: no such dish", false},
		"overloaded":    {plain(503, ""), orchestrator.FailureUnavailable, "REMOTE_UNREACHABLE: the remote agent responded with 503", false},
		"message, no end": {func(_ http.ResponseWriter, _ *http.Request, c call) string {
			return `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[]}}`
		}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onDatabases(t, func(t *testing.T, h *instance) {
				require.NoError(t, h.remotes.Stop(t.Context()))
				h.opts.Patience = time.Nanosecond
				if c.failure == orchestrator.FailureUnavailable { // the clock of the test stands still
					begun := time.Now()
					h.opts.Clock = func() time.Time { return h.DB.Now().Add(time.Since(begun)) }
				}
				h.restart(t)
				f := newFake(t, streamingCard, c.on)
				h.use(t, "fake-1", f.url(), "", "cook")
				done, _ := h.end(t, h.submit(t, "fake-1", "cook", `{}`))
				require.Equal(t, [2]string{string(c.failure), c.text}, [2]string{done.ErrorCode, done.Error})
				if c.canceled {
					f.waitFor(t, "CancelTask", 1)
				} else {
					require.Empty(t, f.called("CancelTask"))
				}
			})
		})
	}
}

// TestSentOnce: a message whose response was lost is sent again with the same id, by whichever replica has the agent then, and a
// task whose id is known is followed instead.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		lost, follow, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
		f := newFake(t, streamingCard, nil)
		f.set(streamingCard, func(w http.ResponseWriter, r *http.Request, c call) string {
			switch c.method {
			case "SendStreamingMessage":
				select {
				case <-lost:
				default:
					return hang(r) // it has the message, and the response never arrives
				}
				sse(w, `{"task":`+task("WORKING", "}")+`}`)
				return hang(r)
			case "SubscribeToTask":
				select {
				case <-finish:
					sse(w, `{"artifactUpdate":{"taskId":"r-1","artifact":{"artifactId":"a","parts":[{"data":[1]}]},"lastChunk":true}}`, completed)
					return ""
				case <-follow:
				case <-r.Context().Done():
				}
				return ""
			}
			return task("WORKING", "}")
		})
		h.use(t, "fake-1", f.url(), "", "cook")
		submitted := h.submit(t, "fake-1", "cook", `{}`)
		first := f.waitFor(t, "SendStreamingMessage", 1)
		dead := h.remotes
		close(lost)
		h.crash(t)
		second := f.waitFor(t, "SendStreamingMessage", 2)
		require.Equal(t, first.params.Message.MessageID, second.params.Message.MessageID)
		h.WaitForTask(t, submitted.ID, func(now models.Task) bool { return now.State == models.TaskRunning })
		alive := h.remotes
		h.crash(t)
		f.waitFor(t, "SubscribeToTask", 1)
		close(finish)
		done, output := h.end(t, submitted)
		require.Equal(t, models.TaskDone, done.State, done.Error)
		require.Equal(t, `[1]`, output)
		require.Equal(t, 1, done.Attempt)
		for _, c := range f.called("SendStreamingMessage") {
			require.Equal(t, first.params.Message.MessageID, c.params.Message.MessageID)
		}
		require.NoError(t, dead.Stop(context.Background()))
		require.NoError(t, alive.Stop(context.Background()))
	})
}

// crash gives what the process holds to another one, as the others do with a process that has died, and starts the other.
func (h *instance) crash(t *testing.T) {
	t.Helper()
	before := h.remotes
	h.restart(t)
	require.NoError(t, h.DB.Write(t.Context(), func(tx *store.Tx) error {
		_, err := replicas.Release(tx, h.DB.Process())
		return err
	}))
	stopped := make(chan error, 1)
	go func() { stopped <- before.Stop(context.Background()) }()
	require.NoError(t, testkit.Receive(t, stopped))
}

// TestQuestion: a question is passed on once, also if another replica continues, and the reply is sent with the id of the task.
func TestQuestion(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		asking := task("INPUT_REQUIRED", `,"message":{"messageId":"q-1","role":"ROLE_AGENT","parts":[{"text":"salt?"}],"metadata":{"options":["yes","no"]}}}`)
		f := newFake(t, pollingCard, func(_ http.ResponseWriter, _ *http.Request, c call) string {
			if c.params.Message.TaskID != "" {
				return `{"task":` + task("COMPLETED", `},"artifacts":[{"artifactId":"1","parts":[{"text":"ok"}]}]`) + `}`
			}
			if c.method == "SendMessage" {
				return `{"task":` + asking + `}`
			}
			return asking
		})
		h.use(t, "fake-1", f.url(), "", "cook")
		submitted := h.submit(t, "fake-1", "cook", `{}`)
		waiting := h.WaitForTask(t, submitted.ID, func(now models.Task) bool { return now.WaitingFor == models.WaitForReply })
		q, err := h.OpenQuestion(t.Context(), waiting)
		require.NoError(t, err)
		require.Equal(t, orchestrator.Question{Text: "salt?", Options: []string{"yes", "no"}}, q.Question)
		h.crash(t)
		f.waitFor(t, "GetTask", len(f.called("GetTask"))+3)
		_, err = h.Reply(t.Context(), submitted.ID, "yes")
		require.NoError(t, err)
		done, output := h.end(t, submitted)
		require.Equal(t, models.TaskDone, done.State, done.Error)
		require.Equal(t, 1, done.Questions)
		require.Equal(t, `{"text":"ok"}`, output)
		sent := f.called("SendMessage")
		require.Len(t, sent, 2)
		require.Equal(t, [2]string{"r-1", "c-1"}, [2]string{sent[1].params.Message.TaskID, sent[1].params.Message.ContextID})
		require.JSONEq(t, `[{"text":"yes"}]`, string(sent[1].params.Message.Parts))
		require.Eventually(t, func() bool {
			left, err := h.Messages(t.Context(), "fake-1", 10)
			return err == nil && len(left) == 0
		}, testkit.Timeout, 5*time.Millisecond)
	})
}

// TestTimeout: a task that takes too long, or is cancelled before the remote agent has responded, is cancelled there.
func TestTimeout(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		respond := make(chan struct{})
		f := newFake(t, streamingCard, func(w http.ResponseWriter, r *http.Request, c call) string {
			switch c.method {
			case "SendStreamingMessage":
				if strings.Contains(string(c.params.Message.Parts), "slow") {
					<-respond
				}
				sse(w, `{"task":`+task("WORKING", "}")+`}`)
				return hang(r)
			case "CancelTask":
				return task("CANCELED", "}")
			}
			return task("WORKING", "}")
		})
		h.use(t, "fake-1", f.url(), "", "cook")
		submitted, err := h.Submit(t.Context(), testkit.Admin(), orchestrator.Submission{
			Class: "quick", AgentID: "fake-1", Capabilities: []string{"cook"}, Parameters: json.RawMessage(`{}`), Override: orchestrator.Override{AttemptTimeoutMS: 60_000},
		}, nil)
		require.NoError(t, err)
		h.WaitForTask(t, submitted.Task.ID, func(now models.Task) bool { return now.State == models.TaskRunning })
		h.DB.Clock.Advance(2 * time.Minute)
		require.Equal(t, "r-1", f.waitFor(t, "CancelTask", 1).params.ID)
		done, _ := h.end(t, submitted.Task)
		require.Equal(t, string(orchestrator.FailureTimeout), done.ErrorCode)

		slow := h.submit(t, "fake-1", "cook", `{"text":"slow"}`)
		f.waitFor(t, "SendStreamingMessage", 2)
		_, err = h.Cancel(t.Context(), slow.ID, "", nil)
		require.NoError(t, err)
		close(respond)
		f.waitFor(t, "CancelTask", 2)
	})
}

// TestOffline: an agent whose card is not readable is offline, and comes back. A changed card is used.
func TestOffline(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		require.NoError(t, h.remotes.Stop(t.Context()))
		h.opts.Recheck = time.Nanosecond
		begun := time.Now()
		h.opts.Clock = func() time.Time { return h.DB.Now().Add(time.Since(begun)) }
		h.restart(t)
		f := newFake(t, streamingCard, func(http.ResponseWriter, *http.Request, call) string {
			return `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}`
		})
		h.use(t, "fake-1", f.url(), "", "cook")
		f.set(`{"name":"Fake"}`, nil)
		h.WaitForWorker(t, "fake-1", func(w models.Worker) bool { return w.State == models.WorkerOffline })
		require.Eventually(t, func() bool {
			v, err := h.remotes.Get(t.Context(), "fake-1")
			return err == nil && v.Error == "the agent card has no address: version 1.0 has supportedInterfaces, version 0.3 has url" && v.Card.Version == "3"
		}, testkit.Timeout, 5*time.Millisecond)
		f.set(strings.Replace(pollingCard, `"3"`, `"4"`, 1), nil)
		require.Eventually(t, func() bool {
			v, err := h.remotes.Get(t.Context(), "fake-1")
			return err == nil && v.Error == "" && v.Card.Version == "4" && !v.Card.Streaming
		}, testkit.Timeout, 5*time.Millisecond)
		require.Eventually(t, func() bool { // the agent is offline for a moment
			done, _ := h.end(t, h.submit(t, "fake-1", "cook", `{}`))
			return done.State == models.TaskDone && len(f.called("SendMessage")) > 0
		}, testkit.Timeout, 5*time.Millisecond)
		require.NoError(t, h.remotes.Delete(t.Context(), testkit.Admin(), "fake-1"))
		h.WaitForWorker(t, "fake-1", func(w models.Worker) bool { return w.State == models.WorkerOffline })
		_, err := h.remotes.Get(t.Context(), "fake-1")
		require.Error(t, err)
	})
}
