package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// mistake is a request with an invalid parameter and the expected error.
type mistake struct{ method, name, params, says string }

// mistakes covers every kind of invalid parameter.
func mistakes() []mistake {
	return []mistake{
		{"tools/call", "", `"name":5`, "params.name must be a string"},
		{"tools/call", "", `"name":null`, "params.name is missing"},
		{"tools/call", "", `"name":5,"name":"paper__echo"`, "params.name must be a string"},
		{"tools/call", "paper__echo", `"name":"paper__echo","requestState":[]`, "params.requestState must be a string"},
		{"tools/call", "paper__echo", `"name":"paper__echo","inputResponses":[]`, "params.inputResponses must be an object"},
		{"tools/call", "paper__echo", `"name":"paper__echo","inputResponses":{"a":5}`, "params.inputResponses.a must be an object"},
		{"tools/call", "paper__echo", `"name":"paper__echo","inputResponses":{"a":{}}`, "params.inputResponses.a.action is missing"},
		{"tools/call", "paper__echo", `"name":"paper__echo","inputResponses":{"a":{"action":1}}`, "params.inputResponses.a.action must be a string"},
		{"tools/list", "", `"cursor":7`, "params.cursor must be a string"},
		{"tools/list", "", `"cursor":"%%%"`, "cursor"},
		{"prompts/list", "", `"cursor":{}`, "params.cursor must be a string"},
		{"resources/list", "", `"cursor":[]`, "params.cursor must be a string"},
		{"resources/templates/list", "", `"cursor":true`, "params.cursor must be a string"},
		{"prompts/get", "", `"name":[]`, "params.name must be a string"},
		{"prompts/get", "", ``, "params.name is missing"},
		{"prompts/get", "paper__ask", `"name":"paper__ask","arguments":[]`, "params.arguments must be an object"},
		{"prompts/get", "paper__ask", `"name":"paper__ask","arguments":{"what":7}`, "params.arguments.what must be a string"},
		{"resources/read", "", `"uri":{}`, "params.uri must be a string"},
		{"resources/read", "", ``, "params.uri is missing"},
		{"completion/complete", "", ``, "params.ref is missing"},
		{"completion/complete", "", `"ref":"x","argument":{"name":"a","value":"b"}`, "params.ref must be an object"},
		{"completion/complete", "", `"ref":{"type":"ref/tool","name":"x"},"argument":{"name":"a","value":"b"}`, "params.ref.type must be one of ref/prompt, ref/resource"},
		{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"x","uri":"y"},"argument":{"name":"a","value":"b"}`, "params.ref is a prompt and must not have a uri"},
		{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"x"},"argument":{"value":"b"}`, "params.argument.name is missing"},
		{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":8}`, "params.argument.value must be a string"},
		{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":1}}`, "params.context.arguments.b must be a string"},
	}
}

// older has the requests of methods that only revisions with sessions define.
func older() []mistake {
	return []mistake{
		{"logging/setLevel", "", `"level":1`, "params.level must be a string"},
		{"logging/setLevel", "", `"level":"loud"`, "params.level must be one of debug, "},
		{"logging/setLevel", "", ``, "params.level is missing"},
		{"resources/subscribe", "", `"uri":1`, "params.uri must be a string"},
		{"resources/unsubscribe", "", ``, "params.uri is missing"},
		{"tools/list", "", `"_meta":7`, "params._meta must be an object"},
	}
}

// newer has the requests of methods that only the newest revision defines.
func newer() []mistake {
	return []mistake{
		{"subscriptions/listen", "", ``, "params.notifications is missing"},
		{"subscriptions/listen", "", `"notifications":[]`, "params.notifications must be an object"},
		{"subscriptions/listen", "", `"notifications":{"toolsListChanged":"yes"}`, "params.notifications.toolsListChanged must be a boolean"},
		{"subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["a",5]}`, "params.notifications.resourceSubscriptions[1] must be a string"},
	}
}

// beginnings are invalid initialize requests.
func beginnings() []mistake {
	return []mistake{
		{"initialize", "", `"protocolVersion":20251125,"capabilities":{},"clientInfo":{"name":"raw","version":"1"}`, "params.protocolVersion must be a string"},
		{"initialize", "", `"protocolVersion":"2025-11-25","capabilities":[],"clientInfo":{"name":"raw","version":"1"}`, "params.capabilities must be an object"},
		{"initialize", "", `"protocolVersion":"2025-11-25","capabilities":{"roots":true},"clientInfo":{"name":"raw","version":"1"}`, "params.capabilities.roots must be an object"},
		{"initialize", "", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":7}`, "params.clientInfo.name must be a string"},
		{"initialize", "", ``, "params.protocolVersion is missing"},
	}
}

// broken has bodies that are not JSON-RPC messages.
func broken() map[string]string {
	return map[string]string{
		`{"jsonrpc":`:                            "not valid JSON",
		`7`:                                      "must be an object",
		`null`:                                   "must be an object",
		`{"jsonrpc":2,"id":1,"method":"ping"}`:   `jsonrpc must be "2.0"`,
		`{"id":1,"method":"ping"}`:               `jsonrpc must be "2.0"`,
		`{"jsonrpc":"2.0","id":1,"method":5}`:    "method must be a string",
		`{"jsonrpc":"2.0","id":{},"method":"a"}`: "id must be a string or a number",
		`{"jsonrpc":"2.0"}`:                      "neither a method nor the id",
		`{"jsonrpc":"2.0","id":1,"error":7}`:     "error must be an object",
	}
}

func (m mistake) body(id int, rest string) string {
	params := m.params
	if params != "" && rest != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, id, m.method, params, rest)
}

// TestMCPInvalidParameters sends invalid parameters over HTTP. In a session the error is a response
// with status 200; the newest revision has its own status for it.
func TestMCPInvalidParameters(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.NewLibrary(t, "paper", newest))
	header := h.initialize(t)
	requireSaid := func(t *testing.T, m mistake, w wire, status int) {
		t.Helper()
		require.Equal(t, status, w.status, "%s %s", m.body(1, ""), w.body)
		code, message := w.rpcError(t)
		require.Equal(t, -32602, code, message)
		require.Contains(t, message, m.says, m.body(1, ""))
		require.Contains(t, string(w.messages[len(w.messages)-1]), `"id":1`)
		requireNoGo(t, w.body)
	}
	for _, m := range append(mistakes(), older()...) {
		requireSaid(t, m, h.say(t, m.body(1, ""), header...), http.StatusOK)
	}
	for _, m := range append(mistakes(), newer()...) {
		requireSaid(t, m, h.modern(t, m.method, m.name, m.params), http.StatusBadRequest)
	}
	for _, m := range beginnings() {
		requireSaid(t, m, h.say(t, m.body(1, "")), http.StatusOK)
	}
	for body, says := range broken() {
		w := h.say(t, body, header...)
		require.Equal(t, http.StatusBadRequest, w.status, w.body)
		_, message := w.rpcError(t)
		require.Contains(t, message, says, body)
		requireNoGo(t, w.body)
	}
	for body, says := range map[string]string{
		`{"jsonrpc":"2.0","method":"tools/list"}`:                       "must have an id",
		`{"jsonrpc":"2.0","id":5,"method":"notifications/initialized"}`: "must not have an id",
	} {
		w := h.say(t, body, header...)
		require.Equal(t, http.StatusBadRequest, w.status, w.body)
		code, message := w.rpcError(t)
		require.Equal(t, -32600, code)
		require.Contains(t, message, says)
	}

	t.Run("ABatchWithAnInvalidMessageHasNoEffect", func(t *testing.T) {
		w := h.say(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":5}},{"jsonrpc":"2.0","method":"notifications/initialized"}]`)
		var answers []refused
		require.NoError(t, json.Unmarshal([]byte(w.body), &answers), w.body)
		require.Len(t, answers, 2)
		require.Contains(t, answers[0].Error.Message, "none is processed")
		require.Equal(t, "2", string(answers[1].ID))
		require.Equal(t, "params.name must be a string", answers[1].Error.Message)
		requireNoGo(t, w.body)
	})
}

// TestMCPStdioInvalidMessages sends invalid messages to a standalone comet mcp and to a relay.
func TestMCPStdioInvalidMessages(t *testing.T) {
	t.Parallel()
	paper := mcptest.NewLibrary(t, "paper", newest)
	h := openHub(t, "sqlite", nil, paper)
	file := filepath.Join(t.TempDir(), "servers.json")
	mcptest.WriteServers(t, file, paper)
	token := "COMET_TOKEN=" + h.holder(t, "").Token
	for kind, args := range map[string][]string{"Alone": {"--config", file, "--data", t.TempDir()}, "AsALinkToAServer": {"--server", h.URL}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, c := range map[string]struct {
				begin    []string
				mistakes []mistake
				rest     string
			}{
				"InASession":  {[]string{beginSession, sessionBegun}, append(mistakes(), older()...), ""},
				"InTheNewest": {nil, mistakes(), meta}, // at the end of what it is asked a link does not wait for subscriptions
			} {
				t.Run(name, func(t *testing.T) {
					lines := c.begin
					for i, m := range c.mistakes {
						lines = append(lines, m.body(100+i, c.rest))
					}
					answers := piped(t, token, args, lines...)
					for i, m := range c.mistakes {
						answer := answers[fmt.Sprint(100+i)]
						require.Contains(t, answer, "-32602", m.body(1, ""))
						require.Contains(t, answer, m.says, m.body(1, ""))
						requireNoGo(t, answer)
					}
				})
			}
			t.Run("InInitialize", func(t *testing.T) {
				for _, m := range beginnings() {
					answer := piped(t, token, args, m.body(1, ""))["1"]
					require.Contains(t, answer, m.says)
					requireNoGo(t, answer)
				}
			})
			t.Run("InvalidMessages", func(t *testing.T) {
				for line, says := range broken() {
					answers := piped(t, token, args, line)
					said := strings.ReplaceAll(answers["null"]+answers["1"], `\"`, `"`)
					require.Contains(t, said, says, line)
					requireNoGo(t, said)
				}
			})
		})
	}
}
