package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
)

const (
	dialogs      = `document.querySelectorAll("dialog[open]").length`
	focusInside  = `[...document.querySelectorAll("dialog[open]")].at(-1)?.contains(document.activeElement)`
	focusOutside = `document.activeElement !== document.body && !(` + focusInside + `)`
)

// openWithKeys opens a dialog with the keyboard. opener is a JavaScript expression for the control that opens it.
func (p *tab) openWithKeys(opener string) {
	p.t.Helper()
	p.until(opener)
	eval[chromedp.Void](p, "(window.opener2 = "+opener+").focus()")
	p.press(kb.Enter)
	p.until(dialogs + " === 1 && " + focusInside)
}

// TestDialogs checks the focus of dialogs: it moves into the dialog, Tab keeps it there, and Escape closes the dialog and returns
// the focus to the control that opened it.
func TestDialogs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.createAgent("greeter")
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents/greeter")
	for _, dialog := range []struct{ name, opener string }{
		{"form", find("Edit")},
		{"as curl", find("as curl")},
		{"palette", `document.querySelector(".bar .search")`},
		{"confirmation", find("Deactivate")},
	} {
		p.openWithKeys(dialog.opener)
		p.accessible("dialog " + dialog.name)
		controls := eval[int](p, `document.querySelectorAll("dialog a, dialog button, dialog input, dialog select, dialog textarea, dialog [tabindex='0']").length`)
		for range controls + 2 {
			p.press(kb.Tab)
			assert.False(t, eval[bool](p, focusOutside), "Tab leaves the dialog %s", dialog.name)
		}
		p.press(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift))
		p.press(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift))
		assert.False(t, eval[bool](p, focusOutside), "Shift+Tab leaves the dialog %s", dialog.name)
		p.press(kb.Escape)
		p.until(dialogs + " === 0")
		p.until("document.activeElement === window.opener2")
	}
}

// TestClosedForm closes a form while its request runs. The page still shows why the request failed, and does not go to what it
// created.
func TestClosedForm(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "status of 400")
	p.logIn(s.token, "/ui/agents")
	eval[chromedp.Void](p, `window.fetch = ((send) => async (path, options) => { // the response of a creation waits
		const response = await send(path, options);
		if (options?.method === "POST") await new Promise((resolve) => (window.respond = resolve));
		return response;
	})(window.fetch)`)
	for _, c := range []struct{ id, shown string }{{"Not valid", "in parts separated by single hyphens"}, {"valid", "Agent created."}} {
		p.click("New agent")
		p.enter("id", c.id)
		p.enter("name", "Closed")
		p.enter("parent_id", "orch-my-team")
		p.enter("sphere_id", "8")
		p.click("Create agent")
		p.until("window.respond")
		p.press(kb.Escape)
		p.click("Discard")
		p.until(`!document.querySelector("dialog")`)
		eval[chromedp.Void](p, "(window.respond(), delete window.respond)")
		p.shows(c.shown)
		assert.Equal(t, "/ui/agents", eval[string](p, "location.pathname"))
	}
}

// TestUnsavedInput checks that Escape, the button of a form and a click outside it ask for confirmation before input is lost.
func TestUnsavedInput(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "")
	p.logIn(s.token, "/ui/agents")
	p.openWithKeys(find("New agent"))
	p.enter("name", "Not saved yet")
	for _, leave := range []func(){
		func() { p.press(kb.Escape) },
		func() { p.click("Close") },
		func() {
			p.do(chromedp.MouseClickXY(5, 5))
		},
	} {
		for range 2 { // a page cannot prevent the second Escape
			leave()
			p.until(dialogs + " === 2 && " + focusInside)
			p.shows("Discard your changes?")
			p.press(kb.Escape)
			p.until(dialogs + " === 1 && " + focusInside)
			assert.Equal(t, "Not saved yet", eval[string](p, find("name")+".value"))
		}
	}
	p.press(kb.Escape)
	p.accessible("question about unsaved input")
	p.screenshot("form-unsaved", "light", 1440)
	p.click("Keep editing")
	p.until(dialogs + " === 1")
	p.press(kb.Escape)
	p.click("Discard")
	p.until(dialogs + " === 0")
	p.until("document.activeElement === window.opener2")
}
