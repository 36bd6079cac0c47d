package browser

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOutage opens views while the server is down, and checks that they show their data when it is back, without a reload.
func TestOutage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("kept")
	p := open(t, s, "Failed to load resource|net::|dynamically imported module")
	p.logIn(s.token, "/ui/agents/kept")
	p.shows("custom:greet")
	for _, loaded := range []struct{ view, shows string }{{"/ui/", "Tasks completed"}, {"/ui/agents", "orch-my-team"}, {"/ui/tasks", "No task"}} {
		p.visit(loaded.view)
		p.until(`document.body.dataset.live === "on"`)
		eval[chromedp.Void](p, "window.marker = 1")
		eval[chromedp.Void](p, `document.querySelector('nav a[href="/ui/webhooks"]').click()`)
		p.until(`document.querySelector('main[data-page="webhooks"]')`)
		s.kill()
		p.until(`document.body.dataset.live === "off"`)
		eval[chromedp.Void](p, `document.querySelector('nav a[href="`+loaded.view+`"]').click()`)
		p.until(`document.querySelector("main").innerText.includes("does not respond")`)
		s.restart()
		p.until(`document.body.dataset.live === "on"`)
		p.until(`!document.body.innerText.includes("does not respond")`)
		p.shows(loaded.shows)
	}

	s.kill()
	p.until(`document.body.dataset.live === "off"`)
	eval[chromedp.Void](p, `document.querySelector('nav a[href="/ui/access"]').click()`) // its code is not loaded yet
	p.shows("This view cannot be loaded")
	s.restart()
	p.shows("Your token")
	assert.True(t, eval[bool](p, "window.marker === 1"), "the page was not loaded again")
}

// TestRevocationWithoutStream checks that a page logs out when its token, which may not read events, is revoked.
func TestRevocationWithoutStream(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id, secret := s.createToken("hooks", "", "webhooks:write")
	p := open(t, s, "status of 401")
	p.logIn(secret, "/ui/webhooks")
	p.shows("Webhooks")
	require.Equal(t, http.StatusNoContent, s.call(s.token, http.MethodDelete, "/api/v1/tokens/"+id, nil, nil))
	p.until(loginForm)
	p.shows("was revoked or has expired")
}

// TestPaletteCostsNothing checks that the palette finds tools and MCP servers without tool calls, which cost tokens.
func TestPaletteCostsNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "Failed to load resource|net::")
	p.logIn(s.token, "/ui/")
	eval[chromedp.Void](p, `document.querySelector(".bar .search").click()`)
	p.until(`document.querySelector("dialog[data-palette] input") === document.activeElement`)
	p.press("submit")
	p.until(`[...document.querySelectorAll("[role=option]")].some((o) => o.innerText.includes("comet:submit_task"))`)
	var calls struct{ Calls []object }
	s.do(http.MethodGet, "/api/v1/tools/calls", nil, &calls)
	assert.Empty(t, calls.Calls)

	p.visit("/ui/tools?tab=search")
	p.enter("query", "submit a task")
	s.do(http.MethodGet, "/api/v1/tools/calls", nil, &calls)
	assert.Empty(t, calls.Calls, "nothing is searched before the button is used")
	p.click("Search")
	p.shows("comet:submit_task")
	p.until(`document.body.dataset.live === "on"`)
	s.kill()
	p.until(`document.body.dataset.live === "off"`)
	s.restart()
	p.until(`document.body.dataset.live === "on"`)
	eval[chromedp.Void](p, `new Promise((resolve) => setTimeout(resolve, 1500))`) // longer than views wait before they read again
	searches := eval[int](p, `performance.getEntriesByType("resource").filter((r) => r.name.endsWith("/api/v1/tools/search")).length`)
	assert.Equal(t, 1, searches, "an outage repeats no search")
}

// TestEventsBefore searches the event log by kind, back to its start.
func TestEventsBefore(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, id := range []string{"one", "two"} {
		s.createToken(id, "", "agents:read")
	}
	for round := range 3 {
		s.rename(2000, round)
	}
	p := open(t, s, "")
	p.logIn(s.token, "/ui/events?kind=token")
	p.shows("token.created")
	p.visit("/ui/events?q=token.created")
	p.shows("No newer event matches these filters")
	eval[chromedp.Void](p, `document.querySelector(".more button").click()`)
	p.until(`document.querySelectorAll(".log .entry").length >= 2`)
	p.visit("/ui/events?at=99999999")
	p.shows("Events, live")
}
