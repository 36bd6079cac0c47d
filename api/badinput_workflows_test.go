package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/models"
	"comet/store/storetest"
)

// goodWorkflow is valid; it pauses at once.
const goodWorkflow = `{"workflow":{"tasks":[` + goodStep + `]}}`

const goodStep = `{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true}`

// TestBadWorkflows sends one bad request after the other; in the end there is the one workflow that was there before.
func TestBadWorkflows(t *testing.T) {
	t.Parallel()
	cases := append(badWorkflows(), badWorkflowRequests()...)
	names := map[string]bool{}
	for _, c := range cases {
		require.False(t, names[c.name], c.name)
		names[c.name] = true
	}
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		var paused struct {
			Workflow   string `json:"workflow_id"`
			Checkpoint string `json:"checkpoint_id"`
		}
		started := h.do(t, "POST", "/api/v1/workflows", goodWorkflow)
		started.decode(t, http.StatusOK, &paused)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				c.target = strings.NewReplacer("$WORKFLOW", paused.Workflow, "$CHECKPOINT", paused.Checkpoint).Replace(c.target)
				require.False(t, c.check(t, h, c.body), "it was accepted")
			})
		}
		got := h.do(t, "GET", started.header.Get("Location"), "")
		require.Equal(t, started.header.Get("ETag"), got.header.Get("ETag"))
		require.JSONEq(t, string(started.body), string(got.body))
		var list struct{ Workflows []any }
		h.do(t, "GET", "/api/v1/workflows", "").decode(t, http.StatusOK, &list)
		require.Len(t, list.Workflows, 1)
	})
}

