package api_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// goodTask is valid; no agent has its capability.
const goodTask = `{"capabilities":["fly","custom:juggle"],"agent_type":"research","agent_id":"reader","sphere_id":9,"parameters":{"a":[1,{"b":null}]},` +
	`"priority":3,"budget":1000,"timeout_ms":100,"retries":10,"request_id":"r"}`

// TestBadTasks sends one bad request after the other: each is answered with its exact
// status, code, place and rule, and in the end there is the one task and the one session
// that were there before.
func TestBadTasks(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(badTasks(), badTaskActions(), badTaskReads())
	names := map[string]bool{}
	for _, c := range cases {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
	}
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{startOrchestrator: true})
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		require.Equal(t, 201, h.do(t, "POST", "/api/v1/sessions", `{"id":"open"}`).status)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				c.target = strings.ReplaceAll(c.target, "$TASK", id)
				require.False(t, c.check(t, h, c.body), "it was accepted")
			})
		}
		tasks, err := h.orchestrator.Tasks(t.Context(), store.TaskQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, tasks, 1)
		require.EqualValues(t, 1, tasks[0].Version)
		sessions, err := h.orchestrator.Sessions(t.Context(), store.SessionQuery{Limit: 10})
		require.NoError(t, err)
		require.Len(t, sessions, 1)
		require.Equal(t, models.SessionOpen, sessions[0].State)
	})
}

