package api

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	swaggerFiles "github.com/swaggo/files/v2"

	"comet/internal/errs"
	"comet/openapi"
)

// readyWithin is the time limit of the checks of /readyz.
const readyWithin = 3 * time.Second

// healthStatus is the state of the server.
type healthStatus struct {
	Status string            `json:"status" example:"ready" enums:"alive,ready"` // `ok`.
	Checks map[string]string `json:"checks,omitempty"`                           // Result of each check by name: `ok` or the error.
}

// health reports that the process is alive.
//
//	@Summary		Check that the process is alive
//	@Description	Returns 200 as long as the process can serve requests; it checks nothing else. Restart a process that does not respond.
//	@ID				getHealth
//	@Success		200	{object}	healthStatus	"Alive"
//	@Header			200	{string}	ETag
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, r, healthStatus{Status: "alive"})
}

// ready reports whether the server accepts requests.
//
//	@Summary		Check that the server is ready
//	@Description	Checks the database, its migrations and the event relay. A server that is shutting down is not ready.
//	@ID				getReadiness
//	@Success		200	{object}	healthStatus	"Ready"
//	@Header			200	{string}	ETag
//	@Failure		503	{object}	Problem			"Not ready; `checks` contains the failed checks"
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	checks, failed := map[string]string{}, ""
	for name, check := range s.opts.Checks {
		checks[name] = "ok"
		if err := check(ctx); err != nil {
			checks[name], failed = errs.From(err).Detail, name
			s.log.WarnContext(r.Context(), "not ready", "check", name, "error", err)
		}
	}
	if failed != "" {
		w.Header().Set("Connection", "close") // the client's next request opens a connection to another server
		return errs.New(errs.Unavailable, "the server is not ready").With("checks", checks)
	}
	return s.writeJSON(w, r, healthStatus{"ready", checks})
}

// metrics serves the Prometheus metrics.
//
//	@Summary		Read the metrics
//	@Description	Metrics in the Prometheus text format.
//	@ID				getMetrics
//	@Produce		plain
//	@Success		200	{string}	string	"The metrics"
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) { s.opts.Metrics.ServeHTTP(w, r) }

// docsPage contains the files of the page besides those of Swagger UI.
//
//go:embed docs
var docsPage embed.FS

// docsPolicy restricts the page to resources of this server. Swagger UI draws its icons from data
// URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsRoutes adds the API description and the page that renders it. Both are public. The page loads
// nothing from other servers.
func docsRoutes(r chi.Router) {
	r.Get("/openapi.json", describeJSON())
	r.Get("/openapi.yaml", describeYAML())
	r.Get("/docs", readDocs())

	own, err := fs.Sub(docsPage, "docs")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	for _, asset := range []struct {
		files       fs.FS
		name        string
		contentType string
	}{
		{own, "init.js", "text/javascript; charset=utf-8"},
		{swaggerFiles.FS, "swagger-ui-bundle.js", "text/javascript; charset=utf-8"},
		{swaggerFiles.FS, "swagger-ui.css", "text/css; charset=utf-8"},
		{swaggerFiles.FS, "favicon-32x32.png", "image/png"},
	} {
		r.Get("/docs/"+asset.name, newStaticDocument(asset.contentType, mustReadFile(asset.files, asset.name)).ServeHTTP)
	}
}

func mustReadFile(files fs.FS, name string) []byte {
	body, err := fs.ReadFile(files, name)
	if err != nil {
		panic(err) // embedded; every test of the routes finds a wrong name
	}
	return body
}

// describeJSON serves the API description as JSON.
//
//	@Summary		Read the API description as JSON
//	@Description	The OpenAPI 3.0.3 description of this API.
//	@ID				getOpenAPIJSON
//	@Param			If-None-Match	header		string			false	"Entity tag of your copy; the response is 304 if it is current"
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Not modified; your copy is current"
func describeJSON() http.HandlerFunc {
	return newStaticDocument(contentTypeJSON, openapi.JSON()).ServeHTTP
}

// describeYAML serves the API description as YAML.
//
//	@Summary		Read the API description as YAML
//	@Description	The content of `/openapi.json` as YAML.
//	@ID				getOpenAPIYAML
//	@Produce		application/yaml
//	@Param			If-None-Match	header		string			false	"Entity tag of your copy; the response is 304 if it is current"
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Not modified; your copy is current"
func describeYAML() http.HandlerFunc {
	return newStaticDocument("application/yaml", openapi.YAML()).ServeHTTP
}

// readDocs serves the page that renders the description.
//
//	@Summary		Read the API description in a browser
//	@Description	A page that renders `/openapi.json` and can send requests to this server. It loads nothing from other servers.
//	@ID				getDocs
//	@Produce		html
//	@Param			If-None-Match	header		string	false	"Entity tag of your copy; the response is 304 if it is current"
//	@Success		200				{string}	string	"The page"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Not modified; your copy is current"
func readDocs() http.HandlerFunc {
	page := newStaticDocument("text/html; charset=utf-8", mustReadFile(docsPage, "docs/index.html"))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", docsPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		page.ServeHTTP(w, r)
	}
}

// staticDocument is a response that does not change while the program runs.
type staticDocument struct {
	contentType, tag string
	body             []byte
}

func newStaticDocument(contentType string, body []byte) staticDocument {
	return staticDocument{contentType, entityTag(0, body), body}
}

// ServeHTTP sends the document. Caches may store it and must revalidate it, because another release
// has another one.
func (d staticDocument) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "public, no-cache")
	if lines := r.Header["If-None-Match"]; lines != nil {
		if known, ok := matchingTag(lines, d.tag); ok {
			h.Set("ETag", known)
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("ETag", d.tag)
	h.Set("Content-Type", d.contentType)
	h.Set("Content-Length", strconv.Itoa(len(d.body)))
	_, _ = w.Write(d.body) // a disconnected client is not an error
}
