package browser

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notesServer is an MCP server for Node.js with two tools; the description of one is the content of a file.
const notesServer = `const {createInterface} = require("node:readline"), {readFileSync} = require("node:fs");
const tool = (name, description) => ({name, description, inputSchema: {type: "object", properties: {text: {type: "string"}}}});
const results = {
	initialize: (p) => ({protocolVersion: p.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "notes", version: "1"}}),
	"tools/list": () => ({tools: [tool("lookup", readFileSync(process.argv[2], "utf8")), tool("store", "Stores a note")]}),
	"tools/call": (p) => p.arguments?.text === "fail" ? undefined : {content: [{type: "text", text: "called " + p.name}]},
	ping: () => ({}),
};
createInterface({input: process.stdin}).on("line", (line) => {
	const {id, method, params} = JSON.parse(line);
	if (id === undefined) return;
	const result = results[method]?.(params);
	const answer = result ? {result} : {error: {code: -32601, message: "unknown method"}};
	process.stdout.write(JSON.stringify({jsonrpc: "2.0", id, ...answer}) + "\n");
});`

// TestToolError checks that the page shows all members of an error of a tool call.
func TestToolError(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	addNotes(s)
	p := open(t, s, "status of 502")
	p.logIn(s.token, "/ui/tools/notes:store")
	p.enter("Arguments (JSON)", `{"text": "fail"}`)
	p.click("Call tool")
	p.until(`document.querySelector("dialog")`)
	eval[chromedp.Void](p, `[...document.querySelectorAll("dialog footer button")].at(-1).click()`)
	p.until(`document.querySelector("[role=alert] .facts")?.innerText.includes("tool_error")`)
	p.shows("MCP_SERVER_ERROR")
	p.accessible("error of a tool")
	p.screenshot("tool-error", "light", 1440)
}

// addNotes adds the server and returns the file with the description of its tool.
func addNotes(s *server) (description string) {
	folder := s.t.TempDir()
	program := filepath.Join(folder, "notes.cjs")
	description = filepath.Join(folder, "description.txt")
	require.NoError(s.t, os.WriteFile(program, []byte(notesServer), 0o600))
	require.NoError(s.t, os.WriteFile(description, []byte("Looks up a note"), 0o600))
	s.do(http.MethodPut, "/api/v1/upstreams/notes", object{"command": "node", "args": []string{program, description}}, nil)
	eventually(s.t, "the tools can be called", func() bool { return s.callable("notes:lookup") && s.callable("notes:store") })
	return description
}

// callable reports whether a tool can be called.
func (s *server) callable(tool string) bool {
	var list struct{ Tools []struct{ ID string } }
	s.do(http.MethodGet, "/api/v1/tools?server=notes", nil, &list)
	for _, t := range list.Tools {
		if t.ID == tool {
			return true
		}
	}
	return false
}

// TestToolsAdministration approves a changed tool, edits policies, adds and removes servers, and exports the graph.
func TestToolsAdministration(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	description := addNotes(s)
	token, _ := s.createToken("tool user", "", "tools:call")

	t.Run("quarantine", func(t *testing.T) {
		t.Parallel()
		approveChange(s.in(t), description)
	})

	t.Run("policies", func(t *testing.T) {
		t.Parallel()
		editPolicy(s.in(t), token)
	})

	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		administerServers(s.in(t))
	})
}

// approveChange changes the description of a tool and approves it in the page.
func approveChange(s *server, description string) {
	p := open(s.t, s, "")
	p.logIn(s.token, "/ui/tools/notes")
	require.NoError(s.t, os.WriteFile(description, []byte("Looks up a note and sends it elsewhere"), 0o600))
	p.click("Restart")
	p.shows("Calls in progress will fail")
	p.click("Restart")
	p.shows("Waiting for approval (1)")
	p.until(`document.querySelector(".diff .removed")?.textContent.includes("Looks up a note\"") && document.querySelector(".diff .added").textContent.includes("and sends it elsewhere")`)
	p.accessible("changed tool")
	p.screenshot("tool-changed", "light", 1440)
	assert.False(s.t, s.callable("notes:lookup"))
	p.click("Approve tool")
	p.shows("Agents may call the tool again")
	p.click("Approve tool")
	eventually(s.t, "the tool can be called", func() bool { return s.callable("notes:lookup") })
	p.until(`!document.body.innerText.includes("Waiting for approval")`)
}