// badTasks breaks the rules of a task's fields. What breaks none is refused because
// No agent has it.
func badTasks() []badInput {
	const fine = "unsupported-work "
	task := func(name, member, value, want string) badInput {
		return badInput{name: "task: " + name, target: "/api/v1/tasks", body: replaceMember(goodTask, member, value), want: want}
	}
	header := func(name, value, want string) badInput {
		return badInput{name: "task: " + name + " " + value, target: "/api/v1/tasks", body: goodTask, header: []string{name, value}, want: want}
	}
	return []badInput{
		task("all that is right", "session_id", "", fine),
		task("nulls", "agent_type", "null", fine),
		task("no capabilities, but an agent", "capabilities", "", fine),
		task("capabilities null", "capabilities", "null", "invalid-request /capabilities not_null"),
		task("capabilities of a string", "capabilities", `"fly"`, "invalid-request /capabilities type"),
		task("a capability of a number", "capabilities", `[1]`, "invalid-request /capabilities/0 type"),
		task("a capability empty", "capabilities", `["fly",""]`, "invalid-request /capabilities/1 capability"),
		task("a capability with a blank", "capabilities", `["to fly"]`, "invalid-request /capabilities/0 capability"),
		task("a capability of 200", "capabilities", `["`+strings.Repeat("c", 200)+`"]`, "invalid-request /capabilities/0 capability"),
		task("16 capabilities", "capabilities", `["`+strings.Join(many("c", 16), `","`)+`"]`, fine),
		task("17 capabilities", "capabilities", `["`+strings.Join(many("c", 17), `","`)+`"]`, "invalid-request /capabilities max"),
		task("a type in capitals", "agent_type", `"Research"`, "invalid-request /agent_type word"),
		task("a type of a number", "agent_type", "1", "invalid-request /agent_type type"),
		task("an agent that is none", "agent_id", `"No Agent"`, "invalid-request /agent_id agent_id"),
		task("an agent there is not", "agent_id", `"unknown"`, fine),
		task("sphere 0", "sphere_id", "0", "invalid-request /sphere_id min"),
		task("sphere 10", "sphere_id", "10", "invalid-request /sphere_id max"),
		task("parameters null", "parameters", "null", fine),
		task("parameters of a list", "parameters", "[]", "invalid-request /parameters object"),
		task("parameters of a string", "parameters", `"{}"`, "invalid-request /parameters object"),
		task("parameters twice", "parameters", `{"a":1,"a":2}`, "malformed-json /parameters/a duplicate_key"),
		task("priority -1", "priority", "-1", "invalid-request /priority min"),
		task("priority 4", "priority", "4", "invalid-request /priority max"),
		task("priority 1.5", "priority", "1.5", "invalid-request /priority type"),
		task("a budget of 0", "budget", "0", "invalid-request /budget min"),
		task("a budget of too much", "budget", "1000000000001", "invalid-request /budget max"),
		task("a budget of a string", "budget", `"1000"`, "invalid-request /budget type"),
		task("a timeout of 99 ms", "timeout_ms", "99", "invalid-request /timeout_ms min"),
		task("a timeout of 0", "timeout_ms", "0", "invalid-request /timeout_ms min"),
		task("a timeout of a week", "timeout_ms", "604800000", fine),
		task("a timeout of more", "timeout_ms", "604800001", "invalid-request /timeout_ms max"),
		task("retries -1", "retries", "-1", "invalid-request /retries min"),
		task("11 retries", "retries", "11", "invalid-request /retries max"),
		task("one worker", "workers", `1`, "invalid-request /workers min"),
		task("no workers", "workers", `0`, "invalid-request /workers min"),
		task("17 workers", "workers", `17`, "invalid-request /workers max"),
		task("workers of an object", "workers", `{"workers":2}`, "invalid-request /workers type"),
		task("two workers of one agent", "workers", `2`, "invalid-request /workers conflict"),
		task("workers null", "workers", `null`, fine),
		task("an aggregation of results", "parallel", `{"workers":2,"aggregate":"all"}`, "invalid-request /parallel unknown_field"),
		task("an overrun of nothing", "overrun", `{}`, "invalid-request /overrun/action oneof"),
		task("an overrun in another way", "overrun", `{"action":"more"}`, "invalid-request /overrun/action oneof"),
		task("an overrun up to nothing", "overrun", `{"action":"raise","max_budget":0}`, "invalid-request /overrun/max_budget min"),
		task("an overrun up to too much", "overrun", `{"action":"raise","max_budget":1000000000001}`, "invalid-request /overrun/max_budget max"),
		task("an overrun that is simple and dear", "overrun", `{"action":"simplify","max_budget":5}`, "invalid-request /overrun/max_budget conflict"),
		task("an overrun that may be raised to less", "overrun", `{"action":"raise","max_budget":999}`, "invalid-request /overrun/max_budget min"),
		task("an overrun", "overrun", `{"action":"raise","max_budget":5000}`, fine),
		{name: "task: nothing to raise", target: "/api/v1/tasks", body: `{"capabilities":["fly"],"overrun":{"action":"raise"}}`, want: "invalid-request /overrun conflict"},
		task("a session there is not", "session_id", `"none"`, "not-found "),
		task("a session without a name", "session_id", `" "`, "invalid-request /session_id not_blank"),
		task("a session that rings", "session_id", `"a\u0007"`, "invalid-request /session_id printable"),
		task("a session of 65", "session_id", quoted(strings.Repeat("s", 65)), "invalid-request /session_id max"),
		task("a request_id empty", "request_id", `""`, "invalid-request /request_id not_blank"),
		task("a request_id of 128", "request_id", quoted(strings.Repeat("ä", 128)), fine),
		task("a request_id of 129", "request_id", quoted(strings.Repeat("ä", 129)), "invalid-request /request_id max"),
		task("a request_id with a NUL", "request_id", `"a\u0000"`, "invalid-request /request_id printable"),
		task("a parent", "parent_id", `"x"`, "invalid-request /parent_id unknown_field"),
		task("a class", "class", `"default"`, "invalid-request /class unknown_field"),
		{name: "task: nothing", target: "/api/v1/tasks", body: "{}", want: "invalid-request /capabilities required"},
		{name: "task: no capability, type or agent", target: "/api/v1/tasks", body: `{"capabilities":[],"sphere_id":1}`, want: "invalid-request /capabilities required"},
		{name: "task: a list", target: "/api/v1/tasks", body: "[]", want: "invalid-request - type"},
		{name: "task: no body", target: "/api/v1/tasks", want: "malformed-json - required"},
		{name: "task: a form", target: "/api/v1/tasks", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, body: "a=b", want: "unsupported-media-type Content-Type: media_type"},
		{name: "task: a parameter", target: "/api/v1/tasks?wait=1", body: goodTask, want: "invalid-parameter ?wait unknown_parameter"},
		{name: "task: everything wrong", target: "/api/v1/tasks", body: `{"agent_type":"X","sphere_id":0,"priority":9,"budget":-1,"timeout_ms":1,"retries":99}`,
			want: "invalid-request /agent_type word, /sphere_id min, /priority max, /budget min, /timeout_ms min, /retries max"},
		header("Prefer", "wait", "invalid-header Prefer: wait"),
		header("Prefer", "wait=soon", "invalid-header Prefer: wait"),
		header("Prefer", "wait=-1", "invalid-header Prefer: wait"),
		header("Prefer", "wait=1.5", "invalid-header Prefer: wait"),
		header("Prefer", `return=minimal, WAIT="1"; x=y`, fine),
		header("Prefer", "wait=99999999999999999999", fine),
		header("Traceparent", "00-0-0-0", fine),
		header("Idempotency-Key", "ä", "invalid-header Idempotency-Key: idempotency_key"),
	}
}

