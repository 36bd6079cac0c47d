package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/openapi/client"
)

func TestReadFacts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file  string
		facts []string
		lines []int
	}{
		"an array":                {"[\n {\"tokens\": 1},\n\n {\"tokens\":\n 2}, {\"tokens\":3}]\n", []string{`{"tokens": 1}`, "{\"tokens\":\n 2}", `{"tokens":3}`}, []int{2, 4, 5}},
		"an array in a line":      {`[{"a":"\n"},{}]`, []string{`{"a":"\n"}`, `{}`}, []int{1, 1}},
		"a fact a line":           {"{\"a\":1}\r\n{\"a\":2}\n", []string{`{"a":1}`, `{"a":2}`}, []int{1, 2}},
		"facts over lines":        {"\n{\n\"a\":1}\n\n{}", []string{"{\n\"a\":1}", `{}`}, []int{2, 5}},
		"numbers stay as written": {`{"tokens":1.0}{"tokens":12345678901234567890}`, []string{`{"tokens":1.0}`, `{"tokens":12345678901234567890}`}, []int{1, 1}},
		"what is no fact":         {"1\n\"x\"\n[2]", []string{"1", `"x"`, "[2]"}, []int{1, 2, 3}}, // the server will say so
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts, err := readFacts([]byte(c.file))
			require.NoError(t, err)
			var texts []string
			var lines []int
			for _, f := range facts {
				texts, lines = append(texts, string(f.text)), append(lines, f.line)
			}
			require.Equal(t, c.facts, texts)
			require.Equal(t, c.lines, lines)
		})
	}
	for name, file := range map[string]string{
		"nothing": "", "white space": " \n\t", "an empty array": "[]", "an array without an end": `[{"a":1}`, "half a fact": `{"a":1`,
		"text": "tokens=5", "half an array": `[{"a":1},`, "more after an array": `[{"a":1}]{"a":2}`,
	} {
		t.Run(name+" is an error", func(t *testing.T) {
			t.Parallel()
			_, err := readFacts([]byte(file))
			require.Error(t, err)
		})
	}
	for name, c := range map[string]struct{ file, message string }{
		"a missing value after empty lines": {"{\"tokens\":5}\n\n\n{\"tokens\": }\n", "fact 2 on line 4 is not JSON: invalid character '}' at start of value"},
		"an incomplete name":                {"{\"tokens\":5}\n{bad\n", "fact 2 on line 2 is not JSON: invalid character 'b' at start of string (expecting '\"')"},
		"an entry of an array":              {"[{\"tokens\":5},\n\n{\"tokens\": }]\n", "fact 2 on line 3 is not JSON: invalid character '}' after array element (expecting ',' or ']')"},
		"a line inside a fact":              {"{}\n{\n\n\"tokens\": }\n", "fact 2 on line 4 is not JSON: invalid character '}' at start of value"},
		"an incomplete last line":           {"{\"tokens\":5}\n\n{\"tokens\":\n\n", "fact 2 on line 3 is not JSON: the file ends before it is complete"},
		"an array without an end":           {"[{\"tokens\":5},\n{}\n\n", "fact 3 on line 2 is not JSON: the file ends before it is complete"},
	} {
		t.Run(name+" is reported with its line", func(t *testing.T) {
			t.Parallel()
			_, err := readFacts([]byte(c.file))
			require.EqualError(t, err, c.message)
		})
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	sizes := func(facts []factText) (all []int) {
		n := 0
		for _, b := range batches(facts) {
			body := batchBody(b)
			require.True(t, json.Valid(body))
			require.Less(t, len(body), 1<<20, "the server accepts a mebibyte")
			all, n = append(all, len(b)), n+len(b)
		}
		require.Equal(t, len(facts), n)
		return all
	}
	many := func(n int, text string) (facts []factText) {
		for range n {
			facts = append(facts, factText{text: json.RawMessage(text)})
		}
		return facts
	}
	require.Equal(t, []int{1}, sizes(many(1, `{}`)))
	require.Equal(t, []int{1000}, sizes(many(1000, `{"tokens":1}`)))
	require.Equal(t, []int{1000, 1}, sizes(many(1001, `{"tokens":1}`)))
	require.Equal(t, []int{218, 218, 64}, sizes(many(500, `{"model":"`+strings.Repeat("🤖", 597)+`"}`)), "2,400 bytes each")
}

func TestErrorInALaterBatch(t *testing.T) {
	t.Parallel()
	batch := []factText{{line: 1001}, {line: 1005}}
	err := withLines(&apiError{status: 400, problem: client.Problem{Errors: &[]client.FieldError{
		{Pointer: new("/facts/1/tokens"), Detail: "facts[1].tokens must be an integer, not a string"},
		{Pointer: new("/facts/7"), Detail: "out of the batch"}, {Detail: "no place"},
	}}}, batch)
	var refused *apiError
	require.ErrorAs(t, err, &refused)
	fields := *refused.problem.Errors
	require.Equal(t, 1005, *fields[0].Line)
	require.Equal(t, "tokens must be an integer, not a string", fields[0].Detail)
	require.Nil(t, fields[1].Line)
	require.Nil(t, fields[2].Line)
}