// editPolicy simulates the policy of a token, stores it and changes it.
func editPolicy(s *server, token string) {
	p := open(s.t, s, "")
	p.logIn(s.token, "/ui/tools?tab=policies&token="+token)
	p.shows("This token has no policy")
	verdict := func(tool, text string) {
		p.until(`[...document.querySelectorAll("table[aria-label='Simulated tools'] tbody tr")].some((r) => r.innerText.includes(` + quote(tool) + `) && r.innerText.includes(` + quote(text) + `))`)
	}
	p.click("Simulate")
	verdict("agentcards:search_tools", "allowed")
	eval[chromedp.Void](p, `document.querySelectorAll("fieldset.rules")[1].querySelector("button:last-child").click()`)
	p.enter("Deny rule 1: tool", "agentcards:se*")
	p.shows("with the unsaved policy")
	verdict("agentcards:search_tools", "denied")
	p.accessible("policy simulator")
	p.click("Set policy")
	p.shows("Policy saved.")
	var policy struct{ Deny []struct{ Tool string } }
	s.do(http.MethodGet, "/api/v1/tokens/"+token+"/tool-policy", nil, &policy)
	require.Len(s.t, policy.Deny, 1)
	assert.Equal(s.t, "agentcards:se*", policy.Deny[0].Tool)
	p.until(find("Save policy")) // the editor shows what is stored
	p.enter("Deny rule 1: tool", "notes:store")
	p.click("Save policy")
	eventually(s.t, "the change is stored", func() bool {
		s.do(http.MethodGet, "/api/v1/tokens/"+token+"/tool-policy", nil, &policy)
		return policy.Deny[0].Tool == "notes:store"
	})
}

// administerServers adds a server after an API error, changes it and removes it.
func administerServers(s *server) {
	p := open(s.t, s, "status of 4")
	p.logIn(s.token, "/ui/tools")
	p.click("Add server")
	p.enter("id", "remote")
	p.enter("url", "ftp://example.org")
	eval[chromedp.Void](p, `document.querySelector("dialog form").requestSubmit()`)
	p.until(`document.querySelector("[data-error-for=url]")`)
	p.accessible("form of a server with an error")
	p.enter("url", "http://127.0.0.1:9/mcp")
	eval[chromedp.Void](p, `document.querySelector("dialog form").requestSubmit()`)
	p.until(`location.pathname === "/ui/tools/remote"`)
	p.shows("http://127.0.0.1:9/mcp")
	p.click("Edit")
	p.enter("url", "http://127.0.0.1:9/other")
	p.click("Save")
	p.shows("http://127.0.0.1:9/other")
	p.until(`!document.querySelector("dialog")`)
	p.click("Remove")
	p.shows("on all replicas")
	p.click("Remove")
	p.until(`location.pathname === "/ui/tools"`)
	assert.Equal(s.t, http.StatusNotFound, s.call(s.token, http.MethodGet, "/api/v1/upstreams/remote", nil, nil))
}