// badWorkflows breaks the rules of the body of a new workflow.
func badWorkflows() []badInput {
	post := func(name, body, want string) badInput {
		return badInput{name: "workflow: " + name, target: "/api/v1/workflows", body: body, want: want}
	}
	tasks := func(name, tasks, want string) badInput { return post(name, `{"workflow":{"tasks":[`+tasks+`]}}`, want) }
	step := func(name, member, value, want string) badInput {
		return tasks(name, replaceMember(goodStep, member, value), want)
	}
	config := func(name, config, want string) badInput {
		return post(name, `{"workflow":{"tasks":[`+goodStep+`]},"config":`+config+`}`, want)
	}
	header := func(name, value, want string) badInput {
		return badInput{name: "workflow: " + name + " " + value, target: "/api/v1/workflows", body: goodWorkflow, header: []string{name, value}, want: want}
	}
	const code = `"type":"code_execution","code":"return 1"`
	return []badInput{
		post("nothing", `{}`, "invalid-request /workflow required"),
		post("no body", ``, "malformed-json - required"),
		post("a list", `[]`, "invalid-request - type"),
		post("an intent and a workflow", `{"intent":"read",`+goodWorkflow[1:], "invalid-request /intent exclusive"),
		post("an empty intent", `{"intent":""}`, "invalid-request /intent min"),
		post("a blank intent", `{"intent":" "}`, "invalid-request /intent range"),
		post("a long intent", `{"intent":"`+strings.Repeat("x", 8001)+`"}`, "invalid-request /intent max"),
		post("a long intent in bytes", `{"intent":"`+strings.Repeat("é", 4001)+`"}`, "invalid-request /intent range"),
		post("an intent of a number", `{"intent":1}`, "invalid-request /intent type"),
		post("an agent step without time", `{"workflow":{"tasks":[{"id":"a","type":"agent_task","agent_id":"x","timeout_ms":99}]}}`, "invalid-request /workflow/tasks/0/timeout_ms min"),
		post("agent steps without time", `{"workflow":{"tasks":[{"id":"a","type":"agent_task","agent_id":"x"}]},"config":{"task_timeout_ms":99}}`, "invalid-request /config/task_timeout_ms min"),
		post("without tasks", `{"workflow":{}}`, "invalid-request /workflow/tasks required"),
		tasks("no tasks", ``, "invalid-request /workflow/tasks range"),
		post("tasks of a string", `{"workflow":{"tasks":"t1"}}`, "invalid-request /workflow/tasks type"),
		tasks("501 tasks", strings.TrimSuffix(strings.Repeat(goodStep+",", 501), ","), "invalid-request /workflow/tasks range"),
		tasks("a task of a number", `1`, "invalid-request /workflow/tasks/0 type"),
		step("an unknown member", "retries", "1", "invalid-request /workflow/tasks/0/retries unknown_field"),
		step("without an id", "id", "", "invalid-request /workflow/tasks/0/id pattern"),
		step("an id with a blank", "id", `"a b"`, "invalid-request /workflow/tasks/0/id pattern"),
		step("an id of a number", "id", `1`, "invalid-request /workflow/tasks/0/id type"),
		step("an unknown type", "type", `"shell"`, "invalid-request /workflow/tasks/0/type enum"),
		step("without a tool", "tool", "", "invalid-request /workflow/tasks/0/tool required"),
		step("arguments of a list", "arguments", `[]`, "invalid-request /workflow/tasks/0/arguments object"),
		step("a reference to nothing", "arguments", `{"a":["$t9.result"]}`, "invalid-request /workflow/tasks/0/arguments/a/0 reference"),
		step("a timeout of a year", "timeout_ms", `31536000000`, "invalid-request /workflow/tasks/0/timeout_ms range"),
		step("a budget for a tool", "budget", `1`, "invalid-request /workflow/tasks/0/budget unexpected"),
		step("approve in words", "approve", `"yes"`, "invalid-request /workflow/tasks/0/approve type"),
		tasks("an id twice", goodStep+","+goodStep, "invalid-request /workflow/tasks/1/id unique"),
		tasks("an unknown dependency", `{"id":"a",`+code+`,"depends_on":["b"]}`, "invalid-request /workflow/tasks/0/depends_on/0 reference"),
		tasks("a cycle", `{"id":"a",`+code+`,"depends_on":["b"]},{"id":"b",`+code+`,"depends_on":["a"]}`, "invalid-request /workflow/tasks/0/depends_on cycle"),
		tasks("several mistakes", `{"id":"","tool":"x:y"},{"id":"b","type":"code_execution"}`, "invalid-request /workflow/tasks/0/id pattern, /workflow/tasks/1/code required"),
		tasks("an unknown tool", `{"id":"a","tool":"nowhere:nothing"}`, "not-found "),
		tasks("a workflow in a workflow", `{"id":"a","tool":"agentcards:abort"}`, "invalid-request "),
		config("a config of a list", `[]`, "invalid-request /config type"),
		config("an unknown option", `{"layers":true}`, "invalid-request /config/layers unknown_field"),
		config("an unknown way on", `{"on_error":"retry"}`, "invalid-request /config/on_error oneof"),
		config("approvals of reads", `{"approvals":"read"}`, "invalid-request /config/approvals oneof"),
		config("no time", `{"task_timeout_ms":0}`, "invalid-request /config/task_timeout_ms min"),
		config("too much time", `{"task_timeout_ms":86400001}`, "invalid-request /config/task_timeout_ms max"),
		config("layers in words", `{"per_layer_validation":"yes"}`, "invalid-request /config/per_layer_validation type"),
		header("Prefer", "wait=soon", "invalid-header Prefer: wait"),
		header("Idempotency-Key", "ä", "invalid-header Idempotency-Key: idempotency_key"),
		header("Content-Type", "text/plain", "unsupported-media-type Content-Type: media_type"),
		{name: "workflow: too large", target: "/api/v1/workflows", body: `{"workflow":"` + strings.Repeat("x", 1<<20) + `"}`, want: "body-too-large "},
		{name: "workflow: a parameter", target: "/api/v1/workflows?wait=1", body: goodWorkflow, want: "invalid-parameter ?wait unknown_parameter"},
	}
}

