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
	"comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

func decode(t *testing.T, raw []byte, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, v), "%s", raw)
}

// restAsker asks over the neutral API.
type restAsker struct{ h *babel }

func (restAsker) name() string { return "REST" }

func (a restAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	body := map[string]any{"capabilities": []string{"custom:" + q.work}, "parameters": map[string]any{"do": q.do, "n": 5}}
	if q.budget > 0 {
		body["budget"] = q.budget
	}
	if q.silent {
		body["timeout_ms"], body["retries"] = 500, 1
	}
	var status int
	var raw []byte
	header := append(q.waits(), "Idempotency-Key", uuid.NewString())
	eventually(t, func() bool { // a busy machine may ask to come again
		var err error
		status, raw, err = a.h.do(t.Context(), http.MethodPost, "/api/v1/tasks", body, header...)
		return err == nil && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout
	}, "it is taken on or refused")
	switch status {
	case http.StatusTooManyRequests:
		return outcome{state: "too dear"}
	case http.StatusUnprocessableEntity:
		return outcome{state: "unsupported"}
	}
	var task tongue
	decode(t, raw, &task)
	if q.cancel != nil {
		q.isBegun(t)
		status, raw, err := a.h.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+task.ID+"/cancel", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", raw)
		return outcome{task: task.ID}
	}
	if q.answer != "" {
		a.h.answerOnce(t, task.ID, q.answer)
	}
	eventually(t, func() bool {
		task = get[tongue](t, a.h.client, "/api/v1/tasks/"+task.ID+"?wait=20")
		return task.State != "new" && task.State != "running"
	}, "it ends")
	if task.State == "failed" {
		return outcome{map[string]string{"failed": "failed", "timeout": "timeout", "budget_exceeded": "too dear", "resource_limit": "limited"}[*task.Failure], task.Error, task.ID}
	}
	_, text, err := a.h.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID+"/output", nil)
	require.NoError(t, err)
	return outcome{task.State, string(text), task.ID}
}

// waits is the header of a request that waits for the end.
func (q question) waits() []string {
	if q.cancel != nil || q.answer != "" {
		return nil
	}
	return []string{"Prefer", "wait=20"}
}

// answerOnce answers over the neutral API what a task's worker asks.
func (h *babel) answerOnce(t *testing.T, task, answer string) {
	t.Helper()
	var d tongue
	eventually(t, func() bool { d = h.detail(t, task); return d.Question != nil }, "the worker asks")
	require.Equal(t, "which format?", d.Question.Text)
	require.Equal(t, []string{"json", "txt"}, d.Question.Options)
	status, raw, err := h.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+task+"/reply", map[string]any{"reply": answer})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s", raw)
}

// envelopeAsker asks with a work_request.
type envelopeAsker struct{ h *babel }

func (envelopeAsker) name() string { return "envelope" }

func (a envelopeAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	id := uuid.NewString()
	hints := map[string]any{}
	if q.budget > 0 {
		hints["max_tokens"] = q.budget
	}
	if q.silent {
		hints["max_duration_seconds"] = 1
	}
	request := letter("orchestrator", "infra", "work_request", map[string]any{
		"task_id": id, "work_type": q.work, "parameters": map[string]any{"do": q.do, "n": 5}, "hints": hints,
	})
	if q.whole {
		return a.askWhole(t, request, id)
	}
	status, raw := a.post(t, a.h.client, request, q.waits()...)
	if q.cancel != nil {
		q.isBegun(t)
		a.post(t, a.h.client, letter("orchestrator", "infra", "work_request", map[string]any{
			"task_id": id, "work_type": "cancel_task", "parameters": map[string]any{},
		}))
		return outcome{task: id}
	}
	if q.answer != "" { // the protocol has no words for a question: the work is running
		require.Equal(t, http.StatusAccepted, status)
		a.h.answerOnce(t, id, q.answer)
	}
	return a.end(t, a.h.client, request, raw, id)
}

// end asks again until the work has ended, as one may.
func (a envelopeAsker) end(t *testing.T, c *client, request word, raw []byte, id string) (got outcome) {
	t.Helper()
	eventually(t, func() bool {
		if got = a.outcome(t, raw, id); got.state == "underway" {
			_, raw = a.post(t, c, request, "Prefer", "wait=20")
		}
		return got.state != "underway"
	}, "it ends")
	return got
}

func (envelopeAsker) post(t *testing.T, c *client, e word, header ...string) (status int, raw []byte) {
	t.Helper()
	status, raw, err := c.do(t.Context(), http.MethodPost, "/api/agent/message", e, header...)
	require.NoError(t, err)
	return status, raw
}

func (envelopeAsker) outcome(t *testing.T, raw []byte, id string) outcome {
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
		if p.Code == envelope.CodeUnavailable && strings.Contains(string(p.Context), `"orchestrator"`) { // it cannot say at the moment
			break
		}
		state := map[envelope.Code]string{envelope.CodeTimeout: "timeout", envelope.CodeResourceLimit: "limited", envelope.CodeUnsupportedWorkType: "unsupported"}[p.Code]
		if strings.Contains(string(p.Context), `"token_budget"`) {
			state = "too dear"
		}
		return outcome{state, string(p.Context), id}
	}
	return outcome{"underway", string(raw), id}
}