// TestToolGraph finds a path in the graph of tools and exports the graph.
func TestToolGraph(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	addNotes(s)
	for range 3 {
		s.do(http.MethodPost, "/api/v1/tools/call", object{"tool": "agentcards:execute_code", "arguments": object{"code": `await mcp.notes.lookup({}); return await mcp.notes.store({})`, "intent": "look up and store"}}, nil)
	}
	var path struct{ Path []string }
	eventually(t, "the tools are in the graph", func() bool {
		return s.call(s.token, http.MethodGet, "/api/v1/tools/graph/path?from=notes:lookup&to=notes:store", nil, &path) == http.StatusOK && len(path.Path) > 1
	})
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools?tab=graph")
	p.change("Path from", `"notes:lookup"`)
	eval[chromedp.Void](p, field("to")+".focus()")
	p.press("notes:store" + kb.Enter)
	p.shows("Path of 1 step")
	assert.True(t, eval[bool](p, "document.activeElement === "+field("to")), "the field keeps the focus")
	p.accessible("path of tools")
	graph := eval[string](p, `fetch([...document.querySelectorAll("a[download]")].find((a) => a.innerText.trim() === "GraphML").href).then((r) => r.text())`)
	assert.Contains(t, graph, "<graphml")
	assert.Contains(t, graph, "notes:lookup")
	p.click("Clear")
	p.until(field("Path from") + `.value === "" && ` + field("to") + `.value === ""`)

	p.visit("/ui/tools")
	p.observeDownloads()
	eval[chromedp.Void](p, `window.fetch = ((get) => async (...request) => { // a tool whose name is a formula
		const response = await get(...request);
		if (!String(request[0]).includes("/tools/graph")) return response;
		return new Response((await response.text()).replace('"name":"store"', '"name":"=1+1,\\"2\\""'), response);
	})(fetch)`)
	p.click("Graph")
	p.click("CSV")
	p.until(`files[0]?.includes('notes:store,notes,"\'=1+1,""2""",')`)
}

// TestRedelivery redelivers an event to a receiver that fails the first time.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	var received atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !healthy.Load() {
			http.Error(w, "not yet", http.StatusBadRequest)
			return
		}
		received.Add(1)
	}))
	t.Cleanup(receiver.Close)
	s := startServer(t, "--webhooks-allow-networks", "127.0.0.0/8")
	var hook struct{ ID string }
	s.do(http.MethodPost, "/api/v1/webhooks", object{"url": receiver.URL, "events": []string{"agent.created"}, "retry_seconds": []int{1}}, &hook)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/webhooks/"+hook.ID)
	s.createAgent("announced")
	p.until(`document.querySelector("table[aria-label=Deliveries] tbody")?.innerText.includes("dead")`)
	healthy.Store(true)
	p.click("Redeliver")
	p.until(`document.querySelector("table[aria-label=Deliveries] tbody").innerText.includes("succeeded")`)
	assert.EqualValues(t, 1, received.Load())
	eval[chromedp.Void](p, `document.querySelector("table[aria-label=Deliveries] tbody a").click()`)
	p.until(`document.querySelectorAll("dialog .attempts .failed").length > 0 && document.querySelectorAll("dialog .attempts .succeeded").length === 1`)
	p.accessible("delivery")
}

// TestAccess creates, rotates and revokes tokens, and registers the key of an agent.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("signer")

	t.Run("tokens", func(t *testing.T) {
		t.Parallel()
		administerTokens(s.in(t))
	})

	t.Run("own token", func(t *testing.T) {
		t.Parallel()
		rotateOwnToken(s.in(t))
	})

	t.Run("children", func(t *testing.T) {
		t.Parallel()
		revokeParent(s.in(t))
	})

	t.Run("keys", func(t *testing.T) {
		t.Parallel()
		pinKey(s.in(t))
	})
}

// administerTokens creates, rotates and revokes a token.
func administerTokens(s *server) {
	p := open(s.t, s, "")
	p.logIn(s.token, "/ui/access?tab=tokens")
	secret := func() string {
		p.until(`document.querySelector("dialog .secret pre")`)
		out := eval[string](p, `document.querySelector("dialog .secret pre").textContent`)
		p.click("I have stored it")
		return out
	}
	works := func(token string) bool { return s.call(token, http.MethodGet, "/api/v1/me", nil, nil) == http.StatusOK }
	p.click("New token")
	p.enter("name", "made in the page")
	eval[chromedp.Void](p, `document.querySelector("dialog input[value='agents:read']").click()`)
	p.click("Create token")
	first := secret()
	assert.True(s.t, works(first))
	inRow := func(button string) {
		row := `[...document.querySelectorAll("table[aria-label=Tokens] tbody tr")].find((r) => r.innerText.includes("made in the page"))`
		p.until(row)
		eval[chromedp.Void](p, `[...`+row+`.querySelectorAll("button")].find((b) => b.innerText.trim() === `+quote(button)+`).click()`)
		p.confirm(button)
	}
	inRow("Rotate")
	second := secret()
	assert.True(s.t, works(second) && !works(first))
	inRow("Revoke")
	eventually(s.t, "the token is revoked", func() bool { return !works(second) })
	p.until(`!document.querySelector("table[aria-label=Tokens]").innerText.includes("made in the page")`)
}

