package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/wire/genesis"
)

// taskText returns a result as text: a JSON string without quotes, any other JSON in its compact form.
func taskText(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if len(data) == 0 {
		return ""
	}
	require.NoError(t, json.Unmarshal(data, &v), "%s", data)
	if text, ok := v.(string); ok {
		return text
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// stateOfFailure returns the state of an outcome for a failure of the core.
func stateOfFailure(failure string) string {
	return map[string]string{"failed": "failed", "timeout": "timeout", "budget_exceeded": "over budget", "resource_limit": "limited", "unsupported": "unsupported"}[failure]
}

// genesisRequester submits tasks by signed REQUEST messages: as a client over HTTP, which waits or reads server-sent events, or as
// an agent over a WebSocket.
type genesisRequester struct {
	f         *protocolFixture
	transport string
}

func (a genesisRequester) name() string { return "genesis over " + a.transport }

func (a genesisRequester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	var peer *genesisPeer
	if a.transport == "HTTP" {
		peer = a.f.newGenesisPeer(t, "dashboard", a.f.Token, false)
	} else {
		id, token := a.f.registerAgent(t, "boss", "messages:send")
		peer = a.f.newGenesisPeer(t, id, token, true)
	}
	about := map[string]any{}
	if q.budget > 0 {
		about["maxTokens"] = q.budget
	}
	id, correlation := uuid.NewString(), q.trace
	if correlation == "" {
		correlation = uuid.NewString()
	}
	raw, err := peer.request(id, correlation, q.capability, map[string]any{"do": q.action, "n": 5}, about, genesis.Options{Stream: true, RequiresAck: true})
	require.NoError(t, err)
	if a.transport == "HTTP" && !q.isOpen() {
		return a.wait(t, peer, raw)
	}
	var conn genesisConn
	if a.transport == "HTTP" {
		conn = peer.stream(t, raw)
	} else {
		conn, err = peer.connect()
		require.NoError(t, err)
		require.NoError(t, conn.send(raw))
	}
	defer conn.close()
	return a.follow(t, peer, conn, q, id, raw)
}

// wait sends a REQUEST again until its task has ended.
func (a genesisRequester) wait(t *testing.T, peer *genesisPeer, raw []byte) (got outcome) {
	t.Helper()
	eventually(t, func() bool {
		reply, err := peer.post(t.Context(), raw, "Prefer", "wait=20")
		if err != nil || reply.status == http.StatusAccepted {
			return false
		}
		m, err := peer.read(reply.body)
		require.NoError(t, err)
		if isBusy(m, reply.location) {
			return false
		}
		got = a.outcome(t, m, reply.location)
		return true
	}, "the task ends")
	return got
}

// isBusy reports whether a busy server asks to send a REQUEST again.
func isBusy(m genesis.Message, task string) bool {
	f, failed := m.Body.(genesis.Failure)
	return failed && task == "" && (f.ErrorCode == "UNAVAILABLE" || f.ErrorCode == "INTERNAL_ERROR")
}

// stream sends a REQUEST and returns the server-sent events that answer it. Other messages are sent as requests.
func (p *genesisPeer) stream(t *testing.T, raw []byte) genesisConn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var resp *http.Response
	eventually(t, func() bool { // a busy server may ask to retry
		var err error
		resp, err = p.Open(ctx, http.MethodPost, "/api/genesis/messages", string(raw), "Content-Type", "application/json", "Accept", "text/event-stream")
		require.NoError(t, err)
		if resp.StatusCode != http.StatusServiceUnavailable {
			return true
		}
		_ = resp.Body.Close()
		return false
	}, "the server responds")
	if resp.StatusCode != http.StatusOK { // the request was refused
		defer cancel()
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return genesisConn{nil, func() (genesis.Message, error) { return p.read(body) }, func() {}}
	}
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, genesis.MaxSize)
	return genesisConn{func(raw []byte) error {
		_, err := p.post(ctx, raw)
		return err
	}, func() (genesis.Message, error) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return p.read([]byte(data))
			}
		}
		return genesis.Message{}, lines.Err()
	}, func() {
		cancel()
		_ = resp.Body.Close()
	}}
}