// askWhole asks as an agent, which is told a long result in chunks. In the answer over
// HTTP there is no room for it.
func (a envelopeAsker) askWhole(t *testing.T, request word, id string) outcome {
	t.Helper()
	_, token := a.h.hire(t, "scribe", "messages:send")
	scribe := &client{a.h.url, token, a.h.http}
	request.From, request.To = "infra", "orchestrator"
	_, raw := a.post(t, scribe, request, "Prefer", "wait=20")
	require.Equal(t, outcome{"done", "", id}, a.end(t, scribe, request, raw, id), "in an answer over HTTP there is no room")
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
				require.Empty(t, got.text, "it went ahead in chunks")
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

// pipeAsker asks as the User of the pipe protocol.
type pipeAsker struct{ h *babel }

func (pipeAsker) name() string { return "pipe" }

// say posts lines and returns the lines that answer them.
func (a pipeAsker) say(t *testing.T, lines string, wait bool) (answers []v5.Message, location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.h.url+"/api/v5/messages", bytes.NewBufferString(lines))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+a.h.token)
	r.Header.Set("Content-Type", "text/plain")
	if wait {
		r.Header.Set("Prefer", "wait=20")
	}
	resp, err := a.h.http.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		m, err := v5.Parse(in.Text())
		require.NoError(t, err, in.Text())
		answers = append(answers, m)
	}
	require.NoError(t, in.Err())
	require.NotEmpty(t, answers)
	return answers, resp.Header.Get("Location")
}

func (a pipeAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	budget, also := v5.Budget{}, ""
	if q.budget > 0 {
		budget = v5.NewBudget(q.budget)
	}
	if q.silent {
		also = ";timeout=1"
	}
	data := fmt.Sprintf("call=%s;do=%s;n=5%s", q.work, q.do, also)
	var answers []v5.Message
	var location string
	eventually(t, func() bool { // a busy machine may ask to come again
		answers, location = a.say(t, fmt.Sprintf("M1|User>O1|R|-|P1|N|-|0|-|%s|%s", budget, data), q.cancel == nil)
		code := answers[0].Err
		return location != "" || code != codes.E30 && code != codes.E31 && code != codes.E99
	}, "it is taken on or refused")
	first, last := answers[0], answers[len(answers)-1]
	task := strings.TrimPrefix(location, "/api/v1/tasks/")
	if q.cancel != nil {
		q.isBegun(t)
		gone, _ := a.say(t, fmt.Sprintf("M2|User>O1|U|%s|P1|X|-|0|%s|-|reason=changed my mind", first.Task, first.Context), false)
		require.Equal(t, v5.Ack, gone[0].Type, "%+v", gone)
		return outcome{task: task}
	}
	if q.answer != "" {
		require.Equal(t, v5.Disambiguate, last.Type, "%+v", answers)
		require.EqualValues(t, "question=which format?;opt1=json;opt2=txt", last.Data)
		answers, _ = a.say(t, fmt.Sprintf("M2|User>O1|C|%s|P1|R|-|0|%s|-|choice=opt2", first.Task, first.Context), true)
		last = answers[len(answers)-1]
	}
	eventually(t, func() bool { // the same request again is answered with where it is
		if last.Type == v5.Ack || last.Type == v5.Update {
			answers, _ = a.say(t, fmt.Sprintf("M3|User>O1|R|%s|P1|N|-|0|%s|%s|%s", first.Task, first.Context, budget, data), true)
			if again := answers[len(answers)-1]; again.Type != v5.Failure || !strings.Contains(string(again.Data), "comet cannot handle this now") {
				last = again
			}
		}
		return last.Type != v5.Ack && last.Type != v5.Update
	}, "it ends")
	return a.outcome(t, last, task)
}

func (a pipeAsker) outcome(t *testing.T, last v5.Message, task string) outcome {
	t.Helper()
	if last.Type == v5.Failure {
		state, ok := map[codes.Code]string{codes.E17: "too dear", codes.E19: "unsupported", codes.E21: "timeout", codes.E32: "limited"}[last.Err]
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

// fetch reads what a reference stands for, page by page, as many as a request may ask for.
func (a pipeAsker) fetch(t *testing.T, m v5.Message, ref string) string {
	t.Helper()
	var all strings.Builder
	for page, of := 1, 1; page <= of; {
		var lines []string
		for n := page; n <= of && len(lines) < 1000; n++ {
			lines = append(lines, fmt.Sprintf("M3|User>O1|Q|%s|P1|-|-|0|%s|-|ref=%s;page=%d", m.Task, m.Context, ref, n))
		}
		answers, _ := a.say(t, strings.Join(lines, "\n"), false)
		require.Len(t, answers, len(lines))
		for _, answer := range answers {
			require.Equal(t, v5.Success, answer.Type, "%+v", answer)
			count, _ := answer.Data.Get("of")
			var err error
			of, err = strconv.Atoi(count)
			require.NoError(t, err)
			text, _ := answer.Data.Get("text")
			if enc, _ := answer.Data.Get("enc"); enc == "base64" {
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

// isBegun waits until the worker of a question works on it.
func (q question) isBegun(t *testing.T) {
	t.Helper()
	select {
	case <-q.cancel:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "its worker has not begun")
	}
}
