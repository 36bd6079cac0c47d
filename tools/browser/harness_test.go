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

// faultyPage violates its policy, throws, reports an error, loads from another host, and has an image without a text.
const faultyPage = `<!doctype html><html lang="en"><title>Faults</title><main><h1>Faults</h1><img src="/x.png"></main>
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
	assert.Contains(t, strings.Join(p.findings(), "\n"), "image-alt: ")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.expected = nil, regexp.MustCompile("") // they were expected
}
