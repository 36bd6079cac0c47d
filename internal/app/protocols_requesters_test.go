package app_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

func decode(t *testing.T, raw []byte, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, v), "%s", raw)
}

// restRequester submits tasks over the REST API.
type restRequester struct{ f *protocolFixture }

func (restRequester) name() string { return "REST" }

func (a restRequester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	body := map[string]any{"capabilities": []string{"custom:" + q.capability}, "parameters": map[string]any{"do": q.action, "n": 5}}
	if q.budget > 0 {
		body["budget"] = q.budget
	}
	if q.silent {
		body["timeout_ms"], body["retries"] = 500, 1
	}
	var status int
	var raw []byte
	header := append(append(q.header(), "Idempotency-Key", uuid.NewString()), q.traceparent()...)
	eventually(t, func() bool { // a busy server may ask to retry
		var err error
		status, raw, err = a.f.do(t.Context(), http.MethodPost, "/api/v1/tasks", body, header...)
		return err == nil && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout
	}, "the request is accepted or refused")
	switch status {
	case http.StatusForbidden:
		require.Contains(t, string(raw), `"code":"budget-exceeded"`)
		return outcome{state: "over budget"}
	case http.StatusUnprocessableEntity:
		return outcome{state: "unsupported"}
	}
	require.Less(t, status, 300, "%s", raw)
	var task protocolTask
	decode(t, raw, &task)
	if q.cancel != nil {
		q.waitForStart(t)
		status, raw, err := a.f.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+task.ID+"/cancel", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", raw)
		return outcome{task: task.ID}
	}
	q.waitForPart(t, func() bool {
		for _, of := range []string{"output", "output?stream=log", "partials"} {
			_, text, err := a.f.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID+"/"+of, nil)
			if err == nil && strings.Contains(string(text), "one ") {
				return true
			}
		}
		return false
	})
	if q.reply != "" {
		a.f.replyOnce(t, task.ID, q.reply)
	}
	eventually(t, func() bool {
		task = get[protocolTask](t, a.f.client, "/api/v1/tasks/"+task.ID+"?wait=20")
		return task.State != "new" && task.State != "running"
	}, "the task ends")
	if task.State == "failed" {
		return outcome{map[string]string{"failed": "failed", "timeout": "timeout", "budget_exceeded": "over budget", "resource_limit": "limited"}[*task.Failure], task.Error, task.ID}
	}
	_, text, err := a.f.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID+"/output", nil)
	require.NoError(t, err)
	return outcome{task.State, string(text), task.ID}
}

// header returns the header of a request that waits for the end.
func (q testRequest) header() []string {
	if q.isOpen() {
		return nil
	}
	return []string{"Prefer", "wait=20"}
}

// replyOnce replies to the question of a task over the REST API.
func (f *protocolFixture) replyOnce(t *testing.T, task, answer string) {
	t.Helper()
	var d protocolTask
	eventually(t, func() bool { d = f.detail(t, task); return d.Question != nil }, "the worker asks")
	require.Equal(t, "which format?", d.Question.Text)
	require.Equal(t, []string{"json", "txt"}, d.Question.Options)
	status, raw, err := f.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+task+"/reply", map[string]any{"reply": answer})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", raw)
}

// envelopeRequester submits tasks by a work_request.
type envelopeRequester struct{ f *protocolFixture }

func (envelopeRequester) name() string { return "envelope" }

func (a envelopeRequester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	id := uuid.NewString()
	hints := map[string]any{}
	if q.budget > 0 {
		hints["max_tokens"] = q.budget
	}
	if q.silent {
		hints["max_duration_seconds"] = 1
	}
	request := newEnvelope("orchestrator", "infra", "work_request", map[string]any{
		"task_id": id, "work_type": q.capability, "parameters": map[string]any{"do": q.action, "n": 5}, "hints": hints,
	})
	if q.trace != "" {
		request.TraceID = q.trace
	}
	if q.complete {
		return a.submitAsAgent(t, request, id)
	}
	status, raw := a.post(t, a.f.client, request, q.header()...)
	if q.cancel != nil {
		q.waitForStart(t)
		a.post(t, a.f.client, newEnvelope("orchestrator", "infra", "work_request", map[string]any{
			"task_id": id, "work_type": "cancel_task", "parameters": map[string]any{},
		}))
		return outcome{task: id}
	}
	q.waitForPart(t, nil)
	if q.reply != "" { // the protocol cannot express a question: the task is running
		require.Equal(t, http.StatusAccepted, status)
		a.f.replyOnce(t, id, q.reply)
	}
	return a.waitForEnd(t, a.f.client, request, raw, id)
}