// follow reads the messages about the task of a REQUEST until its end.
func (a genesisRequester) follow(t *testing.T, peer *genesisPeer, conn genesisConn, q testRequest, id string, raw []byte) outcome {
	t.Helper()
	task := ""
	parts := ""
	for {
		m, err := conn.next()
		require.NoError(t, err)
		switch body := m.Body.(type) {
		case genesis.Event:
			if body.EventType != "message.ack" {
				require.Equal(t, "task.progress", body.EventType)
				continue
			}
			var ack struct{ OriginalMessageID, TaskID string }
			require.NoError(t, json.Unmarshal(body.Payload, &ack))
			if ack.OriginalMessageID != id || task != "" { // about the cancellation, or about the delivery
				continue
			}
			task = ack.TaskID
			if q.cancel != nil {
				q.waitForStart(t)
				order, err := peer.request(uuid.NewString(), "", "cancel_task", map[string]any{"requestId": id}, map[string]any{}, genesis.Options{})
				require.NoError(t, err)
				require.NoError(t, conn.send(order))
			} else if q.part != nil && !q.part.shown {
				q.waitForPart(t, nil)
			}
		case genesis.Request:
			require.Equal(t, "clarify", body.Intent)
			var asked struct {
				Question string
				Options  []string
			}
			require.NoError(t, json.Unmarshal(body.Payload, &asked))
			require.Equal(t, []any{"which format?", []string{"json", "txt"}}, []any{asked.Question, asked.Options})
			answer, err := peer.request(uuid.NewString(), "", "clarify", map[string]any{"requestId": id, "answer": q.reply}, map[string]any{}, genesis.Options{})
			if a.transport == "WebSocket" {
				answer, err = peer.sign(uuid.NewString(), m.CorrelationID, genesis.Response{RequestID: m.ID, Status: genesis.Succeeded, Data: []byte(`"` + q.reply + `"`)})
			}
			require.NoError(t, err)
			require.NoError(t, conn.send(answer))
		case genesis.Response:
			if body.RequestID != id {
				continue // about the cancellation
			}
			if body.Status == genesis.Partial {
				require.EqualValues(t, 1, body.Sequence)
				parts += taskText(t, body.Data)
				q.waitForPart(t, func() bool { return true })
				continue
			}
			if q.part != nil && q.part.shown {
				require.Equal(t, "one ", parts)
			}
			return a.outcome(t, m, task)
		case genesis.Failure:
			if !isBusy(m, task) {
				return a.outcome(t, m, task)
			}
			require.NoError(t, conn.send(raw))
		}
	}
}

// outcome returns the end of a task.
func (genesisRequester) outcome(t *testing.T, m genesis.Message, task string) outcome {
	t.Helper()
	switch body := m.Body.(type) {
	case genesis.Response:
		if body.Status == genesis.Succeeded {
			return outcome{"done", taskText(t, body.Data), task}
		}
		require.Equal(t, genesis.Failed, body.Status)
		return outcome{"failed", body.Error.Message, task}
	case genesis.Failure:
		state := map[string]string{"BUDGET_EXCEEDED": "over budget", "CANCELLED": "cancelled", "TIMEOUT": "timeout", "RESOURCE_LIMIT": "limited", "UNSUPPORTED_INTENT": "unsupported"}[body.ErrorCode]
		return outcome{state, body.ErrorCode + ": " + body.Message, task}
	}
	require.Fail(t, "no end of a task", "%+v", m)
	return outcome{}
}

// mcpRequester submits tasks by the tool comet:submit_task.
type mcpRequester struct{ f *protocolFixture }

func (mcpRequester) name() string { return "mcp" }

// addHeader adds a header to requests.
type addHeader struct {
	header []string
	next   http.RoundTripper
}

func (a addHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for i := 0; i < len(a.header); i += 2 {
		r.Header.Set(a.header[i], a.header[i+1])
	}
	return a.next.RoundTrip(r)
}

