package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/models"
)

// save stores the next version of the workflow "report".
func (f *fixture) save(t *testing.T, schema string, steps ...plan.Step) int64 {
	t.Helper()
	d := workflow.Definition{Name: "report", Workflow: graph(steps...)}
	if schema != "" {
		d.InputSchema = json.RawMessage(schema)
	}
	saved, _, err := f.tools.Workflows.SaveDefinition(t.Context(), testkit.Admin(), d, nil)
	require.NoError(t, err)
	return saved.Version
}

func invoking(input string, more ...any) map[string]any {
	definition := map[string]any{"name": "report"}
	if input != "" {
		definition["input"] = json.RawMessage(input)
	}
	for i := 0; i < len(more); i += 2 {
		definition[more[i].(string)] = more[i+1]
	}
	return map[string]any{"definition": definition}
}

func graph(steps ...plan.Step) workflow.Graph { return workflow.Graph{Tasks: steps} }

func echo(id, arguments string) plan.Step {
	return plan.Step{ID: id, Tool: "paper:echo", Arguments: json.RawMessage(arguments)}
}

const reportSchema = `{"type":"object","properties":{"day":{"type":"string","minLength":1},"n":{"type":"integer","default":3},
	"files":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}}},"required":["day"],"additionalProperties":false}`

// TestDefinitions executes a stored workflow with an input.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "references to the input keep their types, and its texts are never references", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.save(t, "", echo("a", `{"all":"$input","n":"$input.n","text":"<$input.files[0][\"a b\"]>","literal":"$$input.n"}`), echo("b", `{"v":"$a.result.text","x":"$input.files[0][\"a b\"]"}`))
		v := f.call(t, "execute_dag", invoking(`{"n":12345678901234567890,"files":[{"a b":"$a.result $input.n"}]}`))
		require.Equal(t, "complete", v["status"], "%v", v)
		require.Equal(t, map[string]any{"name": "report", "version": 1.0}, v["definition"])
		got, err := json.Marshal(v["results"])
		require.NoError(t, err)
		require.JSONEq(t, `{"a":{"all":{"n":12345678901234567890,"files":[{"a b":"$a.result $input.n"}]},"n":12345678901234567890,"text":"<$a.result $input.n>","literal":"$input.n"},
			"b":{"v":"<$a.result $input.n>","x":"$a.result $input.n"}}`, string(got))
	})
	testOnDatabases(t, "the input is validated, and defaults are used", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.save(t, reportSchema, echo("a", `{"n":"$input.n","day":"$input.day"}`))
		v := f.call(t, "execute_dag", invoking(`{"day":"monday"}`))
		require.Equal(t, map[string]any{"n": 3.0, "day": "monday"}, v["results"].(map[string]any)["a"])
		for input, want := range map[string]string{
			``:                         "/definition/input/day: day is required",
			`{"day":1}`:                "/definition/input/day: the value does not match the schema",
			`{"day":""}`:               "/definition/input/day: ",
			`{"day":"x","dya":"y"}`:    "/definition/input/dya: dya is not allowed",
			`{"day":"x","n":1.5}`:      "/definition/input/n: ",
			`{"day":"x","files":[{}]}`: "/definition/input/files/0/name: name is required",
			`{"day":"x","files":[{"name":"a"},{"name":1}]}`: "/definition/input/files/1/name: ",
			`{"day":"x","files":[{"name":"a","size/2":1}]}`: "/definition/input/files/0/size~12: size/2 is not allowed",
		} {
			require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", invoking(input)), want, input)
		}
	})
	testOnDatabases(t, "what the steps need of the input is named", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.save(t, "", echo("a", `{"x":"$input.a.b","y":"$input.list[1]"}`))
		message := f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", invoking(`{"a":{},"list":[0]}`))
		require.Contains(t, message, `/definition/input/a/b: the step "a" needs $input.a.b: there is no b in an object`)
		require.Contains(t, message, `/definition/input/list/1: `)
	})
	testOnDatabases(t, "a workflow keeps its version, its input and its approvals", workflow.Options{}, func(t *testing.T, f *fixture) {
		approved := echo("a", `{"n":"$input.n"}`)
		approved.Approve = true
		require.EqualValues(t, 1, f.save(t, "", approved))
		require.EqualValues(t, 1, f.save(t, "", approved), "the same content is the same version")
		v := f.call(t, "execute_dag", invoking(`{"n":7}`))
		require.Equal(t, "approval_required", v["status"], "%v", v)
		require.Equal(t, map[string]any{"n": 7.0}, v["context"].(map[string]any)["steps"].([]any)[0].(map[string]any)["arguments"])
		require.EqualValues(t, 2, f.save(t, "", echo("z", `{}`)))
		v = f.replan(t, v, `[{"id":"b","tool":"paper:echo","arguments":{"from":"$input.n"},"depends_on":["a"]}]`)
		f.tools.Stop(t)
		f.Client = f.At(f.tools.Restart(t, f.paper))
		done := f.decide(t, v, true)
		require.Equal(t, map[string]any{"a": map[string]any{"n": 7.0}, "b": map[string]any{"from": 7.0}}, done["results"], "%v", done)
		newest := f.call(t, "execute_dag", invoking(""))
		require.Equal(t, map[string]any{"name": "report", "version": 2.0}, newest["definition"])
		first := f.call(t, "execute_dag", invoking(`{"n":1}`, "version", 1))
		require.Equal(t, "approval_required", first["status"])
		require.Contains(t, f.RequireFails(t, "DEFINITION_NOT_FOUND", "agentcards:execute_dag", invoking("", "version", 3)), "no version 3")
		require.NoError(t, f.tools.Workflows.DeleteDefinition(t.Context(), testkit.Admin(), "report", nil))
		require.Equal(t, "complete", f.decide(t, first, true)["status"], "a workflow does not need its definition")
		f.RequireFails(t, "DEFINITION_NOT_FOUND", "agentcards:execute_dag", invoking(""))
	})
	testOnDatabases(t, "the settings of the definition and of the request both apply", workflow.Options{}, func(t *testing.T, f *fixture) {
		d := workflow.Definition{Name: "report", Workflow: graph(plan.Step{ID: "a", Tool: "paper:note"}, plan.Step{ID: "b", Tool: "paper:shred", DependsOn: []string{"a"}}), Config: workflow.Config{Approvals: new(models.ToolDestructive)}}
		_, _, err := f.tools.Workflows.SaveDefinition(t.Context(), testkit.Admin(), d, nil)
		require.NoError(t, err)
		args := invoking("")
		requireStates(t, f.call(t, "execute_dag", args), "success", "pending")
		args["config"] = map[string]any{"approvals": "write"}
		requireStates(t, f.call(t, "execute_dag", args), "pending", "pending")
		args["config"] = map[string]any{"per_layer_validation": true}
		v := f.call(t, "execute_dag", args)
		require.Equal(t, "layer_complete", v["status"])
		require.Equal(t, "approval_required", f.call(t, "continue", map[string]any{"workflow_id": v["workflow_id"]})["status"])
	})
	testOnDatabases(t, "the smaller budget and the stricter approver apply", workflow.Options{}, func(t *testing.T, f *fixture) {
		d := workflow.Definition{Name: "report", Workflow: graph(plan.Step{ID: "a", Tool: "paper:shred", Approve: true}), Config: workflow.Config{Budget: new(int64(5000)), Approver: new("human")}}
		_, _, err := f.tools.Workflows.SaveDefinition(t.Context(), testkit.Admin(), d, nil)
		require.NoError(t, err)
		args := invoking("")
		args["config"] = map[string]any{"budget": 9000, "approver": "other"}
		v := f.call(t, "execute_dag", args)
		require.InDelta(t, 5000, v["budget"].(map[string]any)["total"], 0)
		require.Equal(t, "human", v["approver"])
		args["config"] = map[string]any{"budget": 400}
		v = f.call(t, "execute_dag", args)
		require.InDelta(t, 400, v["budget"].(map[string]any)["total"], 0)
		require.Equal(t, "human", v["approver"])
	})
	testOnDatabases(t, "the caller's own permissions apply", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.save(t, "", plan.Step{ID: "a", Tool: "paper:shred"})
		f.SetPolicy(t, `{"deny":[{"tool":"paper:shred"}]}`)
		f.RequireFails(t, "TOOL_NOT_FOUND", "agentcards:execute_dag", invoking(""))
		require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", map[string]any{"definition": map[string]any{"name": "report"}, "intent": "x"}), "exactly one")
		require.Contains(t, f.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_dag", map[string]any{"definition": map[string]any{"version": 1}}), "name")
	})
}

