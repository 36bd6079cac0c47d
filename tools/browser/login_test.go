package browser

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// expectStatus matches the report of a response with a status.
func expectStatus(status int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf("status of %d", status))
}

const loginForm = `document.querySelector("input[name=token]")`

// TestLogin logs in with the link of the first start, with a wrong token and a right one, and logs out.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	linked := open(t, s, "status of 401") // the page asks first who is logged in
	linked.do(chromedp.Navigate(s.link))
	linked.ready()
	linked.shows("bootstrap-admin")
	assert.NotContains(t, eval[string](linked, "location.href"), "login=", "the code does not stay in the address")

	again := open(t, s, "status of 401")
	again.do(chromedp.Navigate(s.link))
	again.until(loginForm)
	again.shows("is unknown, used or older than a minute; get another one with: comet dashboard")
	again.enter("token", "wrong")
	again.click("Log in")
	again.until(`document.querySelector("[role=alert]")`)
	again.accessible("login")
	again.screenshot("login", "light", 1440)
	again.enter("token", s.token)
	again.click("Log in")
	again.shows("bootstrap-admin")
	cookies := eval[string](again, "document.cookie")
	assert.Empty(t, cookies, "scripts cannot read the cookie")
	again.click("Log out")
	again.until(loginForm)
	again.do(chromedp.Navigate(s.url + "/ui/agents"))
	again.until(loginForm)
}

// TestRevocation checks that the revocation of its token ends a page.
func TestRevocation(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	id, secret := s.createToken("temporary", "", "agents:read")
	p := open(t, s, "status of 401")
	p.logIn(secret, "/ui/agents")
	p.until(`document.body.dataset.live === "on"`)
	began := time.Now()
	require.Equal(t, http.StatusNoContent, s.call(s.token, http.MethodDelete, "/api/v1/tokens/"+id, nil, nil))
	p.until(loginForm)
	t.Logf("the page ended %v after the revocation of its token", time.Since(began).Round(10*time.Millisecond))
	p.shows("was revoked or has expired")
}

// TestRecovery checks that a page survives kill -9 of the server without a reload, and then shows new events.
func TestRecovery(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s, "Failed to load resource|net::")
	p.logIn(s.token, "/ui/events")
	p.until(`document.body.dataset.live === "on"`)
	eval[chromedp.Void](p, "window.marker = 1")
	s.kill()
	p.until(`document.body.dataset.live === "off"`)
	p.shows("not connected")
	s.restart()
	p.until(`document.body.dataset.live === "on"`)
	s.createAgent("born-after-the-restart")
	p.shows("born-after-the-restart")
	assert.True(t, eval[bool](p, "window.marker === 1"), "the page was not loaded again")
}

// TestStreams checks that the page without an event stream says so, and connects when one is free.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	var first io.Closer
	for range 100 { // the limit of one token
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/events", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+s.token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		defer func() { _ = response.Body.Close() }()
		first = cmp.Or[io.Closer](first, response.Body)
	}
	p := open(t, s, "status of 503")
	p.logIn(s.token, "/ui/agents")
	p.until(`document.body.dataset.live === "off"`)
	p.shows("limit of 100 open streams")
	p.shows("orch-my-team")
	require.NoError(t, first.Close())
	p.until(`document.body.dataset.live === "on"`)
}