// waitForEnd repeats the request until the task has ended.
func (a envelopeRequester) waitForEnd(t *testing.T, c *client, request envelopeFrame, raw []byte, id string) (got outcome) {
	t.Helper()
	eventually(t, func() bool {
		if got = a.outcome(t, raw, id); got.state == "underway" {
			_, raw = a.post(t, c, request, "Prefer", "wait=20")
		}
		return got.state != "underway"
	}, "the task ends")
	return got
}

func (envelopeRequester) post(t *testing.T, c *client, e envelopeFrame, header ...string) (status int, raw []byte) {
	t.Helper()
	status, raw, err := c.do(t.Context(), http.MethodPost, "/api/agent/message", e, header...)
	require.NoError(t, err)
	return status, raw
}

func (envelopeRequester) outcome(t *testing.T, raw []byte, id string) outcome {
	t.Helper()
	e, err := envelope.Parse(raw)
	require.NoError(t, err, "%s", raw)
	switch p := e.Payload.(type) {
	case envelope.WorkResult:
		if p.Status == envelope.OutcomeSuccess {
			return outcome{"done", p.Output, id}
		}
		return outcome{string(p.Status), p.Output, id}
	case envelope.Failure:
		if p.Code == envelope.CodeUnavailable && strings.Contains(string(p.Context), `"orchestrator"`) { // the server is temporarily unavailable
			break
		}
		state := map[envelope.Code]string{envelope.CodeTimeout: "timeout", envelope.CodeResourceLimit: "limited", envelope.CodeUnsupportedWorkType: "unsupported"}[p.Code]
		if strings.Contains(string(p.Context), `"token_budget"`) {
			state = "over budget"
		}
		return outcome{state, string(p.Context), id}
	}
	return outcome{"underway", string(raw), id}
}

// submitAsAgent submits the task as an agent, which receives a long result in chunks. An HTTP
// response is too small for it.
func (a envelopeRequester) submitAsAgent(t *testing.T, request envelopeFrame, id string) outcome {
	t.Helper()
	_, token := a.f.registerAgent(t, "scribe", "messages:send")
	scribe := newClient(t, a.f.URL, token)
	request.From, request.To = "infra", "orchestrator"
	_, raw := a.post(t, scribe, request, "Prefer", "wait=20")
	end := a.waitForEnd(t, scribe, request, raw, id)
	if end.text != "" { // with the race detector the text is short
		require.LessOrEqual(t, len(end.text), 1<<20, "an HTTP response is too small for it")
		return end
	}
	require.Equal(t, outcome{"done", "", id}, end)
	var text []byte
	for {
		var inbox struct{ Messages []json.RawMessage }
		_, raw, err := scribe.do(t.Context(), http.MethodGet, "/api/agent/inbox?wait=20", nil)
		require.NoError(t, err)
		decode(t, raw, &inbox)
		for _, m := range inbox.Messages {
			e, err := envelope.Parse(m)
			require.NoError(t, err)
			status, more := e.Payload.(envelope.WorkStatus)
			if !more {
				got := a.outcome(t, m, id)
				require.Empty(t, got.text, "the text was sent in chunks before")
				got.text = string(text)
				return got
			}
			c := status.Step.Chunk
			require.EqualValues(t, len(text), c.From)
			text = append(text, status.Step.Output...)
			require.EqualValues(t, len(text), c.To)
		}
	}
}

// v5Requester submits tasks as the User of PROTOCOL_V5.
type v5Requester struct{ f *protocolFixture }

func (v5Requester) name() string { return "v5" }

// post posts lines and returns the reply lines.
func (a v5Requester) post(t *testing.T, lines string, wait bool, header ...string) (replies []v5.Message, location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.f.URL+"/api/v5/messages", bytes.NewBufferString(lines))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+a.f.Token)
	r.Header.Set("Content-Type", "text/plain")
	if wait {
		r.Header.Set("Prefer", "wait=20")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := a.f.HTTP.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		m, err := v5.Parse(in.Text())
		require.NoError(t, err, in.Text())
		replies = append(replies, m)
	}
	require.NoError(t, in.Err())
	require.NotEmpty(t, replies)
	return replies, resp.Header.Get("Location")
}

