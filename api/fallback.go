package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/words"
)

// notFound answers for an address that no route has.
func (p *responder) notFound(w http.ResponseWriter, r *http.Request) {
	p.fail(w, r, errs.New(errs.NotFound, "there is nothing at %s", clipPath(r.URL.EscapedPath())))
}

// methodNotAllowed answers for a route that exists for other methods; Allow lists
// them. HEAD is allowed wherever GET is (middleware.GetHead serves it).
func (p *responder) methodNotAllowed(routes chi.Routes) http.HandlerFunc {
	// Mounted routers hide from the outer one which methods they take, so the
	// question is put to a flat copy. It is made when first needed: routes are
	// still being added when the router takes this handler.
	flat := sync.OnceValue(func() *chi.Mux { return flatten(routes) })
	return func(w http.ResponseWriter, r *http.Request) {
		allowed := allowedMethods(flat(), r.URL)
		if len(allowed) == 0 { // a method the router does not know, on no route
			p.notFound(w, r)
			return
		}
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		p.fail(w, r, errs.New(errs.MethodNotAllowed, "%s is not allowed here, only %s", words.Clip(r.Method), list))
	}
}

// flatten copies every route into one router without middlewares.
func flatten(routes chi.Routes) *chi.Mux {
	flat, nothing := chi.NewRouter(), http.NotFoundHandler()
	_ = chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		flat.Method(method, route, nothing)
		if short := strings.TrimSuffix(route, "/"); short != route && short != "" {
			flat.Method(method, short, nothing)
		}
		return nil
	})
	return flat
}

// allowedMethods returns the methods the address takes, sorted.
func allowedMethods(routes chi.Routes, address *url.URL) []string {
	path := address.Path
	if address.RawPath != "" {
		path = address.RawPath
	}
	var allowed []string
	for _, method := range []string{
		http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut,
	} {
		if routes.Match(chi.NewRouteContext(), method, path) ||
			method == http.MethodHead && slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, method)
		}
	}
	return allowed
}
