package api

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"comet/internal/background"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/models"
)

// newTaskServer is the complete API, with an orchestrator that runs and an agent that
// has come to work.
func newTaskServer(t *testing.T) *webhookServer {
	t.Helper()
	d := &webhookServer{newDescribedServer(t), readDescription(t)}
	relay := events.NewRelay(d.store, d.core.Feed, &events.Options{Poll: 10 * time.Millisecond})
	for _, service := range []background.Service{relay, d.core.Orchestrator} {
		require.NoError(t, service.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, service.Stop(context.Background())) })
	}
	require.Eventually(t, func() bool { return d.core.Orchestrator.Check(t.Context()) == nil }, time.Minute, 5*time.Millisecond)
	d.ask(t, "POST", "/api/v1/agents", "/api/v1/agents", `{"id":"reader","name":"Reader","level":2,"sphere_id":1,"frequency_hz":555,"capabilities":["custom:read"],"type":"infra","parent_id":"orch-personnel"}`, 201)
	require.NoError(t, d.core.Orchestrator.ReindexAgent(t.Context(), "reader"))
	_, err := d.core.Orchestrator.Join(t.Context(), "reader", orchestrator.JoinRequest{Protocol: "envelope", Transport: "websocket", Concurrency: 2})
	require.NoError(t, err)
	return d
}

// TestTaskResponsesMatchTheDescription goes through the lives of tasks and sessions and
// holds every answer against the description.
func TestTaskResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const all, one, sessions, workers = "/api/v1/tasks", "/api/v1/tasks/{task_id}", "/api/v1/sessions", "/api/v1/workers"
	d := newTaskServer(t)
	submit := func(body string, status int) string {
		t.Helper()
		id, _ := d.ask(t, "POST", all, all, body, status)["id"].(string)
		return all + "/" + id
	}
	d.ask(t, "POST", sessions, sessions, `{"id":"s","context":{"a":[1]}}`, 201)
	d.ask(t, "POST", sessions, sessions, `{"id":"s"}`, 409)
	d.ask(t, "POST", sessions, sessions, `{"id":""}`, 400)
	first := submit(`{"capabilities":["read"],"agent_type":null,"agent_id":"reader","sphere_id":1,"parameters":{"a":{"b":[null]}},"priority":3,"budget":100,"timeout_ms":60000,"retries":0,"session_id":"s","request_id":"r"}`, 202)
	submit(`{"capabilities":["read"],"request_id":"r"}`, 409)
	submit(`{}`, 400)
	submit(`{"capabilities":["read"],"session_id":"none"}`, 404)
	submit(`{"capabilities":["fly"]}`, 422)
	submit(`{"capabilities":["read"],"budget":1000000000}`, 403)
	d.ask(t, "GET", one, first, "", 200)

	id := first[len(all)+1:]
	_, err := d.core.Orchestrator.Progress(t.Context(), "reader", id, orchestrator.Progress{Percent: new(5), Step: 1, StepName: "x", Log: []byte("log")})
	require.NoError(t, err)
	d.ask(t, "POST", one+"/reply", first+"/reply", `{"reply":"x"}`, 409)
	_, err = d.core.Orchestrator.Clarify(t.Context(), "reader", id, orchestrator.Question{Text: "?", Options: nil})
	require.NoError(t, err)
	d.ask(t, "GET", one, first+"?wait=1&version=1", "", 200)
	d.ask(t, "POST", one+"/reply", first+"/reply", `{}`, 400)
	d.ask(t, "POST", one+"/reply", first+"/reply", `{"reply":"x"}`, 200)
	d.ask(t, "POST", sessions+"/{session_id}/close", sessions+"/s/close", "", 409)
	_, err = d.core.Orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{
		Failure: orchestrator.FailureWork, Text: "no", Detail: []byte(`{"code":5003}`), ExitCode: new(1), Output: []byte("out"), Tokens: 7,
	})
	require.NoError(t, err)
	d.ask(t, "GET", one, first, "", 200)
	d.ask(t, "POST", one+"/cancel", first+"/cancel", `{}`, 409)
	second := submit(`{"agent_id":"reader"}`, 202)
	d.ask(t, "POST", one+"/cancel", second+"/cancel", `{"reason":null}`, 200)
	d.ask(t, "POST", one+"/cancel", all+"/none/cancel", "", 404)
	d.ask(t, "GET", all, all+"?limit=1&since=2026-01-10T00:00:00Z", "", 200)
	d.ask(t, "GET", all, all+"?state=open", "", 400)
	d.ask(t, "GET", one, all+"/none", "", 404)
	d.ask(t, "GET", sessions, sessions+"?limit=1", "", 200)
	d.ask(t, "GET", sessions, sessions+"?x=1", "", 400)
	d.ask(t, "GET", sessions+"/{session_id}", sessions+"/s", "", 200)
	d.ask(t, "GET", sessions+"/{session_id}", sessions+"/none", "", 404)
	d.ask(t, "POST", sessions+"/{session_id}/close", sessions+"/s/close", "", 200)
	d.ask(t, "GET", workers, workers, "", 200)
	d.ask(t, "GET", workers+"/{agent_id}", workers+"/reader", "", 200)
	d.ask(t, "GET", workers+"/{agent_id}", workers+"/nova", "", 404)

	waited := http.Header{"Prefer": {"wait=1"}}
	require.NoError(t, d.core.Orchestrator.Leave(t.Context(), "reader", true))
	d.askWith(t, "POST", all, all, `{"capabilities":["read"],"retries":0}`, waited, 200)
	d.askWith(t, "POST", all, all, `{"capabilities":["read"]}`, waited, 202)
}