// rotateOwnToken rotates the token of the page's own login, which ends: the page shows the new secret until it is stored.
func rotateOwnToken(s *server) {
	_, token := s.createToken("the own", "", "admin")
	p := open(s.t, s, "status of 401")
	p.logIn(token, "/ui/access?tab=tokens")
	p.until(`document.body.dataset.live === "on"`)
	row := `[...document.querySelectorAll("table[aria-label=Tokens] tbody tr")].find((r) => r.innerText.includes("the own"))`
	p.until(row)
	eval[chromedp.Void](p, `[...`+row+`.querySelectorAll("button")].find((b) => b.innerText.trim() === "Rotate").click()`)
	p.confirm("Rotate")
	p.until(`document.querySelector("dialog .secret pre")`)
	p.shows("the token is unknown, expired or revoked") // the login has ended
	secret := eval[string](p, `document.querySelector("dialog .secret pre").textContent`)
	assert.Equal(s.t, http.StatusOK, s.call(secret, http.MethodGet, "/api/v1/me", nil, nil))
	p.click("I have stored it")
	p.until(loginForm)
}

// revokeParent revokes a token with its child, which the list and the confirmation show.
func revokeParent(s *server) {
	_, parent := s.createToken("the parent", "signer", "agents:read")
	var child struct{ Token string }
	require.Equal(s.t, http.StatusCreated, s.call(parent, http.MethodPost, "/api/v1/tokens", object{"name": "the child", "agent_id": "signer", "scopes": []string{"agents:read"}}, &child))
	p := open(s.t, s, "")
	p.logIn(parent, "/ui/access?tab=tokens")
	p.shows("child of the parent")
	p.screenshot("access-children", "light", 1440)
	p.click("New token")
	p.shows("The new token is a child of your token the parent")
	p.accessible("form of a child token")
	p.visit("/ui/access?tab=tokens")

	admin := open(s.t, s, "")
	admin.logIn(s.token, "/ui/access?tab=tokens")
	admin.shows("child of the parent")
	row := `[...document.querySelectorAll("table[aria-label=Tokens] tbody tr")].find((r) => r.querySelector("th, td").innerText.trim() === "the parent")`
	admin.until(row)
	eval[chromedp.Void](admin, `[...`+row+`.querySelectorAll("button")].find((b) => b.innerText.trim() === "Revoke").click()`)
	admin.shows("The token below it is revoked, too:")
	admin.accessible("revocation of a parent")
	p.expect(expectStatus(http.StatusUnauthorized))
	admin.confirm("Revoke")
	eventually(s.t, "the child is revoked", func() bool {
		return s.call(child.Token, http.MethodGet, "/api/v1/me", nil, nil) == http.StatusUnauthorized
	})
}

// pinKey registers the public key of an agent after an error.
func pinKey(s *server) {
	p := open(s.t, s, "status of 4") // the agent has no secret, and the first key is not valid
	p.logIn(s.token, "/ui/access?tab=keys&agent=signer")
	p.click("Pin public key")
	p.enter("public_key", "not a key")
	submit := `document.querySelector("dialog form").requestSubmit()`
	eval[chromedp.Void](p, submit)
	p.until(`document.querySelector("[data-error-for=public_key]")`)
	p.enter("public_key", strings.Repeat("a7", 31)+"5a")
	eval[chromedp.Void](p, submit)
	p.shows("Key pinned.")
	p.until(`document.querySelector("table[aria-label='Public keys']")?.innerText.includes("valid")`)
	p.accessible("keys of an agent")
}
