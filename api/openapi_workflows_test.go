package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorkflowResponsesMatchTheDescription brings workflows into their states and compares each response with the
// description.
func TestWorkflowResponsesMatchTheDescription(t *testing.T) {
	t.Parallel()
	const all, one = "/api/v1/workflows", "/api/v1/workflows/{workflow_id}"
	d := newTaskServer(t)
	start := func(body string, status int) map[string]any {
		t.Helper()
		return d.ask(t, "POST", all, all, body, status)
	}
	at := func(path string, v map[string]any) string {
		checkpoint, _ := v["checkpoint_id"].(string)
		return strings.NewReplacer("{workflow_id}", v["workflow_id"].(string), "{checkpoint_id}", checkpoint, "{step_id}", "a").Replace(path)
	}
	start(`{}`, 400)
	start(`{"workflow":{"tasks":[{"id":"a","tool":"x:y"}]}}`, 404)
	plan := func(body string, status int) map[string]any {
		t.Helper()
		return d.ask(t, "POST", all+"/plan", all+"/plan", body, status)
	}
	plan(`{}`, 400)
	plan(`{"workflow":{"tasks":[{"id":"a","tool":"x:y"}]}}`, 404)
	const twoLayers = `{"workflow":{"tasks":[{"id":"a","tool":"agentcards__search_tools","arguments":{"query":"x"}},{"id":"b","type":"code_execution","code":"return deps.a","arguments":{"x":"$a.result"}},{"id":"c","type":"agent_task","capability":"custom:x"}]},"config":{"approvals":"destructive"}}`
	require.Equal(t, map[string]any{"status": "ready", "total_layers": 2.0, "parallel_branches": 2.0, "tasks": []any{
		map[string]any{"id": "a", "type": "mcp_tool", "tool": "agentcards:search_tools", "class": "read", "layer": 1.0, "depends_on": []any{}, "approval": false},
		map[string]any{"id": "b", "type": "code_execution", "tool": "agentcards:execute_code", "class": "destructive", "layer": 2.0, "depends_on": []any{"a"}, "approval": true},
		map[string]any{"id": "c", "type": "agent_task", "capability": "custom:x", "class": "destructive", "layer": 1.0, "depends_on": []any{}, "approval": true},
	}}, plan(twoLayers, 200))
	unknown := map[string]any{"status": "explicit_required", "confidence": 0.0, "missing": []any{}, "unclear": []any{"Dance in the rain"}, "alternatives": []any{}}
	for _, got := range []map[string]any{plan(`{"intent":"Dance in the rain"}`, 200), start(`{"intent":"Dance in the rain"}`, 200)} {
		require.Contains(t, got["next_action"], "Nothing was executed.")
		delete(got, "next_action")
		require.Equal(t, unknown, got)
	}
	const approved = `{"workflow":{"tasks":[{"id":"a","tool":"agentcards:search_tools","arguments":{"query":"x"},"approve":true}]}}`
	asks := start(approved, 200)
	d.ask(t, "GET", one, at(one, asks), "", 200)
	d.ask(t, "POST", one+"/continue", at(one+"/continue", asks), "", 409)
	const decide = one + "/checkpoints/{checkpoint_id}"
	d.ask(t, "POST", decide, at(decide, asks), `{}`, 400)
	d.ask(t, "POST", decide, at(decide, asks), `{"approved":true,"digest":"0"}`, 409)
	d.ask(t, "POST", decide, at(decide, asks), `{"approved":true}`, 200)
	require.Equal(t, "complete", d.ask(t, "GET", one, at(one, asks)+"?wait=20", "", 200)["status"])
	d.ask(t, "GET", one+"/steps/{step_id}/result", at(one+"/steps/{step_id}/result", asks), "", 200)
	d.ask(t, "GET", one, at(one, asks)+"?wait=x", "", 400)
	d.ask(t, "POST", one+"/abort", at(one+"/abort", asks), `{"reason":"late"}`, 409)
	d.ask(t, "GET", one+"/graph", at(one+"/graph", asks), "", 200)
	d.ask(t, "GET", one+"/checkpoints", at(one+"/checkpoints", asks), "", 200)
	d.ask(t, "GET", one+"/checkpoints", at(one+"/checkpoints", asks)+"?limit=0", "", 400)
	rejected := start(approved, 200)
	require.Equal(t, "rejected", d.ask(t, "POST", decide, at(decide, rejected), `{"approved":false,"feedback":"no"}`, 200)["status"])
	d.ask(t, "GET", one+"/steps/{step_id}/result", at(one+"/steps/{step_id}/result", rejected), "", 404)

	const layers = `{"workflow":{"tasks":[{"id":"a","type":"code_execution","code":"return 'x'"},{"id":"b","type":"code_execution","code":"throw 1","depends_on":["a"]}]},"config":{"per_layer_validation":true}}`
	layered := start(layers, 202)
	require.Equal(t, "layer_complete", d.ask(t, "GET", one, at(one, layered)+"?wait=20", "", 200)["status"])
	d.ask(t, "GET", all, all+"?limit=1", "", 200)
	d.ask(t, "GET", all, all+"?limit=0", "", 400)
	d.ask(t, "POST", one+"/continue", at(one+"/continue", layered), `{"checkpoint_id":"cp_of_an_earlier_layer"}`, 409)
	open := d.ask(t, "GET", one, at(one, layered), "", 200)["checkpoint_id"]
	d.ask(t, "POST", one+"/continue", at(one+"/continue", layered), fmt.Sprintf(`{"checkpoint_id":%q,"reason":"right"}`, open), 200)
	require.Equal(t, "error", d.ask(t, "GET", one, at(one, layered)+"?wait=20", "", 200)["status"])
	aborted := start(approved, 200)
	const more = `{"workflow":{"tasks":[{"id":"b","type":"code_execution","code":"return 1"}]}}`
	d.ask(t, "POST", one+"/replan", at(one+"/replan", aborted), more, 200)
	d.ask(t, "POST", one+"/replan", at(one+"/replan", aborted), more, 400)
	d.ask(t, "POST", one+"/replan", at(one+"/replan", layered), more, 409)
	d.ask(t, "POST", one+"/abort", at(one+"/abort", aborted), `{}`, 400)
	require.Equal(t, "aborted", d.ask(t, "POST", one+"/abort", at(one+"/abort", aborted), `{"reason":"enough"}`, 200)["status"])
	d.ask(t, "GET", all, all, "", http.StatusOK)
	for _, path := range []string{one, one + "/steps/{step_id}/result", one + "/graph", one + "/checkpoints"} {
		d.ask(t, "GET", path, at(path, map[string]any{"workflow_id": "wf_none"}), "", 404)
	}
	const stored, definition, named = "/api/v1/workflow-definitions/{definition_id}", `{"workflow":{"tasks":[{"id":"a","type":"code_execution","code":"return 1","arguments":{"x":"$input.x"}}]},"input_schema":{"required":["x"]},"config":{"approvals":"write"},"description":"d"}`, "/api/v1/workflow-definitions/one"
	d.ask(t, "PUT", stored, named, definition, 201)
	d.ask(t, "PUT", stored, named, definition, 200)
	d.ask(t, "PUT", stored, named, `{}`, 400)
	d.ask(t, "GET", stored, named, "", 200)
	d.ask(t, "GET", stored, named+"?version=2", "", 404)
	d.ask(t, "GET", "/api/v1/workflow-definitions", "/api/v1/workflow-definitions", "", 200)
	require.Equal(t, "approval_required", start(`{"definition":{"name":"one","input":{"x":1}}}`, 200)["status"])
	start(`{"definition":{"name":"one","input":{}}}`, 400)
	start(`{"definition":{"name":"two"}}`, 404)
	d.ask(t, "GET", all, all, "", http.StatusOK)
	d.ask(t, "DELETE", stored, named, "", 204)
	d.ask(t, "DELETE", stored, named, "", 404)
	for path, body := range map[string]string{one + "/continue": "", one + "/abort": `{"reason":"x"}`, one + "/replan": more, decide: `{"approved":true}`} {
		d.ask(t, "POST", path, at(path, map[string]any{"workflow_id": "wf_none", "checkpoint_id": "cp_none"}), body, 404)
	}
}