// TestRejectedDefinitions stores invalid definitions: nothing is stored, and the error names the rule.
func TestRejectedDefinitions(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "table", workflow.Options{}, func(t *testing.T, f *fixture) {
		for name, c := range map[string]struct {
			d    workflow.Definition
			want string
		}{
			"a name with a blank":       {workflow.Definition{Name: "a b", Workflow: graph(echo("a", `{}`))}, "must begin with a lowercase letter"},
			"no name":                   {workflow.Definition{Workflow: graph(echo("a", `{}`))}, "must begin with a lowercase letter"},
			"no steps":                  {workflow.Definition{Name: "x"}, "1 to 500 steps"},
			"a step named input":        {workflow.Definition{Name: "x", Workflow: graph(echo("input", `{}`))}, "stands for the input"},
			"an unknown reference":      {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{"x":"$inputs.result"}`))}, "does not exist"},
			"a schema of a text":        {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`"x"`)}, "not a JSON Schema"},
			"a schema of bad types":     {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`{"type":7}`)}, "not a JSON Schema"},
			"a schema that recurses":    {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`{"properties":{"a":{"$ref":"#"}}}`)}, "$ref"},
			"a schema with an anchor":   {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`{"$dynamicAnchor":"n","properties":{"a":{"\u0024dynamicRef":"#n"}}}`)}, "$dynamicRef"},
			"a schema with a pattern":   {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`{"pattern":"("}`)}, "is invalid"},
			"a schema that is too long": {workflow.Definition{Name: "x", Workflow: graph(echo("a", `{}`)), InputSchema: json.RawMessage(`{"title":"` + strings.Repeat("x", plan.MaxSchema) + `"}`)}, "65536 bytes"},
		} {
			_, _, err := f.tools.Workflows.SaveDefinition(t.Context(), testkit.Admin(), c.d, nil)
			require.Truef(t, errs.Is(err, errs.InvalidRequest), "%s: %v", name, err)
			require.ErrorContains(t, err, c.want, name)
		}
		list, err := f.tools.Workflows.Definitions(t.Context(), "", 10)
		require.NoError(t, err)
		require.Empty(t, list)
	})
}

// TestDefinitionsWithAgents refers to the input in an agent step of a stored workflow.
func TestDefinitionsWithAgents(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "agent", workflow.Options{}, func(t *testing.T, f *fixture) {
		f.save(t, `{"properties":{"who":{"default":"Ada"}}}`, plan.Step{ID: "a", Type: plan.KindAgent, Capability: "custom:paper:echo", Arguments: json.RawMessage(`{"to":"$input.who"}`)})
		v := f.call(t, "execute_dag", invoking(""))
		require.Equal(t, map[string]any{"to": "Ada"}, v["results"].(map[string]any)["a"], "%v", v)
	})
}
