package mcp

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// validParams are parameters of each method, and the type that the SDK reads them into.
func validParams() map[string]struct {
	text string
	into func() any
} {
	type example = struct {
		text string
		into func() any
	}
	return map[string]example{
		"ping":                     {`{"_meta":{"progressToken":7}}`, func() any { return new(mcp.PingParams) }},
		"tools/list":               {`{"cursor":"c","_meta":{"progressToken":7}}`, func() any { return new(mcp.ListToolsParams) }},
		"prompts/list":             {`{"cursor":"c"}`, func() any { return new(mcp.ListPromptsParams) }},
		"resources/list":           {`{"cursor":"c"}`, func() any { return new(mcp.ListResourcesParams) }},
		"resources/templates/list": {`{"cursor":"c"}`, func() any { return new(mcp.ListResourceTemplatesParams) }},
		"resources/subscribe":      {`{"uri":"a://b"}`, func() any { return new(mcp.SubscribeParams) }},
		"resources/unsubscribe":    {`{"uri":"a://b"}`, func() any { return new(mcp.UnsubscribeParams) }},
		"resources/read":           {`{"uri":"a://b","requestState":"s"}`, func() any { return new(mcp.ReadResourceParams) }},
		"prompts/get":              {`{"name":"p","arguments":{"a":"b"},"requestState":"s"}`, func() any { return new(mcp.GetPromptParams) }},
		"server/discover":          {`{"_meta":{}}`, func() any { return new(mcp.DiscoverParams) }},
		"logging/setLevel":         {`{"level":"info"}`, func() any { return new(mcp.SetLoggingLevelParams) }}, //nolint:staticcheck // revision 2025-11-25 has it
		getTask:                    {`{"taskId":"wf_1"}`, func() any { return new(taskParams) }},
		cancelTask:                 {`{"taskId":"wf_1"}`, func() any { return new(taskParams) }},
		updateTask:                 {`{"taskId":"wf_1","inputResponses":{"q":{"action":"accept"}}}`, func() any { return new(taskParams) }},
		"tools/call": {
			`{"name":"a","arguments":{"a":[1,null]},"unknown":{"a":1},"requestState":"s","inputResponses":{"q":{"action":"accept","content":{"sure":true}}}}`,
			func() any { return new(mcp.CallToolParamsRaw) },
		},
		"initialize": {
			`{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}},"experimental":{"x":{}}},` +
				`"clientInfo":{"name":"a","title":"A","version":"1","websiteUrl":"https://a","icons":[{"src":"https://a","mimeType":"image/png","sizes":["48x48"]}]}}`,
			func() any { return new(mcp.InitializeParams) },
		},
		"completion/complete": {
			`{"ref":{"type":"ref/resource","uri":"a://{b}"},"argument":{"name":"b","value":""},"context":{"arguments":{"c":"d"}}}`,
			func() any { return new(mcp.CompleteParams) },
		},
		"subscriptions/listen": {
			`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}}`,
			func() any { return new(mcp.SubscriptionsListenParams) },
		},
	}
}

// mutate calls visit with copies of a value in which one value inside has another type.
func mutate(v any, visit func(any)) {
	for _, other := range []any{"x", true, 1.5, []any{}, []any{1.5}, map[string]any{}, map[string]any{"k": 1.5}} {
		visit(other)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			mutate(member, func(other any) {
				wrong := maps.Clone(v)
				wrong[name] = other
				visit(wrong)
			})
		}
	case []any:
		for i, item := range v {
			mutate(item, func(other any) {
				wrong := slices.Clone(v)
				wrong[i] = other
				visit(wrong)
			})
		}
	}
}

func TestParameterChecks(t *testing.T) {
	t.Parallel()
	c := newRequestChecker()
	check := func(t *testing.T, text string) *jsonrpc.Error {
		t.Helper()
		msg, err := jsonrpc.DecodeMessage([]byte(text))
		require.NoError(t, err)
		return c.check(msg.(*jsonrpc.Request))
	}

	t.Run("every method has one", func(t *testing.T) {
		t.Parallel()
		for method := range c {
			require.NotNil(t, validParams()[method].into, method)
		}
		require.Len(t, c, len(validParams()))
	})

	t.Run("accept valid requests", func(t *testing.T) {
		t.Parallel()
		for method, p := range validParams() {
			require.Nil(t, check(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+p.text+`}`), method)
		}
		for _, text := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}`,
			`{"jsonrpc":"2.0","id":"a","method":"tools/call","params": {"name" : "a" , "arguments" : null } }`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}`,
			`{"jsonrpc":"2.0","method":"notifications/unknown"}`,
		} {
			require.Nil(t, check(t, text), text)
		}
		require.Equal(t, unknownMethod("unknown/method", ""), check(t, `{"jsonrpc":"2.0","id":1,"method":"unknown/method","params":7}`))
	})

	t.Run("reject ids that cannot be stored", func(t *testing.T) {
		t.Parallel()
		for _, method := range []string{getTask, cancelTask, updateTask} {
			mistake := check(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"taskId":"wf_\u0000","inputResponses":{}}}`)
			require.NotNil(t, mistake)
			require.Contains(t, mistake.Message, "params.taskId must be")
		}
	})

	t.Run("accept nothing that the SDK cannot read, and name the parameter", func(t *testing.T) {
		t.Parallel()
		rejected := 0
		for method, p := range validParams() {
			var valid any
			require.NoError(t, json.Unmarshal([]byte(p.text), &valid))
			mutate(valid, func(wrong any) {
				text, err := json.Marshal(wrong)
				require.NoError(t, err)
				mistake := check(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+string(text)+`}`)
				if mistake == nil {
					require.NoError(t, json.Unmarshal(text, p.into()), "%s %s", method, text)
					return
				}
				rejected++
				require.Regexp(t, `^params\S* (must be|must not have|is (missing|a))`, mistake.Message, "%s %s", method, text)
			})
		}
		require.Greater(t, rejected, 200)
	})
}
