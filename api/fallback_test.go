package api

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestMethodNotAllowed(t *testing.T) {
	t.Parallel()
	nothing := func(http.ResponseWriter, *http.Request) {}
	d := newTestServer(t, testServerOptions{routes: func(_ *responder, r chi.Router) {
		r.Post("/sub/things", nothing)
		r.Route("/api", func(r chi.Router) {
			r.Get("/", nothing)
			r.Route("/v1", func(r chi.Router) {
				r.Put("/deep/{id}", nothing)
				r.With(securityHeaders).Get("/deep/{id}/{more}", nothing)
			})
			r.Group(func(r chi.Router) { r.Delete("/grouped", nothing) })
		})
		r.Get("/files/*", nothing)
	}})
	for name, c := range map[string]struct{ method, path, allow string }{
		"a collection":                 {"DELETE", "/things", "GET, HEAD, POST"},
		"a member":                     {"POST", "/things/a", "DELETE, GET, HEAD, PATCH"},
		"PUT":                          {"PUT", "/things/a", "DELETE, GET, HEAD, PATCH"},
		"OPTIONS":                      {"OPTIONS", "/things/a", "DELETE, GET, HEAD, PATCH"},
		"HEAD where there is no GET":   {"HEAD", "/sub/things", "POST"},
		"an unknown method":            {"FROB", "/things/a", "DELETE, GET, HEAD, PATCH"},
		"a route of one method":        {"GET", "/sub/things", "POST"},
		"a mounted router":             {"POST", "/api/v1/deep/x", "PUT"},
		"a mounted router's own root":  {"POST", "/api", "GET, HEAD"},
		"a route with middlewares":     {"POST", "/api/v1/deep/x/y", "GET, HEAD"},
		"a group":                      {"GET", "/api/grouped", "DELETE"},
		"a wildcard":                   {"POST", "/files/a/b", "GET, HEAD"},
		"an escaped slash in a member": {"POST", "/things/a%2Fb", "DELETE, GET, HEAD, PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := d.do(c.method, c.path, "")
			require.Equal(t, 405, a.StatusCode)
			require.Equal(t, c.allow, a.Header.Get("Allow"))
			if c.method != "HEAD" {
				require.Contains(t, a.problem(t, 405, errs.MethodNotAllowed).Detail, "use "+c.allow)
			}
		})
	}
	t.Run("a trailing slash", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "there is no resource at /things/; did you mean /things?", d.do("GET", "/things/", "").problem(t, 404, errs.NotFound).Detail)
		require.Equal(t, "there is no resource at /nowhere/", d.do("GET", "/nowhere/", "").problem(t, 404, errs.NotFound).Detail)
	})
	t.Run("an unknown path is 404 for every method", func(t *testing.T) {
		t.Parallel()
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "FROB"} {
			for _, path := range []string{"/nowhere", "/api/v1/nowhere", "/things/a/b", "/things/", "//things", "/THINGS"} {
				a := d.do(method, path, "")
				a.problem(t, 404, errs.NotFound)
				require.Empty(t, a.Header.Get("Allow"))
			}
		}
	})
}