func (a mcpRequester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	asked := 0
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if asked++; !strings.Contains(r.Params.Message, "which format?") || q.reply == "" {
			return &mcp.ElicitResult{Action: "decline"}, nil
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"reply": q.reply}}, nil
	}}).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: a.f.URL + "/mcp", HTTPClient: &http.Client{Transport: addHeader{append(q.traceparent(), "Authorization", "Bearer "+a.f.Token), a.f.HTTP.Transport}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: newest})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	arguments := map[string]any{"capabilities": []string{"custom:" + q.capability}, "parameters": map[string]any{"do": q.action, "n": 5}, "wait_seconds": 60, "request_id": uuid.NewString()}
	if q.budget > 0 {
		arguments["budget"] = q.budget
	}
	if q.cancel != nil || q.part != nil {
		arguments["wait_seconds"] = 0
	}
	var res *mcp.CallToolResult
	eventually(t, func() bool { // a busy server may ask to retry
		res = called(t, s, "comet:submit_task", arguments)
		return !res.IsError || !strings.HasPrefix(mcptest.TextOf(t, res), "UNAVAILABLE: ")
	}, "the request is accepted or refused")
	got, ended := a.outcome(t, res)
	switch {
	case q.cancel != nil:
		q.waitForStart(t)
		got, ended = a.outcome(t, called(t, s, "comet:cancel_task", map[string]any{"task_id": got.task}))
	case q.part != nil:
		q.waitForPart(t, nil)
	}
	for !ended {
		got, ended = a.outcome(t, called(t, s, "comet:task_status", map[string]any{"task_id": got.task, "wait_seconds": 60}))
	}
	if q.reply != "" {
		require.Equal(t, 1, asked)
	}
	return got
}

// outcome returns the state of a task that a tool has returned.
func (mcpRequester) outcome(t *testing.T, res *mcp.CallToolResult) (got outcome, ended bool) {
	t.Helper()
	if res.IsError {
		text, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		var failed struct {
			Error struct {
				Code, Message, State, Reason string
				TaskID                       string `json:"task_id"`
			}
		}
		require.NoError(t, json.Unmarshal(text, &failed))
		state := stateOfFailure(failed.Error.Reason)
		switch {
		case failed.Error.Code == "BUDGET_EXCEEDED":
			state = "over budget"
		case failed.Error.State == "cancelled":
			state = "cancelled"
		case failed.Error.Code == "INVALID_ARGUMENTS" && strings.Contains(failed.Error.Message, "no agent offers"):
			state = "unsupported"
		}
		return outcome{state, string(text), failed.Error.TaskID}, true
	}
	var out struct {
		TaskID string `json:"task_id"`
		State  string
		Result json.RawMessage
	}
	decode(t, []byte(mcptest.TextOf(t, res)), &out)
	return outcome{out.State, taskText(t, out.Result), out.TaskID}, out.State != "new" && out.State != "running"
}

// a2aRequester submits tasks by messages of A2A 1.0 over HTTP+JSON.
type a2aRequester struct{ f *protocolFixture }

func (a2aRequester) name() string { return "a2a" }

// a2aPart, a2aTask and a2aEvent are what a client reads.
type a2aPart struct {
	Text string
	Data json.RawMessage
}

type a2aTask struct {
	ID     string
	Status struct {
		State   string
		Message *struct {
			Parts    []a2aPart
			Metadata struct {
				Code    string
				Options []string
			}
		}
	}
	Artifacts []struct{ Parts []a2aPart }
}

type a2aEvent struct {
	Task           *a2aTask
	StatusUpdate   *struct{ Status struct{ State string } }
	ArtifactUpdate *struct{ Artifact struct{ Parts []a2aPart } }
}

// message returns the body of a request to send a message.
func (a2aRequester) message(part map[string]any, rest, configuration map[string]any) map[string]any {
	m := map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{part}}
	for name, value := range rest {
		m[name] = value
	}
	return map[string]any{"message": m, "configuration": configuration}
}

