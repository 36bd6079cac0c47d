package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/workflow/plan"
)

// TestTemplates resolves references to the input of a template; other plans have none.
func TestTemplates(t *testing.T) {
	const input = `{"n":12345678901234567890,"result":"r","a-b":[{"c d":"$s.result"}],"none":null}`
	for text, want := range map[string]string{
		`$input`:                          input,
		`$input.n`:                        `12345678901234567890`,
		`$input.result`:                   `"r"`,
		`$input.a-b[0]["c d"]`:            `"$s.result"`,
		`$input["a-b"][0]["c d"]`:         `"$s.result"`,
		`$input.none`:                     `null`,
		`<$input.n, $input["result"]>`:    `"<12345678901234567890, r>"`,
		`$$input.n $$input`:               `"$input.n $input"`,
		`$inputs $in $input_2`:            `"$inputs $in $input_2"`,
		`$s.result$input.result`:          `"okr"`,
		`$input.a-b[0]["c d"] $s.result`:  `"$s.result ok"`,
		`$input.result].result $input.n.`: `"r].result 12345678901234567890."`,
	} {
		arguments, err := json.Marshal(map[string]string{"x": text})
		require.NoError(t, err)
		p, err := plan.NewTemplate([]plan.Step{{ID: "s", Tool: "a:b"}, {ID: "t", Tool: "a:b", Arguments: arguments}}, "")
		require.NoError(t, err, text)
		require.NoError(t, p.Bind(json.RawMessage(input), "/input"), text)
		got, err := p.Resolve(1, func(int) (json.RawMessage, error) { return json.RawMessage(`"ok"`), nil })
		require.NoError(t, err, text)
		require.JSONEq(t, `{"x":`+want+`}`, string(got), text)
	}
	p, err := plan.New([]plan.Step{{ID: "a", Tool: "a:b", Arguments: json.RawMessage(`{"x":"$input $input.n $$input.n"}`)}}, "")
	require.NoError(t, err)
	got, err := p.Resolve(0, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"x":"$input $input.n $$input.n"}`, string(got), "a text, without an input")
	_, err = plan.New([]plan.Step{{ID: "input", Tool: "a:b"}, {ID: "a", Tool: "a:b", Arguments: json.RawMessage(`{"x":"$input.result.n"}`)}}, "")
	require.NoError(t, err, "other plans may have a step named input")
}

// TestBindNamesWhatIsMissing checks that the error names each missing part once.
func TestBindNamesWhatIsMissing(t *testing.T) {
	p, err := plan.NewTemplate([]plan.Step{
		{ID: "a", Tool: "a:b", Arguments: json.RawMessage(`{"x":"$input.a/b","y":["$input.list[2]","$input[\"a/b\"].c"],"z":"$$input.not"}`)},
		{ID: "b", Tool: "a:b", Arguments: json.RawMessage(`{"x":"$input.list[2]"}`)},
	}, "")
	require.NoError(t, err)
	var pointers []string
	for _, f := range errs.From(p.Bind(json.RawMessage(`{"list":[1,2]}`), "/in")).Fields {
		pointers = append(pointers, f.Pointer)
	}
	require.Equal(t, []string{"/in/a", "/in/list/2", "/in/a~1b/c"}, pointers)
}

// TestExtend checks that steps are added after the existing ones, which do not change.
func TestExtend(t *testing.T) {
	p, err := plan.NewTemplate([]plan.Step{{ID: "a", Tool: "x:y"}, {ID: "b", Tool: "x:y", DependsOn: []string{"a"}}}, "")
	require.NoError(t, err)
	require.NoError(t, p.SetInput(json.RawMessage(`{"n":1}`)))
	more, err := p.Extend([]plan.Step{
		{ID: "c", Tool: "x:y", Arguments: json.RawMessage(`{"n":"$input.n","a":"$a.result"}`)}, {ID: "d", Tool: "x:y", FirstLayer: 3}, {ID: "e", Tool: "x:y", DependsOn: []string{"d", "b"}, FirstLayer: 3},
	}, "/tasks")
	require.NoError(t, err)
	assert.Equal(t, p.Steps, more.Steps[:2])
	assert.Equal(t, []int{4, 2}, []int{more.Layers, more.Width})
	var layers []int
	for _, n := range more.Steps {
		layers = append(layers, n.Layer)
	}
	assert.Equal(t, []int{1, 2, 2, 3, 4}, layers)
	got, err := more.Resolve(2, func(int) (json.RawMessage, error) { return json.RawMessage(`2`), nil })
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1,"a":2}`, string(got))
	never := func(int) bool { return false }
	next := more.Next(plan.Progress{
		States: []plan.State{plan.Success, plan.Success, plan.Success, plan.Pending, plan.Pending}, ValidateLayers: true, Confirmed: 1, MaxRunning: 9, NeedsApproval: never, Approved: never,
	})
	assert.Equal(t, plan.Next{Pause: plan.PauseLayer, Layer: 2, Steps: []int{1, 2}}, next, "a step without dependencies waits for its first layer")
	for want, steps := range map[string][]plan.Step{
		"/tasks: at least one":            {},
		"/tasks/0/id: the id":             {{ID: "a", Tool: "x:y"}},
		"/tasks/1/tool: tool is required": {{ID: "c", Tool: "x:y"}, {ID: "d"}},
		"/tasks/0/id: the id \"input\"":   {{ID: "input", Tool: "x:y"}},
	} {
		_, err := p.Extend(steps, "/tasks")
		require.NotEmpty(t, errs.From(err).Fields, want)
		f := errs.From(err).Fields[0]
		require.True(t, strings.HasPrefix(f.Pointer+": "+f.Detail, want), "%s: %v", want, f)
	}
}

// FuzzInput checks that a string in the input never becomes a reference, and that no schema or input causes a panic.
func FuzzInput(f *testing.F) {
	f.Add("<$input.v>", "$s.result", `{"properties":{"v":{"type":"string"}}}`)
	f.Add("$OUTPUT[$input.v]", "s", `{"required":["w"],"additionalProperties":false}`)
	f.Add("$input.v].result", "$OUTPUT[s", `{"items":{"type":7}}`)
	f.Fuzz(func(t *testing.T, text, value, schema string) {
		arguments, err := json.Marshal(map[string]string{"x": text})
		if err != nil {
			return
		}
		input, err := json.Marshal(map[string]string{"v": value})
		if err != nil {
			return
		}
		if s, err := plan.ParseSchema(json.RawMessage(schema), ""); err == nil {
			_, _ = s.Complete(input, "/input")
		}
		p, err := plan.NewTemplate([]plan.Step{{ID: "s", Tool: "a:b"}, {ID: "t", Tool: "a:b", Arguments: arguments}}, "")
		if err != nil || p.Bind(input, "") != nil {
			return
		}
		asked := false
		_, err = p.Resolve(1, func(int) (json.RawMessage, error) {
			asked = true
			return json.RawMessage(`{}`), nil
		})
		if err == nil && asked && len(p.Steps[1].Needs) == 0 {
			t.Fatalf("%q with %q reads a step", text, value)
		}
	})
}