// badWorkflowRequests breaks the rules of requests about a workflow.
func badWorkflowRequests() []badInput {
	const one, none = "/api/v1/workflows/$WORKFLOW", "/api/v1/workflows/wf_none"
	const checkpoint = one + "/checkpoints/$CHECKPOINT"
	long := strings.Repeat("r", 2001)
	post := func(target, body, want string, header ...string) badInput {
		return badInput{name: "POST " + target + " " + body[:min(len(body), 60)] + strings.Join(header, " "), target: target, body: body, header: header, want: want}
	}
	get := func(target, want string) badInput {
		return badInput{name: "GET " + target, method: "GET", target: target, want: want}
	}
	const plan = "/api/v1/workflows/plan"
	return []badInput{
		post(plan, `{}`, "invalid-request /workflow required"), post(plan, `{"intent":"read",`+goodWorkflow[1:], "invalid-request /intent exclusive"),
		post(plan, `{"intent":"\t"}`, "invalid-request /intent range"), post(plan, `{"workflow":{"tasks":[]}}`, "invalid-request /workflow/tasks range"),
		post(plan, `{"workflow":{"tasks":[{"id":"a","tool":"nowhere:nothing"}]}}`, "not-found "), post(plan, ``, "malformed-json - required"),
		post(plan, `{"workflow":{"tasks":[{"id":"a","type":"code_execution","code":"1","depends_on":["a"]}]}}`, "invalid-request /workflow/tasks/0/depends_on/0 cycle"),
		post(plan+"?wait=1", goodWorkflow, "invalid-parameter ?wait unknown_parameter"),
		get(none, "not-found "), get("/api/v1/workflows/%00", "not-found "), get("/api/v1/workflows/"+strings.Repeat("w", 65), "not-found "),
		get(one+"?wait=-1", "invalid-parameter ?wait min"), get(one+"?wait=61", "invalid-parameter ?wait max"), get(one+"?version=1", "invalid-parameter ?version unknown_parameter"),
		get(none+"?wait=1", "not-found "),
		get("/api/v1/workflows?status=layer_complete", "invalid-parameter ?status enum"), get("/api/v1/workflows?state=running", "invalid-parameter ?state unknown_parameter"),
		get("/api/v1/workflows?limit=0", "invalid-parameter ?limit min"), get("/api/v1/workflows?cursor=%2B", "invalid-parameter ?cursor cursor"),
		get(one+"/steps/t1/result", "not-found "), get(one+"/steps/t2/result", "not-found "), get(none+"/steps/t1/result", "not-found "),
		get(none+"/graph", "not-found "), get(one+"/graph?format=dot", "invalid-parameter ?format unknown_parameter"),
		get(none+"/checkpoints", "not-found "), get(one+"/checkpoints?state=open", "invalid-parameter ?state unknown_parameter"),
		get(one+"/checkpoints?limit=0", "invalid-parameter ?limit min"), get(one+"/checkpoints?cursor=%2B", "invalid-parameter ?cursor cursor"),
		get(one+"/steps/t1/result?raw=1", "invalid-parameter ?raw unknown_parameter"),
		post(none+"/continue", ``, "not-found "), post(one+"/continue", ``, "conflict "), post(one+"/continue", `{"reason":1}`, "invalid-request /reason type"),
		post(one+"/continue", `{"reason":"`+long+`"}`, "invalid-request /reason max"), post(one+"/continue", `{"why":"x"}`, "invalid-request /why unknown_field"),
		post(one+"/continue", `{}`, "invalid-header Prefer: wait", "Prefer", "wait"),
		post(none+"/abort", `{"reason":"x"}`, "not-found "), post(one+"/abort", ``, "malformed-json - required"), post(one+"/abort", `{}`, "invalid-request /reason required"),
		post(one+"/abort", `{"reason":""}`, "invalid-request /reason min"), post(one+"/abort", `{"reason":"`+long+`"}`, "invalid-request /reason max"),
		post(none+"/checkpoints/cp_none", `{"approved":true}`, "not-found "), post(one+"/checkpoints/cp_none", `{"approved":true}`, "not-found "),
		post(checkpoint, `{}`, "invalid-request /approved required"), post(checkpoint, `{"approved":null}`, "invalid-request /approved required"),
		post(checkpoint, `{"approved":"yes"}`, "invalid-request /approved type"), post(checkpoint, `{"approved":true,"feedback":"`+long+`"}`, "invalid-request /feedback max"),
		post(checkpoint, `{"approved":true,"digest":"00"}`, "conflict "), post(checkpoint, `{"approved":true,"digest":"`+long+`"}`, "invalid-request /digest max"),
		post(checkpoint, `{"approved":true,"resolution":"again"}`, "invalid-request /resolution oneof"), post(checkpoint, `{"approved":true,"results":[]}`, "invalid-request /results type"),
		{name: "workflow: DELETE", method: "DELETE", target: one, want: "method-not-allowed "},
		get("/api/v1/events?workflow_id="+strings.Repeat("w", 65), "invalid-parameter ?workflow_id max"),
	}
}

