package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// goodWorkflow is valid; it pauses at once.
const goodWorkflow = `{"workflow":{"tasks":[` + goodStep + `]}}`

const goodStep = `{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true}`

// TestBadWorkflows sends one bad request after the other; in the end there is the one workflow that was there before.
func TestBadWorkflows(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(badWorkflows(), badWorkflowTexts(), badWorkflowRequests(), badDefinitions())
	require.GreaterOrEqual(t, len(cases), 120)
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
		require.Equal(t, http.StatusCreated, h.do(t, "PUT", "/api/v1/workflow-definitions/good", goodDefinition).status)
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
		var stored struct{ Definitions []struct{ Version int } }
		h.do(t, "GET", "/api/v1/workflow-definitions", "").decode(t, http.StatusOK, &stored)
		require.Len(t, stored.Definitions, 1)
		require.Equal(t, 1, stored.Definitions[0].Version)
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
		config("an unknown approver", `{"approver":"several"}`, "invalid-request /config/approver oneof"),
		config("no approver", `{"approver":""}`, "invalid-request /config/approver oneof"),
		config("an approver of a list", `{"approver":["other"]}`, "invalid-request /config/approver type"),
		config("no tokens", `{"budget":0}`, "invalid-request /config/budget min"),
		config("too many tokens", `{"budget":1000000000001}`, "invalid-request /config/budget max"),
		config("half a token", `{"budget":0.5}`, "invalid-request /config/budget type"),
		config("tokens in words", `{"budget":"all"}`, "invalid-request /config/budget type"),
		post("an agent without a budget", `{"workflow":{"tasks":[{"id":"a","type":"agent_task","capability":"x"}]},"config":{"budget":9}}`, "invalid-request /workflow/tasks/0/budget required"),
		post("an agent with too large a budget", `{"workflow":{"tasks":[{"id":"a","type":"agent_task","capability":"x","budget":10}]},"config":{"budget":9}}`, "invalid-request /workflow/tasks/0/budget max"),
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
		return badInput{name: "POST " + target + " " + body[:min(len(body), 100)] + strings.Join(header, " "), target: target, body: body, header: header, want: want}
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
		get("/api/v1/workflows?decidable=maybe", "invalid-parameter ?decidable type"), get("/api/v1/workflows?limit=0", "invalid-parameter ?limit min"), get("/api/v1/workflows?cursor=%2B", "invalid-parameter ?cursor cursor"),
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
		post(checkpoint, `{"approved":true,"resolution":"again"}`, "invalid-request /resolution oneof"), post(checkpoint, `{"approved":true,"resolution":"raise","budget":0}`, "invalid-request /budget min"), post(checkpoint, `{"approved":true,"budget":1000000000001}`, "invalid-request /budget max"),
		post(checkpoint, `{"approved":true,"budget":"1"}`, "invalid-request /budget type"), post(checkpoint, `{"approved":true,"results":[]}`, "invalid-request /results type"),
		post(none+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"agentcards:search_tools"}]}}`, "not-found "), post(one+"/replan", ``, "malformed-json - required"),
		post(one+"/replan", `{}`, "invalid-request /workflow required"), post(one+"/replan", `{"workflow":{}}`, "invalid-request /workflow/tasks required"),
		post(one+"/replan", `{"workflow":{"tasks":[]}}`, "invalid-request /workflow/tasks range"), post(one+"/replan", `{"workflow":{"tasks":["a"]}}`, "invalid-request /workflow/tasks/0 type"),
		post(one+"/replan", `{"workflow":{"tasks":[`+goodStep+`]}}`, "invalid-request /workflow/tasks/0/id unique"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y","depends_on":["t0"]}]}}`, "invalid-request /workflow/tasks/0/depends_on/0 reference"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y","arguments":{"a":"$t9.result"}}]}}`, "invalid-request /workflow/tasks/0/arguments/a reference"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y","depends_on":["z"]}]}}`, "invalid-request /workflow/tasks/0/depends_on/0 cycle"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"nowhere:nothing"}]}}`, "not-found "), post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"agentcards:replan"}]}}`, "invalid-request "),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y"}]},"new_requirement":7}`, "invalid-request /new_requirement type"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y"}]},"new_requirement":"`+strings.Repeat("r", 8001)+`"}`, "invalid-request /new_requirement max"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y"}]},"config":{}}`, "invalid-request /config unknown_field"),
		post(one+"/replan", `{"workflow":{"tasks":[{"id":"z","tool":"x:y","FirstLayer":1}]}}`, "invalid-request /workflow/tasks/0/FirstLayer unknown_field"),
		{name: "workflow: DELETE", method: "DELETE", target: one, want: "method-not-allowed "},
		get("/api/v1/events?workflow_id="+strings.Repeat("w", 65), "invalid-parameter ?workflow_id max"),
	}
}

const goodDefinition = `{"workflow":{"tasks":[{"id":"t1","tool":"agentcards:search_tools","arguments":{"query":"$input.q"}}]},"input_schema":{"properties":{"q":{"type":"string"},"list":{"items":{"type":"integer"}}},"required":["q"],"additionalProperties":false}}`

// badDefinitions breaks the rules of stored workflows and of their input.
func badDefinitions() []badInput {
	const one = "/api/v1/workflow-definitions/good"
	put := func(name, target, body, want string, header ...string) badInput {
		return badInput{name: "definition: " + name, method: "PUT", target: target, body: body, header: header, want: want}
	}
	member := func(name, member, value, want string) badInput {
		return put(name, one, replaceMember(goodDefinition, member, value), want)
	}
	task := func(name, task, want string) badInput { return member(name, "workflow", `{"tasks":[`+task+`]}`, want) }
	run := func(name, definition, want string) badInput {
		return badInput{name: "run: " + name, target: "/api/v1/workflows", body: `{"definition":` + definition + `}`, want: want}
	}
	input := func(name, input, want string) badInput { return run(name, `{"name":"good","input":`+input+`}`, want) }
	get := func(target, want string) badInput {
		return badInput{name: "GET " + target, method: "GET", target: target, want: want}
	}
	return []badInput{
		put("a name with capitals", "/api/v1/workflow-definitions/Good", goodDefinition, "invalid-request "), put("a name with a blank", "/api/v1/workflow-definitions/a%20b", goodDefinition, "invalid-request "),
		put("a long name", "/api/v1/workflow-definitions/"+strings.Repeat("n", 65), goodDefinition, "not-found "), put("no body", one, ``, "malformed-json - required"), put("nothing", one, `{}`, "invalid-request /workflow required"),
		member("a description of a number", "description", `1`, "invalid-request /description type"), member("a long description", "description", `"`+strings.Repeat("d", 2001)+`"`, "invalid-request /description max"),
		member("an unknown member", "tasks", `[]`, "invalid-request /tasks unknown_field"), member("a schema of a text", "input_schema", `"x"`, "invalid-request /input_schema schema"),
		member("a schema of a list", "input_schema", `[]`, "invalid-request /input_schema schema"), member("a schema with a type of a number", "input_schema", `{"type":1}`, "invalid-request /input_schema schema"),
		member("a schema that refers to itself", "input_schema", `{"properties":{"a":{"$ref":"#"}}}`, "invalid-request /input_schema schema"),
		member("a schema with a dynamic reference", "input_schema", `{"items":{"$dynamicRef":"#a"}}`, "invalid-request /input_schema schema"),
		member("a schema with a wrong pattern", "input_schema", `{"pattern":"["}`, "invalid-request /input_schema schema"),
		member("a schema that is too long", "input_schema", `{"title":"`+strings.Repeat("x", 64<<10)+`"}`, "invalid-request /input_schema max"),
		member("a config with an unknown class", "config", `{"approvals":"all"}`, "invalid-request /config/approvals oneof"), member("no tasks", "workflow", `{"tasks":[]}`, "invalid-request /workflow/tasks range"),
		task("a task named input", `{"id":"input","tool":"x:y"}`, "invalid-request /workflow/tasks/0/id reserved"), task("a reference to nothing", `{"id":"a","tool":"x:y","arguments":{"a":"$OUTPUT[input]"}}`, "invalid-request /workflow/tasks/0/arguments/a reference"),
		task("an id with a blank", `{"id":"a b","tool":"x:y"}`, "invalid-request /workflow/tasks/0/id pattern"), task("a cycle", `{"id":"a","tool":"x:y","depends_on":["a"]}`, "invalid-request /workflow/tasks/0/depends_on/0 cycle"),
		put("a parameter", one+"?version=1", goodDefinition, "invalid-parameter ?version unknown_parameter"), put("another media type", one, goodDefinition, "unsupported-media-type Content-Type: media_type", "Content-Type", "text/plain"),
		get("/api/v1/workflow-definitions/none", "not-found "), get(one+"?version=0", "invalid-parameter ?version min"), get(one+"?version=2", "not-found "), get(one+"?versions=1", "invalid-parameter ?versions unknown_parameter"),
		get("/api/v1/workflow-definitions?limit=0", "invalid-parameter ?limit min"), get("/api/v1/workflow-definitions?name=x", "invalid-parameter ?name unknown_parameter"),
		{name: "definition: DELETE", method: "DELETE", target: "/api/v1/workflow-definitions/none", want: "not-found "},
		run("of a text", `"good"`, "invalid-request /definition type"), run("without a name", `{}`, "invalid-request /definition/name required"), run("of nothing", `{"name":"none"}`, "not-found "),
		run("of version 0", `{"name":"good","version":0,"input":{"q":"x"}}`, "invalid-request /definition/version min"), run("of version 2", `{"name":"good","version":2,"input":{"q":"x"}}`, "not-found "),
		run("with an unknown member", `{"name":"good","inputs":{}}`, "invalid-request /definition/inputs unknown_field"),
		{name: "run: both", target: "/api/v1/workflows", body: `{"definition":{"name":"good"},` + goodWorkflow[1:], want: "invalid-request /definition exclusive"},
		run("without an input", `{"name":"good"}`, "invalid-request /definition/input/q required"), input("with an input of null", `null`, "invalid-request /definition/input/q required"),
		input("with an input of a list", `[]`, "invalid-request /definition/input object"), input("with an input of a text", `"x"`, "invalid-request /definition/input object"),
		input("with a number for a text", `{"q":1}`, "invalid-request /definition/input/q schema"), input("with an unknown member of the input", `{"q":"x","r":1}`, "invalid-request /definition/input/r unexpected"),
		input("with a wrong element", `{"q":"x","list":[1,"2"]}`, "invalid-request /definition/input/list/1 schema"), input("with several mistakes", `{"list":["a","b"]}`, "invalid-request /definition/input/q required, /definition/input/list/0 schema, /definition/input/list/1 schema"),
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

// TestBudgetOfWorkflow starts workflows with more tokens than their agent has left, and than are left beside another one.
func TestBudgetOfWorkflow(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
		h := setup(t, db, fixtureOptions{})
		require.Equal(t, http.StatusCreated, h.create(t, "payer", 2, 555, "orch-personnel", `,"token_budget":5000`).status)
		_, secret := h.issueToken(t, `{"name":"p","scopes":["tools:call"],"agent_id":"payer"}`)
		by := []string{"Authorization", "Bearer " + secret, "Idempotency-Key", "one"}
		start := func(budget string) response {
			return h.do(t, "POST", "/api/v1/workflows", strings.TrimSuffix(goodWorkflow, "}")+`,"config":{"budget":`+budget+`}}`, by...)
		}
		got := start("5001")
		require.Contains(t, got.problem(t, http.StatusTooManyRequests, errs.RateLimited).Detail, "larger than the whole daily budget")
		require.Equal(t, "BUDGET_EXCEEDED", metaOf(t, got)["tool_error"])
		seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, seconds)
		require.LessOrEqual(t, seconds, 86_400, "until the next day")
		var v struct {
			Status string
			Budget map[string]int64
		}
		start("3000").decode(t, http.StatusOK, &v)
		require.Equal(t, map[string]int64{"total": 3000, "used": 0, "reserved": 3000}, v.Budget)
		by[3] = "two"
		got = start("3000")
		require.Contains(t, got.problem(t, http.StatusTooManyRequests, errs.RateLimited).Detail, "other reservations")
		require.Equal(t, "5", got.header.Get("Retry-After"))
		sent, err := store.Row[int](db.Reads(t.Context()), "SELECT count(*) FROM events WHERE type = 'agent.budget_exceeded' AND key = 'payer'")
		require.NoError(t, err)
		require.Equal(t, 1, sent)
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
		require.Eventually(t, func() bool { all, _ := list(""); return len(all) == 2 }, testkit.Timeout, 5*time.Millisecond)
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
				Attempts   int
				StartedAt  *time.Time `json:"started_at"`
				EndedAt    *time.Time `json:"ended_at"`
			}
		}
		h.do(t, "GET", address+"/graph", "").decode(t, http.StatusOK, &graph)
		require.Equal(t, []any{"paused", "success", "pending", []string{"a"}}, []any{graph.Status, graph.Tasks[0].Status, graph.Tasks[1].Status, graph.Tasks[1].DependsOn})
		require.Equal(t, []int{1, 0}, []int{graph.Tasks[0].Attempts, graph.Tasks[1].Attempts})
		require.False(t, graph.Tasks[0].EndedAt.Before(*graph.Tasks[0].StartedAt))
		require.Nil(t, graph.Tasks[1].StartedAt)
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
		}, time.Minute, 5*time.Millisecond)
		require.Contains(t, string(got.body), `"status":"running"`)
		require.Equal(t, http.StatusOK, h.do(t, "POST", second+"/abort", `{"reason":"enough"}`).status)
	})
}
