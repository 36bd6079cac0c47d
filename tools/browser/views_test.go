package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestViews opens every view with real data: it is accessible in both themes, and fits into three widths.
func TestViews(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	s.startWorker("greeter", `echo "Hello, $COMET_PARAM_NAME"; echo "::tokens 120"`)
	var task string
	for i := range 12 {
		task = s.submit(object{"name": fmt.Sprintf("Ada %d", i)})
		s.waitForTask(task, "done")
	}
	var hook struct{ ID string }
	s.do(http.MethodPost, "/api/v1/webhooks", object{"url": "https://example.org/hook", "events": []string{"agent.*"}}, &hook)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/")
	p.inspect([]view{
		{"overview", "/ui/", "Needs you"},
		{"agents", "/ui/agents", "orch-my-team"},
		{"agents-found", "/ui/agents?q=greeter", "Agent greeter"},
		{"agent", "/ui/agents/greeter", "custom:greet"},
		{"agent-usage", "/ui/agents/greeter?tab=usage", "Tokens by hour"},
		{"agent-audit", "/ui/agents/greeter?tab=audit", "created"},
		{"tasks", "/ui/tasks", "greet"},
		{"tasks-none", "/ui/tasks?state=cancelled", "No task matches"},
		{"task", "/ui/tasks/" + task, "Hello, Ada 11"},
		{"task-decision", "/ui/tasks/" + task + "?tab=decision", "Candidates"},
		{"task-events", "/ui/tasks/" + task + "?tab=events", "task completed"},
		{"workflows", "/ui/workflows", "Workflows"},
		{"tools", "/ui/tools", "Tools"},
		{"webhooks", "/ui/webhooks", "example.org"},
		{"webhook", "/ui/webhooks/" + hook.ID, "Deliveries"},
		{"access", "/ui/access", "Your token"},
		{"access-tokens", "/ui/access?tab=tokens", "worker greeter"},
		{"access-logins", "/ui/access?tab=logins", "this browser"},
		{"access-keys", "/ui/access?tab=keys", "Keys of this server"},
		{"events", "/ui/events", "task.completed"},
		{"events-past", "/ui/events?at=5", "up to position 5"},
	})
	p.expect(expectStatus(404))
	p.inspect([]view{{"missing", "/ui/agents/no-such-agent", "there is no agent"}})
}

// view is a view of the dashboard: the name of its pictures, its path, and a text that it shows.
type view struct{ name, path, text string }

// inspect opens views and checks that they are accessible in both themes, to screen readers, by touch, without motion and
// zoomed. It stores screenshots of them.
func (p *tab) inspect(views []view) {
	p.t.Helper()
	for _, v := range views {
		p.show("light", 1440)
		p.visit(v.path)
		p.shows(v.text)
		assert.Empty(p.t, strings.Join(p.structure(), "\n"), "accessibility tree of %s", v.name)
		p.accessible(v.name)
		p.pictures(v.name, "light", 1440, 820, 390)
		p.show("dark", 1440)
		p.accessible(v.name+" dark", "color-contrast") // the other theme differs only in its colours
		p.pictures(v.name, "dark", 1440, 390)
		assert.Empty(p.t, eval[[]string](p, movement), "what moves in %s", v.name)
		p.show("light", 390)
		p.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateTouch))
		p.accessible(v.name+" on a telephone", "target-size")
		p.zoomed(v.name, 200)
		p.zoomed(v.name, 400)
	}
}

// pictures shows a view at several widths, checks that it fits, and stores screenshots.
func (p *tab) pictures(name, theme string, widths ...int) {
	p.t.Helper()
	for _, width := range widths {
		p.show(theme, int64(width))
		assert.LessOrEqual(p.t, eval[float64](p, "document.documentElement.scrollWidth"), float64(width), "%s is wider than %d px", name, width)
		p.screenshot(name, theme, width)
	}
}