// TestRoutingOfATask checks the decision about a task whose agents are ordered by weight.
func TestRoutingOfATask(t *testing.T) {
	t.Parallel()
	d := newTaskServer(t)
	by := models.Principal{TokenID: "ops", Scopes: []models.Scope{models.ScopeAdmin}}
	out, err := d.core.Orchestrator.Submit(t.Context(), by, orchestrator.Submission{Class: "weighted", Capabilities: []string{"READ"}}, nil)
	require.NoError(t, err)
	decision := d.ask(t, "GET", "/api/v1/tasks/{task_id}", "/api/v1/tasks/"+out.Task.ID, "", 200)["decision"].(map[string]any)
	agent := map[string]any{"agent_id": "reader", "score": 0.95, "similarity": 0.9}
	require.Equal(t, map[string]any{
		"selected": []any{agent}, "alternatives": []any{}, "reason": "Best match for intent", "confidence": 0.95, "similarity": 0.9,
	}, decision["routing"])
}

// TestStreamResponsesMatchTheDescription: a stream of events, output and its ranges.
func TestStreamResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const output, stream = "/api/v1/tasks/{task_id}/output", "/api/v1/events"
	d := newTaskServer(t)
	id := d.ask(t, "POST", "/api/v1/tasks", "/api/v1/tasks", `{"capabilities":["read"]}`, 202)["id"].(string)
	_, err := d.core.Orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{Output: []byte("out")})
	require.NoError(t, err)
	at := "/api/v1/tasks/" + id + "/output"
	d.askWith(t, "GET", output, at, "", nil, 200)
	d.askWith(t, "GET", output, at+"?follow=true&stream=log", "", nil, 200)
	d.askWith(t, "GET", output, at, "", http.Header{"Range": {"bytes=1-"}}, 206)
	d.askWith(t, "GET", output, at, "", http.Header{"Range": {"bytes=3-"}}, 416)
	d.askWith(t, "GET", output, at+"?from=1", "", nil, 400)
	d.askWith(t, "GET", output, "/api/v1/tasks/none/output", "", nil, 404)
	d.askWith(t, "GET", stream, stream+"?types=task", "", nil, 400)
	d.Drain() // streams end by themselves now
	d.askWith(t, "GET", stream, stream+"?last_event_id=0", "", nil, 200)
	for i := range 1000 {
		_, err := d.streams.Acquire(strconv.Itoa(i))
		require.NoError(t, err)
	}
	d.askWith(t, "GET", stream, stream, "", nil, 503)
	d.askWith(t, "GET", output, at, "", nil, 503)
}