// TestLimitOfWorkflows starts as many workflows as a token may have, and one more.
func TestLimitOfWorkflows(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		for range 100 {
			require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows", goodWorkflow).status)
		}
		got := h.do(t, "POST", "/api/v1/workflows", goodWorkflow, "Idempotency-Key", "later")
		p := got.problem(t, http.StatusTooManyRequests, errs.RateLimited)
		require.Contains(t, p.Detail, "100 workflows")
		require.Equal(t, map[string]any{"tool_error": "WORKFLOW_LIMIT"}, metaOf(t, got))
		require.Equal(t, "1", got.header.Get("Retry-After"))
		other := h.token(t, models.ScopeToolsCall)
		require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows", goodWorkflow, "Authorization", "Bearer "+other).status, "another token has a limit of its own")
		var page struct {
			Workflows []struct {
				ID string `json:"workflow_id"`
			}
		}
		h.do(t, "GET", "/api/v1/workflows", "", "Authorization", "Bearer "+other).decode(t, http.StatusOK, &page)
		require.Len(t, page.Workflows, 1)
		h.do(t, "GET", "/api/v1/workflows?limit=1000", "").decode(t, http.StatusOK, &page)
		require.Len(t, page.Workflows, 101)
		last := page.Workflows[100].ID
		require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows/"+last+"/abort", `{"reason":"not needed"}`).status)
		require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows", goodWorkflow, "Idempotency-Key", "later").status, "the refusal used no key")
	})
}

// TestCheckpointsOfAWorkflow pages through the checkpoints of a workflow, each with its decision.
func TestCheckpointsOfAWorkflow(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		const step = `{"id":"%s","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true,"depends_on":[%s]}`
		var v struct {
			ID         string `json:"workflow_id"`
			Checkpoint string `json:"checkpoint_id"`
		}
		h.do(t, "POST", "/api/v1/workflows", fmt.Sprintf(`{"workflow":{"tasks":[`+step+`,`+step+`]}}`, "a", "", "b", `"a"`)).decode(t, http.StatusOK, &v)
		address := "/api/v1/workflows/" + v.ID
		first := v.Checkpoint
		require.Equal(t, http.StatusOK, h.do(t, "POST", address+"/checkpoints/"+first, `{"approved":true,"feedback":"right"}`, "Prefer", "wait=30").status)
		type record struct {
			ID         string `json:"checkpoint_id"`
			State      string
			Pause      string
			Feedback   string
			DecidedBy  string `json:"decided_by"`
			Actor      string
			CreatedAt  time.Time  `json:"created_at"`
			DecidedAt  *time.Time `json:"decided_at"`
			ExpiresAt  time.Time  `json:"expires_at"`
			Digest     string
			Steps      []struct{ ID, Digest string }
			Resolution string
		}
		list := func(query string) (all []record, next string) {
			t.Helper()
			var page struct {
				Checkpoints []record
				NextCursor  string `json:"next_cursor"`
			}
			h.do(t, "GET", address+"/checkpoints"+query, "").decode(t, http.StatusOK, &page)
			return page.Checkpoints, page.NextCursor
		}
		require.Eventually(t, func() bool { all, _ := list(""); return len(all) == 2 }, testkit.Timeout, time.Millisecond)
		newest, cursor := list("?limit=1")
		oldest, end := list("?limit=1&cursor=" + cursor)
		require.Empty(t, end)
		require.Equal(t, []any{"open", "approval", "b", "", ""}, []any{newest[0].State, newest[0].Pause, newest[0].Steps[0].ID, newest[0].DecidedBy, newest[0].Actor})
		require.Nil(t, newest[0].DecidedAt)
		require.Equal(t, []any{first, "approved", "approval", "right", "a", ""}, []any{oldest[0].ID, oldest[0].State, oldest[0].Pause, oldest[0].Feedback, oldest[0].Steps[0].ID, oldest[0].Resolution})
		require.NotEmpty(t, oldest[0].DecidedBy)
		require.NotEmpty(t, oldest[0].Actor)
		require.NotEmpty(t, oldest[0].Digest)
		require.False(t, oldest[0].DecidedAt.Before(oldest[0].CreatedAt))
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", address+"/checkpoints", "", "Authorization", "Bearer "+h.token(t, models.ScopeToolsCall)).status)
		require.Equal(t, http.StatusNotFound, h.do(t, "GET", address+"/graph", "", "Authorization", "Bearer "+h.token(t, models.ScopeToolsCall)).status)
		var graph struct {
			Status string
			Tasks  []struct {
				ID, Status string
				DependsOn  []string `json:"depends_on"`
			}
		}
		h.do(t, "GET", address+"/graph", "").decode(t, http.StatusOK, &graph)
		require.Equal(t, []any{"paused", "success", "pending", []string{"a"}}, []any{graph.Status, graph.Tasks[0].Status, graph.Tasks[1].Status, graph.Tasks[1].DependsOn})
	})
}

