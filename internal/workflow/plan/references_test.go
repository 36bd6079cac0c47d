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

const exampleResult = `{"content": "a \"b\"", "size": 12345678901234567890, "ratio": 1.50, "ok": true, "none": null,
	"files": [{"name": "x<y>.go"}, {"name": "z.go"}], "odd name": {"0": "zero"}, "a-b": 7}`

func resolve(arguments, result string) (json.RawMessage, error) {
	p, err := plan.New([]plan.Step{{ID: "t1", Tool: "a:b"}, {ID: "t-2", Tool: "a:b", Arguments: json.RawMessage(arguments)}}, "")
	if err != nil {
		return nil, err
	}
	return p.Resolve(1, func(int) (json.RawMessage, error) { return json.RawMessage(result), nil })
}

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct{ arguments, want string }{
		"without references":     {`{"a":  1.0}`, `{"a":  1.0}`},
		"whole result":           {`{"a": "$t1.result"}`, `{"a": ` + exampleResult + `}`},
		"string":                 {`{"a": "$t1.result.content"}`, `{"a": "a \"b\""}`},
		"large number":           {`{"a": "$t1.result.size"}`, `{"a": 12345678901234567890}`},
		"form of a number":       {`{"a": "$t1.result.ratio", "b": 2.50}`, `{"a": 1.50, "b": 2.50}`},
		"boolean":                {`{"a": "$t1.result.ok"}`, `{"a": true}`},
		"null":                   {`{"a": "$t1.result.none"}`, `{"a": null}`},
		"member of a list":       {`{"a": "$t1.result.files[1].name"}`, `{"a": "z.go"}`},
		"list":                   {`{"a": "$t1.result.files"}`, `{"a": [{"name": "x<y>.go"}, {"name": "z.go"}]}`},
		"quoted name":            {`{"a": "$t1.result[\"odd name\"][\"0\"]"}`, `{"a": "zero"}`},
		"name with a hyphen":     {`{"a": "$t1.result.a-b"}`, `{"a": 7}`},
		"OUTPUT":                 {`{"a": "$OUTPUT[t1].files[0].name"}`, `{"a": "x<y>.go"}`},
		"inserted string":        {`{"a": "see $t1.result.files[0].name."}`, `{"a": "see x<y>.go."}`},
		"inserted number":        {`{"a": "$t1.result.size bytes"}`, `{"a": "12345678901234567890 bytes"}`},
		"inserted object":        {`{"a": "<$t1.result.files>"}`, `{"a": "<[{\"name\":\"x<y>.go\"},{\"name\":\"z.go\"}]>"}`},
		"several":                {`{"a": "$t1.result.ok$t1.result.ok"}`, `{"a": "truetrue"}`},
		"in lists and objects":   {`{"a": [{"b": ["$t1.result.ok", 1]}]}`, `{"a": [{"b": [true, 1]}]}`},
		"names of members":       {`{"$t1.result": "$t1.result.ok"}`, `{"$t1.result": true}`},
		"escaped":                {`{"a": "$$t1.result and $t1.result.ok"}`, `{"a": "$t1.result and true"}`},
		"escaped $":              {`{"a": "\u0024t1.result.ok"}`, `{"a": true}`},
		"end of a sentence":      {`{"a": "It is $t1.result.ok. Next"}`, `{"a": "It is true. Next"}`},
		"result of no reference": {`{"a": "$other.price"}`, `{"a": "$other.price"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolve(c.arguments, exampleResult)
			require.NoError(t, err)
			want, err := json.Marshal(json.RawMessage(c.want)) // compact
			require.NoError(t, err)
			var compact json.RawMessage
			require.NoError(t, json.Unmarshal(got, &compact))
			assert.JSONEq(t, string(want), string(got))
			if strings.Contains(c.want, "12345678901234567890") || strings.Contains(c.want, "1.50") {
				assert.Contains(t, string(got), map[bool]string{true: "12345678901234567890", false: "1.50"}[strings.Contains(c.want, "1234")])
			}
		})
	}
}

func TestReferenceNotFound(t *testing.T) {
	for reference, detail := range map[string]string{
		"$t1.result.missing":            "$t1.result.missing: there is no missing in an object with the members [a-b, content, files, none, odd name, ok, ratio, size]",
		"$t1.result.files[2]":           "$t1.result.files[2]: there is no 2 in a list of length 2",
		"$t1.result.files.name":         "there is no name in a list of length 2",
		"$t1.result.content.x":          "there is no x in a string",
		"$t1.result.size[0]":            "there is no 0 in a number",
		"$t1.result.ok.x":               "there is no x in a boolean",
		"$t1.result.none.x":             "there is no x in null",
		"text $t1.result.files[0].size": "there is no size in an object with the members [name]",
	} {
		t.Run(reference, func(t *testing.T) {
			_, err := resolve(`{"a": "`+reference+`"}`, exampleResult)
			require.ErrorContains(t, err, detail)
			assert.True(t, errs.Is(err, errs.NotFound))
		})
	}
}

func TestInsertedResultsAreLimited(t *testing.T) {
	large, err := json.Marshal(strings.Repeat("x", plan.MaxArguments/3))
	require.NoError(t, err)
	for _, arguments := range []string{`{"a": "$t1.result $t1.result $t1.result"}`, `{"a": ["$t1.result", "$t1.result", "$t1.result"]}`} {
		_, err = resolve(arguments, string(large))
		require.ErrorContains(t, err, "the arguments and the results that they refer to exceed 1048576 bytes")
	}
}

func FuzzResolve(f *testing.F) {
	f.Add(`{"a": "$t1.result.files[0].name and $$t1.result"}`, exampleResult)
	f.Add(`{"a": "$OUTPUT[t1][\"odd name\"]", "b": "\u0024t1.result"}`, exampleResult)
	f.Add(`{"a": "$t1.result"}`, `"$t1.result"`)
	f.Fuzz(func(t *testing.T, arguments, result string) {
		if !json.Valid([]byte(result)) {
			return
		}
		got, err := resolve(arguments, result)
		if err != nil {
			assert.NotEqual(t, errs.Internal, errs.From(err).Code)
			return
		}
		assert.True(t, json.Valid(got))
		assert.LessOrEqual(t, len(got), 8*plan.MaxArguments) // escapes and replaced invalid UTF-8
	})
}

func TestLiteral(t *testing.T) {
	t.Parallel()
	for _, arguments := range []string{
		`{}`, `{"a":"$t1.result"}`, `{"a":"$$t1.result and $OUTPUT[x].y"}`, `{"a":["$$$t1.result",{"b":"$t1.results $call.x $call.result"}],"n":12345678901234567890}`,
	} {
		escaped, err := plan.Literal(json.RawMessage(arguments), "call")
		require.NoError(t, err)
		p, err := plan.New([]plan.Step{{ID: "call", Tool: "a:b", Arguments: escaped}}, "")
		require.NoError(t, err, arguments)
		got, err := p.Resolve(0, nil)
		require.NoError(t, err)
		require.JSONEq(t, arguments, string(got))
	}
}