// post sends a request until the server is not too busy for it.
func (a a2aRequester) post(t *testing.T, path string, body any, header ...string) (out a2aTask) {
	t.Helper()
	var status int
	var raw []byte
	eventually(t, func() bool {
		var err error
		status, raw, err = a.f.do(t.Context(), http.MethodPost, "/a2a/rest/"+path, body, append([]string{"A2A-Version", "1.0"}, header...)...)
		return err == nil && status != http.StatusServiceUnavailable
	}, "the server responds")
	require.Equal(t, http.StatusOK, status, "%s", raw)
	var sent struct{ Task *a2aTask }
	decode(t, raw, &sent)
	if sent.Task == nil {
		decode(t, raw, &out)
		return out
	}
	return *sent.Task
}

func (a a2aRequester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	metadata := map[string]any{"capability": "custom:" + q.capability}
	if q.budget > 0 {
		metadata["budget"] = q.budget
	}
	body := a.message(map[string]any{"data": map[string]any{"do": q.action, "n": 5}}, map[string]any{"metadata": metadata}, map[string]any{"returnImmediately": q.cancel != nil})
	if q.part != nil {
		return a.stream(t, q, body)
	}
	task := a.post(t, "message:send", body, q.traceparent()...)
	if q.cancel != nil {
		q.waitForStart(t)
		return a.outcome(t, a.post(t, "tasks/"+task.ID+":cancel", map[string]any{}))
	}
	if q.reply != "" {
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", task.Status.State)
		require.Equal(t, []string{"json", "txt"}, task.Status.Message.Metadata.Options)
		require.Equal(t, "which format?", task.Status.Message.Parts[0].Text)
		task = a.post(t, "message:send", a.message(map[string]any{"text": q.reply}, map[string]any{"taskId": task.ID}, map[string]any{}))
	}
	return a.outcome(t, task)
}

// stream sends a message and reads the events of its task. The artifact in them is the result.
func (a a2aRequester) stream(t *testing.T, q testRequest, body map[string]any) outcome {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := a.f.Open(ctx, http.MethodPost, "/a2a/rest/message:stream", string(text), append(q.traceparent(), "A2A-Version", "1.0", "Content-Type", "application/json")...)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	id, got := "", ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e a2aEvent
		decode(t, []byte(data), &e)
		switch {
		case e.Task != nil:
			if id = e.Task.ID; !q.part.shown {
				q.waitForPart(t, nil)
			}
		case e.ArtifactUpdate != nil:
			for _, p := range e.ArtifactUpdate.Artifact.Parts {
				if got == "" && q.part.shown {
					require.Equal(t, "one ", p.Text)
					q.waitForPart(t, func() bool { return true })
				}
				got += p.Text
			}
		}
	}
	out := a.outcome(t, get[a2aTask](t, a.f.client, "/a2a/rest/tasks/"+id+"?A2A-Version=1.0"))
	require.Equal(t, out.text, got, "the stream has the same result as the task")
	return out
}

func (a2aRequester) outcome(t *testing.T, task a2aTask) outcome {
	t.Helper()
	switch task.Status.State {
	case "TASK_STATE_COMPLETED":
		require.Len(t, task.Artifacts, 1)
		require.Len(t, task.Artifacts[0].Parts, 1)
		p := task.Artifacts[0].Parts[0]
		return outcome{"done", p.Text + taskText(t, p.Data), task.ID}
	case "TASK_STATE_CANCELED":
		return outcome{"cancelled", "", task.ID}
	case "TASK_STATE_FAILED":
		return outcome{stateOfFailure(task.Status.Message.Metadata.Code), task.Status.Message.Parts[0].Text, task.ID}
	}
	require.Equal(t, "TASK_STATE_REJECTED", task.Status.State)
	reason := task.Status.Message.Parts[0].Text
	if strings.Contains(reason, "daily budget of at least 9000 tokens") {
		return outcome{"over budget", reason, ""}
	}
	return outcome{"unsupported", reason, ""}
}
