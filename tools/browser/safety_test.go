package browser

import (
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnotherLogin logs in with another token in a second tab: the first tab then shows what that token may see.
func TestAnotherLogin(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, reader := s.createToken("reader", "", "agents:read")
	first := open(t, s, "status of 401|Failed to load")
	first.logIn(s.token, "/ui/agents")
	first.until(`document.body.dataset.live === "on"`)
	second := first.another()
	second.logIn(reader, "/ui/")
	first.until(`document.querySelector('nav[aria-label="Main"]')?.innerText.includes("Agents") && !document.querySelector('nav[aria-label="Main"]').innerText.includes("Tasks")`)
	first.shows("reader")
}

// TestLinkAsks opens a login link in a browser that is logged in already: the page asks before it replaces the login.
func TestLinkAsks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, reader := s.createToken("reader", "", "agents:read")
	p := open(t, s, "status of 401")
	p.logIn(s.token, "/ui/")
	for _, accept := range []bool{false, true} {
		var code struct{ Path string }
		require.Equal(t, http.StatusCreated, s.call(reader, http.MethodPost, "/api/v1/logins/codes", nil, &code))
		asked := make(chan string, 1)
		require.NoError(t, chromedp.Listen(p.ctx, func(event any) {
			if e, ok := event.(*page.EventJavascriptDialogOpening); ok {
				select {
				case asked <- e.Message:
				default:
				}
			}
		}))
		_, err := chromedp.Run(p.ctx, chromedp.Evaluate[chromedp.Void]("setTimeout(() => location.assign("+quote(code.Path)+"))"))
		require.NoError(t, err)
		require.Contains(t, <-asked, "Replace your login as bootstrap-admin?")
		_, err = chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: accept})
		require.NoError(t, err)
		p.shows(map[bool]string{false: "bootstrap-admin", true: "reader"}[accept])
	}
}

// TestLostUpdate changes an agent while its form is open, and checks that the form does not undo the change
// and saves the edited fields after it has loaded the new version.
func TestLostUpdate(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("shared")
	p := open(t, s, "status of 412")
	p.logIn(s.token, "/ui/agents/shared")
	p.click("Edit")
	p.enter("name", "From the form")
	s.do(http.MethodPatch, "/api/v1/agents/shared", object{"token_budget": 7777}, nil)
	p.until(`document.querySelector("main").innerText.includes("7,777")`) // the view has read the change
	p.click("Save")
	p.until(`document.querySelector("dialog [role=alert]")`)
	var agent struct {
		Name   string
		Budget int `json:"token_budget"`
	}
	s.do(http.MethodGet, "/api/v1/agents/shared", nil, &agent)
	assert.Equal(t, 7777, agent.Budget)
	assert.Equal(t, "Agent shared", agent.Name)
	p.click("Load the new version")
	p.until(find("token_budget") + `.value === "7777" && ` + find("name") + `.value === "From the form"`)
	p.click("Save")
	p.until(dialogs + " === 0")
	s.do(http.MethodGet, "/api/v1/agents/shared", nil, &agent)
	assert.Equal(t, 7777, agent.Budget)
	assert.Equal(t, "From the form", agent.Name)
}

// TestHiddenCharacters shows characters of a step that cannot be seen, or that reorder text, as escapes before it is approved.
func TestHiddenCharacters(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var w struct {
		ID string `json:"workflow_id"`
	}
	s.do(http.MethodPost, "/api/v1/workflows", object{"workflow": object{"tasks": []object{
		{"id": "code", "type": "code_execution", "code": "return 1 // \U000E0041\u202E\u200B", "approve": true},
	}}}, &w)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/workflows/"+w.ID)
	p.until(`document.querySelector("[data-digest=verified]")`)
	p.shows(`\u{e0041}\u{202e}\u{200b}`)
}
