package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/workflow/plan"
)

func parse(t testing.TB, steps string) []plan.Step {
	t.Helper()
	var out []plan.Step
	require.NoError(t, json.Unmarshal([]byte(steps), &out))
	return out
}

func newPlan(t testing.TB, steps string) *plan.Plan {
	t.Helper()
	p, err := plan.New(parse(t, steps), "/workflow/tasks")
	require.NoError(t, err)
	return p
}

func TestExampleOfAgentCards(t *testing.T) {
	p := newPlan(t, `[
		{"id": "t1", "tool": "filesystem:read_file", "arguments": {"path": "config.json"}},
		{"id": "t2", "tool": "filesystem:read_file", "arguments": {"path": "package.json"}},
		{"id": "t3", "tool": "memory:create_entities", "arguments": {"entities": [{"name": "config", "content": "$t1.result"}]}, "depends_on": ["t1"]}
	]`)
	assert.Equal(t, 2, p.Layers)
	assert.Equal(t, 2, p.Width)
	assert.Equal(t, []int{0}, p.Steps[2].Needs)
	assert.Equal(t, []int{1, 1, 2}, []int{p.Steps[0].Layer, p.Steps[1].Layer, p.Steps[2].Layer})
	assert.Equal(t, plan.KindTool, p.Steps[0].Type)
}

func TestReferencesImplyDependencies(t *testing.T) {
	p := newPlan(t, `[
		{"id": "c", "tool": "a:b", "arguments": {"x": "see $OUTPUT[a] and $b.result.y[0]"}},
		{"id": "a", "tool": "a:b"},
		{"id": "b", "type": "code_execution", "code": "1", "arguments": {"deep": [{"x": "$a.result"}]}}
	]`)
	assert.Equal(t, []int{1, 2}, p.Steps[0].Needs)
	assert.Equal(t, []int{1}, p.Steps[2].Needs)
	assert.Equal(t, 3, p.Layers)
	assert.Equal(t, 1, p.Width)
}

func TestTextsThatAreNotReferences(t *testing.T) {
	for _, text := range []string{
		"$5.00", "$", "$$", "$HOME/bin", "${x}", "$price.usd", "$t9.results", "a$b", "$t1", "OUTPUT[t1]", "$OUTPUT", "$OUTPUT[]", "$OUTPUT[1]", "$$t1.result", "$$OUTPUT[t9]", "$$t1.output", "$.result", "US$ result",
	} {
		t.Run(text, func(t *testing.T) {
			arguments, err := json.Marshal(map[string]string{"x": text})
			require.NoError(t, err)
			p, err := plan.New([]plan.Step{{ID: "t1", Tool: "a:b"}, {ID: "t2", Tool: "a:b", Arguments: arguments}}, "")
			require.NoError(t, err)
			assert.Empty(t, p.Steps[1].Needs)
			got, err := p.Resolve(1, func(int) (json.RawMessage, error) { return nil, errs.New(errs.Internal, "not asked for") })
			require.NoError(t, err)
			want := text
			for _, escaped := range []string{"$$t1.result", "$$OUTPUT[t9]", "$$t1.output"} {
				if text == escaped {
					want = text[1:]
				}
			}
			assert.JSONEq(t, fmt.Sprintf(`{"x": %q}`, want), string(got))
		})
	}
}