// badTaskActions breaks the rules of what can be done with tasks and sessions.
func badTaskActions() []badInput {
	const task = "/api/v1/tasks/$TASK"
	post := func(name, target, body, want string) badInput {
		return badInput{name: "task: " + name, target: target, body: body, want: want}
	}
	return []badInput{
		post("cancel an unknown one", "/api/v1/tasks/none/cancel", "", "not-found "),
		post("cancel for a number", task+"/cancel", `{"reason":1}`, "invalid-request /reason type"),
		post("cancel for 501 characters", task+"/cancel", `{"reason":"`+strings.Repeat("r", 501)+`"}`, "invalid-request /reason max"),
		post("cancel for a bell", task+"/cancel", `{"reason":"\u0007"}`, "invalid-request /reason printable"),
		post("cancel for nothing known", task+"/cancel", `{"why":"x"}`, "invalid-request /why unknown_field"),
		post("cancel with a parameter", task+"/cancel?force=1", "", "invalid-parameter ?force unknown_parameter"),
		post("reply to an unknown one", "/api/v1/tasks/none/reply", `{"reply":"x"}`, "not-found "),
		post("answer nothing", task+"/reply", `{}`, "invalid-request /reply required"),
		post("answer with an empty string", task+"/reply", `{"reply":""}`, "invalid-request /reply min"),
		post("answer with a number", task+"/reply", `{"reply":42}`, "invalid-request /reply type"),
		post("answer with too much", task+"/reply", `{"reply":"`+strings.Repeat("a", 16385)+`"}`, "invalid-request /reply max"),
		post("answer without a body", task+"/reply", "", "malformed-json - required"),
		post("reply without a question", task+"/reply", `{"reply":"x"}`, "task-state "),
		{name: "task: PUT", method: "PUT", target: task, body: goodTask, want: "method-not-allowed "},
		{name: "task: DELETE", method: "DELETE", target: task, want: "method-not-allowed "},
		post("a session that is there", "/api/v1/sessions", `{"id":"open"}`, "conflict "),
		post("a session without a name of its own", "/api/v1/sessions", `{"id":""}`, "invalid-request /id not_blank"),
		post("a session with a long name", "/api/v1/sessions", `{"id":"`+strings.Repeat("s", 65)+`"}`, "invalid-request /id max"),
		post("a session with a NUL", "/api/v1/sessions", `{"id":"a\u0000"}`, "invalid-request /id printable"),
		post("a session whose context is a list", "/api/v1/sessions", `{"context":[]}`, "invalid-request /context object"),
		post("a session with everything wrong", "/api/v1/sessions", `{"id":"","context":1}`, "invalid-request /id not_blank, /context object"),
		post("a session of a string", "/api/v1/sessions", `"s"`, "invalid-request - type"),
		post("close no session", "/api/v1/sessions/none/close", "", "not-found "),
		post("close with a body", "/api/v1/sessions/open/close", `{"x":1}`, "invalid-request "),
	}
}