// TestEveryEventTypeIsStreamed checks that the documented list of streamed events is complete.
func TestEveryEventTypeIsStreamed(t *testing.T) {
	t.Parallel()
	seen := map[models.EventType]bool{}
	for _, group := range eventScopes() {
		for _, kind := range group.types {
			require.False(t, seen[kind], kind)
			seen[kind] = true
		}
	}
	declared := declaredEvents(t)
	require.Greater(t, len(declared), 20)
	for _, kind := range declared {
		require.Equal(t, kind != events.WebhookTest, seen[kind], "%s: a test event is sent to its webhook only", kind)
	}
	require.Len(t, seen, len(declared)-1)
}

// TestScheduleResponsesMatchTheDescription goes through the life of a schedule.
func TestScheduleResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const all, one = "/api/v1/schedules", "/api/v1/schedules/{schedule_id}"
	d := newTaskServer(t)
	key := http.Header{"Idempotency-Key": {"k"}}
	const draft = `{"cron":"30 8 * * 1-5","time_zone":"Europe/Paris","task":{"capabilities":["read"],"parameters":{"a":[1]},"priority":3,"budget":100,"retries":0,"workers":2,"overrun":{"action":"raise","max_budget":200}}}`
	first := d.askWith(t, "POST", all, all, draft, key, 201)
	require.JSONEq(t, string(first), string(d.askWith(t, "POST", all, all, draft, key, 201)), "a repetition has no second effect")
	var made struct {
		ID      string         `json:"id"`
		NextAt  time.Time      `json:"next_at"`
		Task    map[string]any `json:"task"`
		Enabled bool           `json:"enabled"`
	}
	require.NoError(t, json.Unmarshal(first, &made))
	require.True(t, made.NextAt.After(time.Now()))
	require.True(t, made.Enabled)
	require.Equal(t, map[string]any{"a": []any{1.0}}, made.Task["parameters"])
	require.Equal(t, map[string]any{"action": "raise", "max_budget": 200.0}, made.Task["overrun"])
	address := all + "/" + made.ID
	d.ask(t, "POST", all, all, `{"every_ms":60000,"workflow":{"workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"x"}}]}}}`, 201)
	for pointer, body := range map[string]string{
		"/at":                  `{"task":{"capabilities":["read"]}}`,
		"/cron":                `{"cron":"99 * * * *","task":{"capabilities":["read"]}}`,
		"/task":                `{"delay_ms":1000}`,
		"/task/capabilities/0": `{"delay_ms":1000,"task":{"capabilities":["?"]}}`,
		"/task/capabilities":   `{"delay_ms":1000,"task":{}}`,
		"/task/request_id":     `{"delay_ms":1000,"task":{"capabilities":["read"],"request_id":"r"}}`,
		"/every_ms":            `{"every_ms":1,"task":{"capabilities":["read"]}}`,
		"/workflow/definition": `{"delay_ms":1000,"workflow":{"definition":{}}}`,
	} {
		problem := d.ask(t, "POST", all, all, body, 400)
		require.Contains(t, problem["errors"].([]any)[0].(map[string]any)["pointer"], pointer)
	}
	d.ask(t, "POST", all, all, `{"delay_ms":1000,"workflow":{"definition":{"name":"none"}}}`, 404)
	require.Len(t, d.ask(t, "GET", all, all+"?limit=1", "", 200)["schedules"], 1)
	d.ask(t, "GET", one, address, "", 200)
	d.ask(t, "GET", one, all+"/none", "", 404)
	paused := d.ask(t, "PATCH", one, address, `{"enabled":false}`, 200)
	require.Nil(t, paused["next_at"])
	d.askWith(t, "PATCH", one, address, `{"enabled":true}`, http.Header{"If-Match": {`"1.a"`}}, 412)
	changed := d.ask(t, "PATCH", one, address, `{"enabled":true,"every_ms":1000000}`, 200)
	require.Nil(t, changed["cron"])
	require.NotNil(t, changed["next_at"])
	d.ask(t, "PATCH", one, address, `{"delay_ms":0}`, 400)
	d.askWith(t, "DELETE", one, address, "", http.Header{"If-Match": {`"1.a"`}}, 412)
	d.ask(t, "DELETE", one, address, "", 204)
	d.ask(t, "GET", one, address, "", 404)
}
