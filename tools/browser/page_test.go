// Package browser tests the dashboard in Chromium, against real servers, workers and MCP servers. Its entry is run.
package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chromium starts the browser that all tests share.
var chromium = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1440, 900))
	if shell, err := exec.LookPath("chromium-headless-shell"); err == nil { // it uses half of the processor time
		options = append(options, chromedp.ExecPath(shell))
	}
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	return ctx, chromedp.Do(ctx)
})

// TestMain ends the browser.
func TestMain(m *testing.M) {
	m.Run()
	if ctx, err := chromium(); err == nil {
		_ = chromedp.Cancel(ctx)
	}
}

// tab is a tab of the browser without cookies of other tabs. A test with a tab fails if the page violates its policy, throws,
// reports an error, or loads anything from another host.
type tab struct {
	t      testing.TB
	s      *server
	ctx    context.Context
	mu     sync.Mutex
	faults []string
	// expected are reports of errors that the test causes.
	expected *regexp.Regexp
}

// open opens a tab for a server. expected matches the errors that the test causes; "" for none.
func open(t testing.TB, s *server, expected string) *tab {
	t.Helper()
	parent, err := chromium()
	require.NoError(t, err)
	return newTab(parent, t, s, expected, chromedp.WithNewBrowserContext())
}

// another opens another tab with the same cookies.
func (p *tab) another() *tab { return newTab(p.ctx, p.t, p.s, p.expected.String()) }

func newTab(parent context.Context, t testing.TB, s *server, expected string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, _ := chromedp.NewContext(parent, options...)
	p := &tab{t: t, s: s, ctx: ctx, expected: regexp.MustCompile(cmp.Or(expected, "^$"))}
	require.NoError(t, chromedp.Listen(ctx, p.listen))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	p.do(chromedp.EmulateViewport(1440, 900))
	t.Cleanup(func() {
		if t.Failed() {
			p.screenshot("failed-"+strings.ReplaceAll(t.Name(), "/", "-"), "light", 1440)
		}
		_ = chromedp.Cancel(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.faults, "what the page did wrong")
	})
	return p
}

// listen collects what the page does wrong.
func (p *tab) listen(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = "exception: " + fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			fault = fmt.Sprintf("console: %s", e.Args[0].Value)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			fault = "log: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" && p.s.url != u.Scheme+"://"+u.Host {
			fault = "request to another host: " + e.Request.URL
		}
	}
	if fault == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.expected.MatchString(fault) {
		p.faults = append(p.faults, fault)
	}
}

// seen returns the faults so far.
func (p *tab) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.faults...)
}

// expect sets what matches the errors that the test causes from now on.
func (p *tab) expect(expected *regexp.Regexp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = expected
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, steps...))
}

// eval evaluates an expression in the page.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, expression)
	return out
}

// quote returns a text as an expression.
func quote(text string) string {
	b, _ := json.Marshal(text) // a string cannot fail
	return string(b)
}

// until waits until an expression is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	for end, wait := time.Now().Add(patience), pause; ; wait = next(wait) {
		if ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && ok {
			return
		}
		if time.Now().After(end) {
			require.Fail(p.t, "waited too long", "%s\nthe page shows: %s", expression, eval[string](p, "document.body.innerText.slice(0, 2000)"))
		}
		<-time.After(wait)
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) {
	p.t.Helper()
	p.until("document.body.innerText.includes(" + quote(text) + ")")
}

// logIn logs in with a token and opens a view.
func (p *tab) logIn(token, path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.s.url + "/healthz"))
	status := eval[int](p, `fetch("/ui/session", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({token: `+quote(token)+`})}).then((r) => r.status)`)
	require.Equal(p.t, http.StatusNoContent, status)
	p.visit(path)
}

// visit opens a view and waits until it shows its data.
func (p *tab) visit(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.s.url + path))
	p.ready()
}

func (p *tab) ready() {
	p.t.Helper()
	p.until(`document.querySelector('main[data-ready="true"]') && !document.querySelector(".skeleton")`)
}

// find is an expression of the visible element with a role of its own that has a name: a link, a button, a field or an option.
func find(name string) string {
	return `[...document.querySelectorAll("a, button, input, select, textarea, summary, [role=option], [role=row]")].filter((e) => e.checkVisibility()).findLast((e) => ` +
		`[e.getAttribute("aria-label"), e.innerText?.trim(), e.labels?.[0]?.innerText.trim(), e.placeholder, e.name].includes(` + quote(name) + `))`
}

// click clicks the element with a name.
func (p *tab) click(name string) {
	p.t.Helper()
	p.until(find(name) + " && !" + find(name) + ".disabled")
	eval[chromedp.Void](p, find(name)+".click()")
}

// confirm uses a button of the open dialog.
func (p *tab) confirm(button string) {
	p.t.Helper()
	wanted := `[...document.querySelectorAll("dialog[open] footer button")].find((b) => b.innerText.trim() === ` + quote(button) + ` && !b.disabled)`
	p.until(wanted)
	eval[chromedp.Void](p, wanted+".click()")
}

// enter replaces the text of a field.
func (p *tab) enter(name, text string) {
	p.t.Helper()
	p.until(find(name))
	eval[chromedp.Void](p, "(("+find(name)+`).focus(), (`+find(name)+`).select?.())`)
	p.do(chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(text))
}

// press presses keys.
func (p *tab) press(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys, options...))
}

// show sets the theme and the width of the page.
func (p *tab) show(theme string, width int64) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
	require.NoError(p.t, err)
	p.do(chromedp.EmulateViewport(width, 900))
	p.until(`document.documentElement.dataset.theme === ` + quote(theme) + ` && innerWidth === ` + fmt.Sprint(width))
}

// screenshot stores a picture of the page.
func (p *tab) screenshot(name, theme string, width int) {
	picture, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{OptimizeForSpeed: new(true)})
	if err == nil {
		err = os.WriteFile(filepath.Join(os.Getenv("SCREENSHOTS"), fmt.Sprintf("%s-%s-%d.png", name, theme, width)), picture.Data, 0o600)
	}
	if err != nil {
		p.t.Logf("no screenshot of %s: %v", name, err)
	}
}

// axeSource is the accessibility checker.
var axeSource = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(os.Getenv("AXE")) })

// accessible fails the test if axe-core has a serious or critical finding, by default of any rule.
func (p *tab) accessible(where string, rules ...string) {
	p.t.Helper()
	assert.Empty(p.t, strings.Join(p.findings(rules...), "\n"), "accessibility of %s", where)
}

// findings returns the serious and critical findings of axe-core, which is injected past the policy of the page. Controls must be
// 24 pixels high and wide, or have that space around them (WCAG 2.5.8).
func (p *tab) findings(rules ...string) []string {
	p.t.Helper()
	if !eval[bool](p, `"axe" in window`) {
		source, err := axeSource()
		require.NoError(p.t, err)
		p.do(chromedp.Evaluate[chromedp.Void](string(source)))
	}
	selection := `rules: {"target-size": {enabled: true}}`
	if len(rules) > 0 {
		selection = "runOnly: " + quote(strings.Join(rules, " ")) + `.split(" ")`
	}
	return eval[[]string](p, `axe.run(document, {resultTypes: ["violations"], preload: false, iframes: false, selectors: false, `+selection+`}).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.flatMap((v) => v.nodes.slice(0, 5).map((n) => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`)
}