// TestAgentStepsNeedTheirScope starts a task of an agent with a token that may only call tools.
func TestAgentStepsNeedTheirScope(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		body := `{"workflow":{"tasks":[{"id":"a","type":"agent_task","capability":"read","approve":true}]}}`
		got := h.do(t, "POST", "/api/v1/workflows", body, "Authorization", "Bearer "+h.token(t, models.ScopeToolsCall))
		require.Contains(t, got.problem(t, http.StatusForbidden, errs.ToolDenied).Detail, "messages:send")
		require.Equal(t, map[string]any{"tool_error": "PERMISSION_DENIED", "tool_details": map[string]any{"step": "a"}}, metaOf(t, got))
		require.Equal(t, http.StatusOK, h.do(t, "POST", "/api/v1/workflows", body, "Authorization", "Bearer "+h.token(t, models.ScopeToolsCall, models.ScopeMessagesSend)).status)
	})
}

// TestWaitForWorkflow waits for a workflow that runs until it is aborted, the limit of waits is reached, or the server
// shuts down.
func TestWaitForWorkflow(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{streams: 10}) // one for each token
		start := func() (address string) {
			t.Helper()
			started := h.do(t, "POST", "/api/v1/workflows", `{"workflow":{"tasks":[{"id":"a","type":"code_execution","code":"for (;;) {}"}]}}`)
			require.Equal(t, http.StatusAccepted, started.status, "%s", started.body)
			require.Empty(t, started.header.Get("Preference-Applied"))
			return started.header.Get("Location")
		}
		first := start()
		waited := make(chan response, 1)
		go func() {
			got, err := h.doContext(t.Context(), "GET", first+"?wait=20", "")
			assert.NoError(t, err)
			waited <- got
		}()
		aborted := h.do(t, "POST", first+"/abort", `{"reason":"enough"}`)
		require.Contains(t, string(aborted.body), `"reason":"enough"`)
		got := <-waited
		require.Equal(t, "wait=20", got.header.Get("Preference-Applied"))
		require.Contains(t, string(got.body), `"status":"aborted"`)

		second := start()
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", h.url+"/api/v1/events", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+h.admin)
		stream, err := h.client.RoundTrip(req)
		require.NoError(t, err)
		got = h.do(t, "GET", second+"?wait=20", "")
		require.Empty(t, got.header.Get("Preference-Applied"), "the stream is all that the token may have")
		require.Contains(t, string(got.body), `"status":"running"`)
		cancel()
		require.NoError(t, stream.Body.Close())

		h.server.Drain()
		require.Eventually(t, func() bool {
			got = h.do(t, "GET", second+"?wait=20", "")
			return got.header.Get("Preference-Applied") == "wait=20"
		}, time.Minute, time.Millisecond)
		require.Contains(t, string(got.body), `"status":"running"`)
		require.Equal(t, http.StatusOK, h.do(t, "POST", second+"/abort", `{"reason":"enough"}`).status)
	})
}