// TestKeyboard uses the page without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/")
	p.press("ga")
	p.until(`location.pathname === "/ui/agents"`)
	p.until(`document.querySelector("[role=treegrid] [role=row][aria-level]")`)
	eval[chromedp.Void](p, `document.querySelector("[role=treegrid] [role=row][aria-level]").focus()`)
	p.until(`document.querySelectorAll("[role=row][aria-level='2']").length === 9`)
	eval[chromedp.Void](p, `[...document.querySelectorAll("[role=row]")].find((r) => r.innerText.includes("orch-my-team")).focus()`)
	p.press(kb.ArrowRight)
	p.until(`[...document.querySelectorAll("[role=row][aria-level='3']")].some((r) => r.innerText.includes("greeter"))`)
	p.press("jj")
	p.press("k")
	p.press(kb.Enter)
	p.until(`location.pathname === "/ui/agents/greeter"`)
	p.press("k", chromedp.KeyModifiers(kb.ModifierCtrl))
	p.until(`document.querySelector("dialog[data-palette] input") === document.activeElement`)
	p.accessible("palette")
	p.press("greet")
	p.until(`[...document.querySelectorAll("[role=option]")].some((o) => o.innerText.includes("greeter"))`)
	p.press(kb.Escape)
	p.until(`!document.querySelector("dialog[data-palette]")`)
	p.press("gt")
	p.until(`location.pathname === "/ui/tasks"`)

	switchSingleKeys := func(state string) {
		p.press("k", chromedp.KeyModifiers(kb.ModifierCtrl))
		p.until(`document.querySelector("dialog[data-palette] input") === document.activeElement`)
		p.press("single-key")
		p.until(`document.querySelector("[role=option][aria-selected=true]")?.innerText.includes("Switch single-key shortcuts ` + state + `")`)
		p.press(kb.Enter)
		p.until(`!document.querySelector("dialog[data-palette]")`)
	}
	switchSingleKeys("off")
	p.press("ga/")
	switchSingleKeys("on")
	assert.Equal(t, "/ui/tasks", eval[string](p, "location.pathname"))
	p.press("ga")
	p.until(`location.pathname === "/ui/agents"`)
}

// TestScopes checks that a token sees only what its scopes allow, and that forms show the API's errors at their fields.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, reader := s.createToken("reader", "", "agents:read")
	p := open(t, s, "")
	p.logIn(reader, "/ui/")
	assert.Equal(t, []string{"Overview", "Agents", "Access", "Events"}, eval[[]string](p, `[...document.querySelectorAll('nav[aria-label="Main"] a')].map((a) => a.innerText.trim())`))
	p.visit("/ui/agents")
	p.shows("orch-my-team")
	assert.NotContains(t, eval[string](p, "document.body.innerText"), "New agent")
	p.visit("/ui/tasks")
	p.shows("your token may not see it")

	admin := open(t, s, `status of 4`)
	admin.logIn(s.token, "/ui/agents")
	admin.click("New agent")
	admin.enter("id", "Not An Id!")
	admin.enter("name", "Someone")
	admin.click("Create agent")
	admin.until(`document.querySelector("dialog [data-error-for=id]")`)
	admin.accessible("form with errors")
	admin.enter("id", "form-agent")
	admin.enter("parent_id", "orch-my-team")
	admin.click("Create agent")
	admin.until(`location.pathname === "/ui/agents/form-agent"`)
	admin.shows("Agents below")
	admin.click("Edit")
	admin.enter("description", "Written in the dashboard")
	admin.click("Save")
	admin.shows("Written in the dashboard")
	admin.click("Deactivate")
	admin.shows("It receives no further tasks")
	admin.click("Deactivate")
	admin.shows("inactive")
	var agent struct {
		IsActive    bool `json:"is_active"`
		Description string
	}
	s.do(http.MethodGet, "/api/v1/agents/form-agent", nil, &agent)
	assert.False(t, agent.IsActive)
	assert.Equal(t, "Written in the dashboard", agent.Description)
}

// TestNothingIsHTML shows texts of agents that look like HTML as they are.
func TestNothingIsHTML(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
	s.do(http.MethodPost, "/api/v1/agents", object{"id": "hostile", "name": hostile, "description": hostile, "level": 2, "parent_id": "orch-my-team", "capabilities": []string{"custom:greet"}, "type": "demo"}, nil)
	s.startWorker("hostile", `printf '%s' "$COMET_PARAM_NAME"`)
	task := s.submit(object{"name": hostile})
	s.waitForTask(task, "done")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents/hostile")
	p.shows("<script>")
	p.visit("/ui/tasks/" + task)
	p.until(`document.querySelector("pre[aria-label=Result]").textContent === ` + quote(hostile))
	require.True(t, eval[bool](p, `window.hacked === undefined && !document.querySelector("main img, main script")`))
}

// TestAsCurl runs the commands that the page shows.
func TestAsCurl(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents")
	p.shows("orch-my-team")
	p.click("as curl")
	p.until(`document.querySelector("dialog pre")`)
	command := eval[string](p, `document.querySelector("dialog pre").textContent`)
	require.True(t, strings.HasPrefix(command, "curl "), command)
	path := command[strings.Index(command, s.url)+len(s.url) : strings.LastIndex(command, "'")]
	s.do(http.MethodGet, path, nil, nil)
}
