package browser

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
)

// faultyPage violates its policy, throws, reports an error and loads from another host. It has an image without alternative text,
// small buttons without names under an animated element, and a heading that skips a level; nothing announces changes.
const faultyPage = `<!doctype html><html lang="en"><title>Faults</title><style>@keyframes fade { to { opacity: .5 } } button { padding: 0; width: 9px; height: 9px }</style>
<main><h1>Faults</h1><img src="/x.png"><h3>Too deep</h3><button></button><button></button>
<div style="position: fixed; inset: 0; animation: fade 1s infinite"></div></main>
<script nonce="n">
	document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = 1"}));
	console.error("reported");
	fetch("http://127.0.0.2:9/elsewhere").catch(() => {});
	setTimeout(() => { throw new Error("thrown"); });
	window.done = 1;
</script>`

// TestFaultsAreFound checks that the harness sees each kind of fault of a page.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", "script-src 'nonce-n'; connect-src *")
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(faultyPage))
	}))
	t.Cleanup(web.Close)
	p := open(t, &server{t: t, url: web.URL}, "")
	p.do(chromedp.Navigate(web.URL))
	p.until("window.done")
	for _, fault := range []string{"Content Security Policy", "exception: ", "thrown", "console: ", "reported", "another host: http://127.0.0.2:9/elsewhere", "status of 404"} {
		eventually(t, fault, func() bool { return strings.Contains(strings.Join(p.seen(), "\n"), fault) })
	}
	assert.False(t, eval[bool](p, `"ran" in window`), "the policy holds")
	findings := strings.Join(p.findings(), "\n")
	for _, fault := range []string{"image-alt: ", "target-size: "} {
		assert.Contains(t, findings, fault)
	}
	structure := strings.Join(p.structure(), "\n")
	for _, fault := range []string{"a button has no name: <button>", `the heading "Too deep" of level 3 follows one of level 1`, "no element that announces changes"} {
		assert.Contains(t, structure, fault)
	}
	assert.Len(t, eval[[]string](p, unreachable), 2)
	assert.Contains(t, strings.Join(eval[[]string](p, movement), "\n"), "fade of <div")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.expected = nil, regexp.MustCompile("") // they were expected
}
