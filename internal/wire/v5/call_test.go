package v5_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/v5"
)

// TestCalls: a call has its parameters in params= (§5.2), as pairs of their own (§12),
// or both.
func TestCalls(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]struct {
		capability        string
		params, arguments []v5.Param
	}{
		`call=web_search;params=query:"AI, or ""so"" it; seems",max:3`: {
			"web_search", []v5.Param{{"query", `"AI, or ""so"" it; seems"`}, {"max", "3"}}, []v5.Param{{"query", `"AI, or ""so"" it; seems"`}, {"max", "3"}},
		},
		`call=x;params="a:1,b:2"`:  {"x", []v5.Param{{"a", "1"}, {"b", "2"}}, []v5.Param{{"a", "1"}, {"b", "2"}}},
		`call=x;params=main.py,,:`: {"x", []v5.Param{{"main.py", ""}, {"", ""}}, []v5.Param{{"main.py", ""}, {"", ""}}},
		"call=web_search;query=AI": {"web_search", nil, []v5.Param{{"query", "AI"}}},
		"call=web_search;params=a:1;b=2;verbose;max=10;retried": {
			"web_search", []v5.Param{{"a", "1"}}, []v5.Param{{"a", "1"}, {"b", "2"}, {"verbose", ""}, {"max", "10"}, {"retried", ""}},
		},
		"call=x;retry=1;max=2;fallback=W2;fallback_from=W1;reason=E31;pid=M1;justify=deep;y=z": {"x", nil, []v5.Param{{"y", "z"}}},
		"answer=json": {"", nil, []v5.Param{{"answer", "json"}}},
		"call":        {"", nil, nil},
		"-":           {"", nil, nil},
	} {
		d := v5.Data(data)
		require.Equal(t, want.capability, d.Call(), data)
		require.Equal(t, want.params, slices.Collect(d.Params()), data)
		require.Equal(t, want.arguments, slices.Collect(d.Arguments()), data)
	}
	for range v5.Data("params=a:1,b:2;c=3").Arguments() {
		break // a walk may end early, in params or behind it
	}
	for p := range v5.Data("params=a:1;c=3;d=4").Arguments() {
		if p.Name == "c" {
			break
		}
	}
}

// TestRefs: what §6.3 prints, typed and written again.
func TestRefs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]v5.Ref{
		"#REF:T1:S":      {Kind: v5.RefTask, Task: v5.TaskOf(1), Field: "S"},
		"#REF:T41:raw":   {Kind: v5.RefTask, Task: v5.TaskOf(41), Field: "raw"},
		"#REF:T1":        {Kind: v5.RefTask, Task: v5.TaskOf(1)},
		"#REF:id":        {Kind: v5.RefTask, Field: "id"},
		"#REF:T1000":     {Kind: v5.RefTask, Field: "T1000"},
		"#CTX:key":       {Kind: v5.RefContext, Field: "key"},
		"#CTX:clé.a/b-c": {Kind: v5.RefContext, Field: "clé.a/b-c"},
		"#MSG:M3":        {Kind: v5.RefMessage, Number: 3},
		"#MSG:M9999":     {Kind: v5.RefMessage, Number: 9999},
	} {
		require.True(t, v5.IsRef(text))
		r, err := v5.ParseRef(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r, text)
		require.Equal(t, text, r.String())
	}
	for _, text := range []string{
		"", "x", "#REF:", "#REF:T1:", "#REF::raw", "#REF:T1:a:b", "#REF:x:y", "#REF:a b", "#REF:T1:a,b", `#REF:T1:"a"`, "#REF:T1:a|b", "#REF:T1:a\xff",
		"#CTX:", "#CTX:a:b", "#CTX:a=b", "#CTX:a;b", "#CTX:#a", "#MSG:", "#MSG:3", "#MSG:M0", "#MSG:M10000", "#ref:T1", "see #REF:T1:raw",
	} {
		_, err := v5.ParseRef(text)
		var e *v5.Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, v5.E43, e.Code())
	}
	require.False(t, v5.IsRef("see #REF:T1:raw"))
	for _, unsayable := range []v5.Ref{
		{}, {Kind: v5.RefTask}, {Kind: v5.RefTask, Field: "T1"}, {Kind: v5.RefContext}, {Kind: v5.RefMessage}, {Kind: v5.RefContext, Field: "a b"},
		{Kind: v5.RefMessage, Number: 10_000}, {Kind: v5.RefMessage, Number: 1, Field: "x"}, {Kind: v5.RefTask, Task: v5.TaskOf(-1), Field: "x"},
	} {
		require.Empty(t, unsayable.String())
	}
}
