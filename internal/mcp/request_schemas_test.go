package mcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
)

// wrongValues are values of JSON that a shape does not take, each with the path to it.
func wrongValues(s *schema, wrap func(string) string, visit func(string)) {
	examples := map[jsonKind]string{kindString: `"x"`, kindBool: "true", kindNumber: "1", kindArray: "[]", kindObject: "{}"}
	if s.kind == kindAny {
		return
	}
	for k, example := range examples {
		if k != s.kind {
			visit(wrap(example))
		}
	}
	for name, member := range s.properties {
		wrongValues(member, func(v string) string { return wrap(fmt.Sprintf(`{%q:%s}`, name, v)) }, visit)
	}
	switch {
	case s.items != nil && s.kind == kindArray:
		wrongValues(s.items, func(v string) string { return wrap("[" + v + "]") }, visit)
	case s.items != nil:
		wrongValues(s.items, func(v string) string { return wrap(`{"k":` + v + `}`) }, visit)
	}
}

// TestTheGrammarKnowsEveryParameter: whatever has another kind in a request of any method is
// refused before the SDK reads it, in a sentence that says where.
func TestTheGrammarKnowsEveryParameter(t *testing.T) {
	t.Parallel()
	g := newRequestSchemas()
	tried := 0
	for method, params := range g {
		wrongValues(params, func(v string) string { return v }, func(wrong string) {
			tried++
			msg, err := jsonrpc.DecodeMessage(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, wrong))
			require.NoError(t, err)
			problem := g.check(msg.(*jsonrpc.Request))
			require.NotNil(t, problem, "%s %s", method, wrong)
			require.True(t, strings.HasPrefix(problem.Message, "params"), problem.Message)
		})
	}
	require.Greater(t, tried, 400)
	for _, method := range knownMethods() {
		require.Equal(t, !strings.HasPrefix(method, "notifications/"), g[method] != nil, method)
	}
}

// TestTheGrammarTakesWhatIsRight, as real clients say it.
func TestTheGrammarTakesWhatIsRight(t *testing.T) {
	t.Parallel()
	g := newRequestSchemas()
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null,"_meta":{"progressToken":7}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"a","arguments":[1],"unknown":{"a":1}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params": {"name" : "a" , "arguments" : null } }`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","requestState":"s","inputResponses":{"q":{"action":"accept","content":{"sure":true}}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}},"experimental":{"x":{}}},"clientInfo":{"name":"a","title":"A","version":"1","websiteUrl":"https://a","icons":[{"src":"https://a","mimeType":"image/png","sizes":["48x48"]}]}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"a://{b}"},"argument":{"name":"b","value":""},"context":{"arguments":{"c":"d"}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"nobody/knows","params":7}`,
	} {
		msg, err := jsonrpc.DecodeMessage([]byte(text))
		require.NoError(t, err)
		require.Nil(t, g.check(msg.(*jsonrpc.Request)), text)
	}
}

// TestWhatIsUnreadableHasTheIDThatItHas so that who asked knows which of its requests it was.
func TestWhatIsUnreadableHasTheIDThatItHas(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"id":7,"method":"ping"}`: "7", `{"id":"a","method":5}`: `"a"`, `{"id":[],"method":"ping"}`: "", `{"id":null}`: "", `[`: "", ``: "",
	} {
		id, problem := decodeError([]byte(text))
		require.NotNil(t, problem)
		require.Equal(t, want, string(id), text)
	}
}
