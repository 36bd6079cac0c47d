package api_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/errs"
	"comet/store/storetest"
)

func TestPages(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{})
	get := func(path string, header ...string) response { return h.do(t, http.MethodGet, path, "", header...) }

	home := get("/", "Authorization", "")
	require.Equal(t, http.StatusOK, home.status)
	require.Equal(t, "text/html; charset=utf-8", home.header.Get("Content-Type"))
	require.Contains(t, home.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, string(home.body), `<strong class="ready">ready</strong>`)
	require.Contains(t, string(home.body), `href="/docs"`)
	require.NotContains(t, string(get("/", "Host", `x"><script>`).body), "<script>")

	require.Equal(t, http.StatusMovedPermanently, get("/docs/").status)
	require.Equal(t, "image/png", get("/favicon.ico").header.Get("Content-Type"))
	require.Equal(t, "text/css; charset=utf-8", get("/docs/page.css").header.Get("Content-Type"))

	page := get("/problems/parent-not-found", "Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
	require.Contains(t, string(page.body), "<h1>Parent not found</h1>")
	require.Equal(t, "Accept", page.header.Get("Vary"))
	require.Equal(t, "application/json", get("/problems/parent-not-found").header.Get("Content-Type"))
	require.Equal(t, http.StatusNotFound, get("/problems/none", "Accept", "text/html").status)
}

func TestHomeOfAServerThatIsNotReady(t *testing.T) {
	t.Parallel()
	h := setup(t, storetest.Open(t, "sqlite"), fixtureOptions{checks: map[string]func(context.Context) error{
		"database": func(context.Context) error { return errs.New(errs.Unavailable, "secret detail") },
	}})
	home := h.do(t, http.MethodGet, "/", "")
	require.Equal(t, http.StatusOK, home.status)
	require.Contains(t, string(home.body), "unavailable")
	require.NotContains(t, string(home.body), "secret detail")
	_ = api.Options{}
}