// badTaskReads breaks the rules of what can be read.
func badTaskReads() []badInput {
	opaque := func(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
	get := func(target, want string, header ...string) badInput {
		return badInput{name: "GET " + target + strings.Join(header, " "), method: "GET", target: target, header: header, want: want}
	}
	list := func(query, want string) badInput { return get("/api/v1/tasks?"+query, "invalid-parameter "+want) }
	one := func(query, want string) badInput { return get("/api/v1/tasks/$TASK?"+query, "invalid-parameter "+want) }
	output := func(query, want string) badInput {
		return get("/api/v1/tasks/$TASK/output?"+query, "invalid-parameter "+want)
	}
	events := func(query, want string) badInput { return get("/api/v1/events?"+query, "invalid-parameter "+want) }
	return []badInput{
		list("state=open", "?state enum"), list("state=", "?state enum"), list("waiting_for=result", "?waiting_for enum"), list("agent_id=", "?agent_id min"), list("agent_id="+strings.Repeat("a", 65), "?agent_id max"),
		list("session_id=%00", "?session_id printable"), list("parent_id=a&parent_id=b", "?parent_id repeated"), list("mine=yes", "?mine type"),
		list("since=yesterday", "?since date_time"), list("since=2026-01-10T15:30:00Z&until=2026-01-10T15:30:00Z", "?until after"),
		list("limit=0", "?limit min"), list("limit=1001", "?limit max"), list("cursor=%2B", "?cursor cursor"), list("cursor="+opaque("x"), "?cursor cursor"),
		list("cursor="+opaque("1."), "?cursor cursor"), list("cursor="+opaque("1.\x00"), "?cursor cursor"), list("cursor="+opaque(".id"), "?cursor cursor"), list("cursor=", "?cursor min"),
		list("cursor="+strings.Repeat("a", 201), "?cursor max"),
		one("wait=-1", "?wait min"), one("wait=61", "?wait max"), one("wait=1s", "?wait type"), one("version=-1", "?version min"), one("version=x", "?version type"), one("verbose=1", "?verbose unknown_parameter"),
		get("/api/v1/tasks/none", "not-found "), get("/api/v1/tasks/%00", "not-found "), get("/api/v1/tasks/"+strings.Repeat("t", 65), "not-found "), get("/api/v1/tasks/none?wait=1", "not-found "),
		output("stream=stdout", "?stream enum"), output("follow=1s", "?follow type"), output("from=1", "?from follow"), output("from=-1&follow=true", "?from min"), output("range=1", "?range unknown_parameter"),
		get("/api/v1/tasks/none/output", "not-found "),
		get("/api/v1/tasks/$TASK/output", "range-not-satisfiable ", "Range", "bytes=0-"),
		get("/api/v1/sessions?mine=x", "invalid-parameter ?mine type"), get("/api/v1/sessions?state=open", "invalid-parameter ?state unknown_parameter"), get("/api/v1/sessions?cursor="+opaque("open"), "invalid-parameter ?cursor cursor"),
		get("/api/v1/sessions/none", "not-found "), get("/api/v1/sessions/open?tasks=1", "invalid-parameter ?tasks unknown_parameter"),
		get("/api/v1/workers?state=online", "invalid-parameter ?state unknown_parameter"), get("/api/v1/workers?limit=x", "invalid-parameter ?limit type"),
		get("/api/v1/workers?v5_id=W100", "invalid-parameter ?v5_id pattern"), get("/api/v1/workers?v5_id=reader", "invalid-parameter ?v5_id pattern"),
		get("/api/v1/workers?v5_id=", "invalid-parameter ?v5_id min"), get("/api/v1/workers?v5_id=W1.99999999", "invalid-parameter ?v5_id max"),
		get("/api/v1/workers/none", "not-found "),
		events("types=", "?types min"), events("types=task", "?types enum"), events("types=tasks.*", "?types enum"), events("types=*", "?types enum"), events("types=task.created,", "?types enum"), events("types=webhook.test", "?types enum"),
		events("types=task.created&types=task.failed", "?types repeated"), events("agent_id=", "?agent_id min"), events("task_id="+strings.Repeat("t", 65), "?task_id max"), events("agent=x", "?agent unknown_parameter"),
		events("last_event_id=-1", "?last_event_id min"), events("last_event_id=x", "?last_event_id type"),
		get("/api/v1/events", "invalid-header Last-Event-ID: event_id", "Last-Event-ID", "x"), get("/api/v1/events", "invalid-header Last-Event-ID: event_id", "Last-Event-ID", "-1"),
		get("/api/v1/events", "invalid-header Last-Event-ID: event_id", "Last-Event-ID", "1.5"),
	}
}