func (a v5Requester) submit(t *testing.T, q testRequest) outcome {
	t.Helper()
	budget, also := v5.Budget{}, ""
	if q.budget > 0 {
		budget = v5.NewBudget(q.budget)
	}
	if q.silent {
		also = ";timeout=1"
	}
	data := fmt.Sprintf("call=%s;do=%s;n=5%s", q.capability, q.action, also)
	var replies []v5.Message
	var location string
	eventually(t, func() bool { // a busy server may ask to retry
		replies, location = a.post(t, fmt.Sprintf("M1|User>O1|R|-|P1|N|-|0|-|%s|%s", budget, data), q.cancel == nil && q.part == nil, q.traceparent()...)
		code := replies[0].Err
		return location != "" || code != codes.E30 && code != codes.E31 && code != codes.E99
	}, "the request is accepted or refused")
	first, last := replies[0], replies[len(replies)-1]
	task := strings.TrimPrefix(location, "/api/v1/tasks/")
	if q.cancel != nil {
		q.waitForStart(t)
		gone, _ := a.post(t, fmt.Sprintf("M2|User>O1|U|%s|P1|X|-|0|%s|-|reason=changed my mind", first.Task, first.Context), false)
		require.Equal(t, v5.Ack, gone[0].Type, "%+v", gone)
		return outcome{task: task}
	}
	q.waitForPart(t, nil)
	if q.reply != "" {
		require.Equal(t, v5.Disambiguate, last.Type, "%+v", replies)
		require.EqualValues(t, "question=which format?;opt1=json;opt2=txt", last.Data)
		replies, _ = a.post(t, fmt.Sprintf("M2|User>O1|C|%s|P1|R|-|0|%s|-|choice=opt2", first.Task, first.Context), true)
		last = replies[len(replies)-1]
	}
	eventually(t, func() bool { // the reply to a repeated request is the state of the task
		if last.Type == v5.Ack || last.Type == v5.Update {
			replies, _ = a.post(t, fmt.Sprintf("M3|User>O1|R|%s|P1|N|-|0|%s|%s|%s", first.Task, first.Context, budget, data), true)
			if again := replies[len(replies)-1]; again.Type != v5.Failure || !strings.Contains(string(again.Data), "comet cannot handle this now") {
				last = again
			}
		}
		return last.Type != v5.Ack && last.Type != v5.Update
	}, "the task ends")
	return a.outcome(t, last, task)
}

func (a v5Requester) outcome(t *testing.T, last v5.Message, task string) outcome {
	t.Helper()
	if last.Type == v5.Failure {
		state, ok := map[codes.Code]string{codes.E17: "over budget", codes.E19: "unsupported", codes.E21: "timeout", codes.E32: "limited"}[last.Err]
		if !ok {
			state = "failed"
		}
		return outcome{state, string(last.Data), task}
	}
	require.Equal(t, v5.Success, last.Type, "%+v", last)
	if ref, ok := last.Data.Get("src"); ok {
		return outcome{"done", a.fetch(t, last, ref), task}
	}
	return outcome{"done", string(last.Data), task}
}

// fetch reads the text of a reference, page by page, with as many pages in a request as possible.
func (a v5Requester) fetch(t *testing.T, m v5.Message, ref string) string {
	t.Helper()
	var all strings.Builder
	for page, of := 1, 1; page <= of; {
		var lines []string
		for n := page; n <= of && len(lines) < 1000; n++ {
			lines = append(lines, fmt.Sprintf("M3|User>O1|Q|%s|P1|-|-|0|%s|-|ref=%s;page=%d", m.Task, m.Context, ref, n))
		}
		replies, _ := a.post(t, strings.Join(lines, "\n"), false)
		require.Len(t, replies, len(lines))
		for _, reply := range replies {
			require.Equal(t, v5.Success, reply.Type, "%+v", reply)
			count, _ := reply.Data.Get("of")
			var err error
			of, err = strconv.Atoi(count)
			require.NoError(t, err)
			text, _ := reply.Data.Get("text")
			if enc, _ := reply.Data.Get("enc"); enc == "base64" {
				raw, err := base64.StdEncoding.DecodeString(text)
				require.NoError(t, err)
				text = string(raw)
			}
			all.WriteString(text)
			page++
		}
	}
	return all.String()
}

// waitForStart waits until the worker has started the task.
func (q testRequest) waitForStart(t *testing.T) {
	t.Helper()
	select {
	case <-q.cancel:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "the worker has not started")
	}
}
