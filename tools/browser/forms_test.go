package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cardServer is an MCP server with one tool, whose description is in a file.
const cardServer = `const description = require("fs").readFileSync(process.argv[1], "utf8");
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
	const {id, method, params} = JSON.parse(line);
	const results = {
		initialize: {protocolVersion: params?.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "cards", version: "1"}},
		"tools/list": {tools: [{name: "charge", description, inputSchema: {type: "object"}}]},
	};
	if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, result: results[method] ?? {}}));
});`

// hidden contains a tag character, a zero-width space and a control character that reorders text; escapes is the text that the
// page shows for them.
const (
	hidden  = "\U000E0073\u200B\u202E"
	escapes = `\u{e0073}\u{200b}\u{202e}`
)

// TestHiddenDefinition adds invisible characters to the description of a tool, and checks that the comparison shows them.
func TestHiddenDefinition(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	file := filepath.Join(t.TempDir(), "description")
	require.NoError(t, os.WriteFile(file, []byte("Charges a card."), 0o600))
	state := func() string {
		var list struct{ Tools []struct{ State string } }
		if s.call(s.token, http.MethodGet, "/api/v1/upstreams/cards/tools", nil, &list) != http.StatusOK || len(list.Tools) == 0 {
			return ""
		}
		return list.Tools[0].State
	}
	s.do(http.MethodPut, "/api/v1/upstreams/cards", object{"command": "node", "args": []string{"-e", cardServer, file}}, nil)
	eventually(t, "the tool is known", func() bool { return state() != "" })
	require.NoError(t, os.WriteFile(file, []byte("Charges a card."+hidden), 0o600))
	require.Less(t, s.call(s.token, http.MethodPost, "/api/v1/upstreams/cards/restart", nil, nil), 300)
	eventually(t, "the tool is quarantined", func() bool { return state() == "quarantined" })
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools/cards")
	p.until(`document.querySelector("pre.diff .added")?.innerText.includes(` + quote("Charges a card."+escapes) + `)`)
	p.show("light", 1440)
	p.screenshot("hidden-definition", "light", 1440)
}

// TestHiddenNames checks that the page shows escapes in the name of an agent and keeps the joiners of emoji.
func TestHiddenNames(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.do(http.MethodPost, "/api/v1/agents", object{"id": "named", "name": "live" + hidden + " ❤\uFE0F", "level": 2, "parent_id": "orch-my-team", "type": "demo", "capabilities": []string{"custom:greet"}}, nil)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents/named")
	p.until(`document.querySelector("main").innerText.includes(` + quote("live"+escapes+" ❤\uFE0F") + `)`)
	assert.NotContains(t, eval[string](p, "document.title"), "\u202E")
}

// TestInvalidInput checks that forms say which input is invalid, and that "as curl" shows the valid input.
func TestInvalidInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents")
	p.click("New agent")
	p.enter("id", "kept")
	p.enter("token_budget", "1.5")
	p.click("as curl")
	p.shows("Tokens per day: Enter a whole number")
	p.until(`[...document.querySelectorAll("dialog pre")].some((e) => e.innerText.includes('"id":"kept"'))`)
	p.show("light", 1440)
	p.screenshot("form-curl", "light", 1440)
	p.visit("/ui/tools")
	p.click("Add server")
	p.until(dialogs + " === 1")
	p.click("Add server")
	p.until(`document.querySelector("dialog [data-error-for=id]") && document.activeElement.name === "id"`)
	p.screenshot("form-required", "light", 1440)
}

// TestInvalidPolicy checks that the simulator shows no verdict while the policy is invalid.
func TestInvalidPolicy(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id, _ := s.createToken("caller", "", "tools:call")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools?tab=policies&token="+id)
	p.click("Simulate")
	p.shows("tools are allowed")
	p.click("Add rule")
	p.enter("Deny rule 1: tool", "agentcards:*")
	p.shows("with the unsaved policy")
	p.enter("Deny rule 1: arguments as JSON", "{bad")
	p.shows("Invalid JSON")
	p.shows("The policy is invalid")
	assert.NotContains(t, eval[string](p, "document.body.innerText"), "tools are allowed")
	assert.True(t, eval[bool](p, find("Set policy")+".disabled"))
	p.accessible("invalid policy")
	p.show("light", 1440)
	p.screenshot("policy-invalid", "light", 1440)
}