func TestInvalidSteps(t *testing.T) {
	step := func(members string) string { return `[{"id": "t1", "tool": "a:b"}, {` + members + `}]` }
	long := strings.Repeat("x", plan.MaxCode+1)
	for name, c := range map[string]struct{ steps, at, detail string }{
		"no step":                         {`[]`, "", "a workflow must have 1 to 500 steps, not 0"},
		"too many steps":                  {"[" + strings.Repeat(`{"id": "x", "tool": "a:b"},`, 500) + `{"id": "y", "tool": "a:b"}]`, "", "a workflow must have 1 to 500 steps, not 501"},
		"id missing":                      {step(`"tool": "a:b"`), "/1/id", `id must be a letter or "_", then at most 63 letters, digits, "_" and "-", not ""`},
		"id begins with a digit":          {step(`"id": "1a", "tool": "a:b"`), "/1/id", `not "1a"`},
		"id with a dot":                   {step(`"id": "a.b", "tool": "a:b"`), "/1/id", `not "a.b"`},
		"id with a space":                 {step(`"id": "a b", "tool": "a:b"`), "/1/id", `not "a b"`},
		"id not ASCII":                    {step(`"id": "é", "tool": "a:b"`), "/1/id", `not "é"`},
		"id with a line break":            {step(`"id": "a\n", "tool": "a:b"`), "/1/id", `not "a\n"`},
		"id too long":                     {step(`"id": "` + strings.Repeat("x", 65) + `", "tool": "a:b"`), "/1/id", "at most 63 letters"},
		"id repeated":                     {step(`"id": "t1", "tool": "a:b"`), "/1/id", `the id "t1" is already used by step 1`},
		"tool missing":                    {step(`"id": "t2"`), "/1/tool", "tool is required for the type mcp_tool, in the form serverId:toolName"},
		"unknown type":                    {step(`"id": "t2", "type": "shell"`), "/1/type", `type must be mcp_tool, code_execution or agent_task, not "shell"`},
		"code of a tool":                  {step(`"id": "t2", "tool": "a:b", "code": "1"`), "/1/code", "code is not allowed for the type mcp_tool"},
		"capability of a tool":            {step(`"id": "t2", "tool": "a:b", "capability": "x"`), "/1/capability", "capability is not allowed for the type mcp_tool"},
		"agent_id of a tool":              {step(`"id": "t2", "tool": "a:b", "agent_id": "x"`), "/1/agent_id", "agent_id is not allowed for the type mcp_tool"},
		"budget of a tool":                {step(`"id": "t2", "tool": "a:b", "budget": 5`), "/1/budget", "budget is not allowed for the type mcp_tool"},
		"code missing":                    {step(`"id": "t2", "type": "code_execution"`), "/1/code", "code is required for the type code_execution"},
		"code blank":                      {step(`"id": "t2", "type": "code_execution", "code": " \n"`), "/1/code", "code is required for the type code_execution"},
		"code too long":                   {step(`"id": "t2", "type": "code_execution", "code": "` + long + `"`), "/1/code", "code must have at most 102400 bytes, not 102401"},
		"code with a capability":          {step(`"id": "t2", "type": "code_execution", "code": "1", "capability": "x"`), "/1/capability", "capability is not allowed for the type code_execution"},
		"agent missing":                   {step(`"id": "t2", "type": "agent_task"`), "/1/capability", "capability or agent_id is required for the type agent_task"},
		"tool of an agent":                {step(`"id": "t2", "type": "agent_task", "agent_id": "x", "tool": "a:b"`), "/1/tool", "tool is not allowed for the type agent_task"},
		"code of an agent":                {step(`"id": "t2", "type": "agent_task", "agent_id": "x", "code": "1"`), "/1/code", "code is not allowed for the type agent_task"},
		"budget 0":                        {step(`"id": "t2", "type": "agent_task", "agent_id": "x", "budget": 0`), "/1/budget", "budget must be at least 1 token, not 0"},
		"timeout negative":                {step(`"id": "t2", "tool": "a:b", "timeout_ms": -1`), "/1/timeout_ms", "timeout_ms must be at most 86400000, or 0 for the default, not -1"},
		"timeout too long":                {step(`"id": "t2", "tool": "a:b", "timeout_ms": 86400001`), "/1/timeout_ms", "timeout_ms must be at most 86400000, or 0 for the default, not 86400001"},
		"arguments a list":                {step(`"id": "t2", "tool": "a:b", "arguments": []`), "/1/arguments", "arguments must be a JSON object without duplicate names, not []"},
		"arguments a string":              {step(`"id": "t2", "tool": "a:b", "arguments": "x"`), "/1/arguments", `not "x"`},
		"arguments with a duplicate name": {step(`"id": "t2", "tool": "a:b", "arguments": {"a": 1, "a": 2}`), "/1/arguments", "without duplicate names"},
		"arguments too long":              {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "` + strings.Repeat("x", plan.MaxArguments) + `"}`), "/1/arguments", "arguments must have at most 1048576 bytes, not 1048585"},
		"unknown reference":               {step(`"id": "t2", "tool": "a:b", "arguments": {"a": ["", "x $t3.result"]}`), "/1/arguments/a/1", `"$t3.result" refers to a step that does not exist; did you mean $t1.result? (write $$t3.result for the literal text)`},
		"unknown output":                  {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "$OUTPUT[zzz]"}`), "/1/arguments/a", `"$OUTPUT[zzz]" refers to a step that does not exist (write $$OUTPUT[zzz] for the literal text)`},
		"reference in an escaped member":  {step(`"id": "t2", "tool": "a:b", "arguments": {"a/b~c": "$x.result"}`), "/1/arguments/a~1b~0c", "refers to a step that does not exist"},
		"reference with an escaped $":     {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "\u0024x.result"}`), "/1/arguments/a", "refers to a step that does not exist"},
		"reference without result":        {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "$t1.output"}`), "/1/arguments/a", `"$t1.output" is not a reference: write $t1.result to refer to the result, or $$t1 for the literal text`},
		"reference to results":            {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "$t1.results"}`), "/1/arguments/a", `"$t1.results" is not a reference`},
		"reference to itself":             {step(`"id": "t2", "tool": "a:b", "arguments": {"a": "$t2.result"}`), "/1/arguments/a", `the step "t2" refers to its own result`},
		"unknown dependency":              {step(`"id": "t2", "tool": "a:b", "depends_on": ["t1", "t3"]`), "/1/depends_on/1", `there is no step "t3"; did you mean "t1"?`},
		"dependency on itself":            {step(`"id": "t2", "tool": "a:b", "depends_on": ["t2"]`), "/1/depends_on/0", `the step "t2" depends on itself`},
		"cycle": {`[{"id": "a", "tool": "x:y", "depends_on": ["c"]}, {"id": "b", "tool": "x:y", "arguments": {"v": "$a.result"}}, {"id": "c", "tool": "x:y", "depends_on": ["b"]}, {"id": "d", "tool": "x:y", "depends_on": ["a"]}]`,
			"/0/depends_on", "the dependencies of the steps form a cycle: a → c → b → a"},
		"cycle behind a step": {`[{"id": "z", "tool": "x:y", "depends_on": ["a"]}, {"id": "a", "tool": "x:y", "depends_on": ["b"]}, {"id": "b", "tool": "x:y", "depends_on": ["a"]}]`,
			"/1/depends_on", "the dependencies of the steps form a cycle: a → b → a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.New(parse(t, c.steps), "")
			require.Error(t, err)
			fields := errs.From(err).Fields
			require.Len(t, fields, 1, "%v", fields)
			assert.Equal(t, errs.InvalidRequest, fields[0].Code)
			assert.Equal(t, c.at, fields[0].Pointer)
			assert.Contains(t, fields[0].Detail, c.detail)
		})
	}
}

// TestLimitsOfWorkflows checks the limits of a whole workflow.
func TestLimitsOfWorkflows(t *testing.T) {
	steps := func(n int, arguments func(i int) string, dependencies func(i int) []string) []plan.Step {
		out := make([]plan.Step, n)
		for i := range out {
			out[i] = plan.Step{ID: fmt.Sprintf("t%d", i), Tool: "a:b", Arguments: json.RawMessage(arguments(i)), DependsOn: dependencies(i)}
		}
		return out
	}
	none := func(int) []string { return nil }
	empty := func(int) string { return "" }
	all := func(i int) (ids []string) {
		for k := range i {
			ids = append(ids, fmt.Sprintf("t%d", k))
		}
		return ids
	}
	for name, c := range map[string]struct {
		steps  []plan.Step
		detail string
	}{
		"dependencies": {steps(101, empty, all), "a workflow must have at most 5000 dependencies, not 5050"},
		"references": {steps(3, func(i int) string {
			if i == 0 {
				return ""
			}
			return `{"x": "` + strings.Repeat("$t0.result ", 501) + `"}`
		}, none), "a workflow must have at most 1000 references, not 1002"},
		"arguments": {steps(9, func(int) string { return `{"x": "` + strings.Repeat("x", 1_000_000) + `"}` }, none), "the arguments of a workflow must have at most 8388608 bytes, not 9000081"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plan.New(c.steps, "")
			require.ErrorContains(t, err, c.detail)
		})
	}
	longest := steps(500, empty, func(i int) []string { return all(i)[max(0, i-10):] })
	p, err := plan.New(longest, "")
	require.NoError(t, err)
	assert.Equal(t, 500, p.Layers)
}