// TestPolicyEditor sets, changes and deletes a policy, and checks that a change which another request made is not overwritten.
func TestPolicyEditor(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id, _ := s.createToken("caller", "", "tools:call")
	path := "/api/v1/tokens/" + id + "/tool-policy"
	type rule struct{ Tool string }
	stored := func() (tools []string) {
		var policy struct{ Allow, Deny []rule }
		s.do(http.MethodGet, path, nil, &policy)
		for _, r := range append(policy.Allow, policy.Deny...) {
			tools = append(tools, r.Tool)
		}
		return tools
	}
	p := open(t, s, "status of 412")
	p.logIn(s.token, "/ui/tools?tab=policies&token="+id)
	p.shows("This token has no policy")
	p.click("Add rule")
	p.enter("Deny rule 1: tool", "mine:*")
	s.do(http.MethodPut, path, object{"deny": []object{{"tool": "theirs:*"}}}, nil)
	p.click("Set policy")
	p.shows("Nothing was saved.")
	assert.Equal(t, []string{"theirs:*"}, stored())
	p.click("Load the new version")
	p.until(find("Deny rule 1: tool") + `.value === "theirs:*"`)
	p.enter("Deny rule 1: tool", "mine:*")
	p.click("Save policy")
	p.shows("Policy saved.")
	assert.Equal(t, []string{"mine:*"}, stored())
	p.until(find("Save policy") + ".disabled && !" + find("Delete policy") + ".disabled")
	p.enter("Deny rule 1: tool", "ours:*")
	p.click("Save policy")
	eventually(t, "the second change is saved", func() bool { return slices.Equal(stored(), []string{"ours:*"}) })
	p.click("Delete policy")
	p.shows("Delete the policy of caller?")
	p.accessible("question before a policy is deleted")
	p.click("Delete policy")
	p.shows("This token has no policy")
	assert.Empty(t, stored())
}

// TestFilterHistory checks that Back undoes a filter choice, and that the fields show the filters in the address.
func TestFilterHistory(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tasks")
	query := func(want string) { t.Helper(); p.until("location.search === " + quote(want)) }
	field := func(want string) { t.Helper(); p.until(find("Agent") + ".value === " + quote(want)) }
	state := `document.querySelector(".filters select")`
	eval[chromedp.Void](p, "("+state+`.value = "failed", `+state+`.dispatchEvent(new Event("change", {bubbles: true})))`)
	query("?state=failed")
	p.enter("Agent", "l2-01")
	query("?state=failed&agent=l2-01")
	p.click("Tasks")
	query("")
	field("")
	for _, step := range []struct{ query, field string }{{"?state=failed&agent=l2-01", "l2-01"}, {"", ""}} {
		eval[chromedp.Void](p, "history.back()")
		query(step.query)
		field(step.field)
	}
}

// TestPolledLists checks that lists show a webhook and a login that another client creates, which no event reports.
func TestPolledLists(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/webhooks")
	p.shows("No webhook yet")
	s.do(http.MethodPost, "/api/v1/webhooks", object{"url": "https://example.com/created-elsewhere", "events": []string{"*"}}, nil)
	p.shows("created-elsewhere")
	p.visit("/ui/access?tab=logins")
	rows := `document.querySelectorAll("tbody tr").length`
	before := eval[int](p, rows)
	open(t, s, "").logIn(s.token, "/ui/")
	p.until(fmt.Sprintf("%s > %d", rows, before))
	assert.Contains(t, eval[string](p, `document.querySelector("tbody tr").innerText`), "this browser")
}
