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

// readyWithin bounds the checks of /readyz.
const readyWithin = 3 * time.Second

// healthStatus says how the server is.
type healthStatus struct {
	Status string            `json:"status" example:"ready" enums:"alive,ready"`
	Checks map[string]string `json:"checks,omitempty"` // What was checked, by name.
}

// health says that the process is alive.
//
//	@Summary		Is the process alive
//	@Description	Answers without asking anything else. A process that does not answer should be restarted.
//	@ID				getHealth
//	@Tags			service
//	@Produce		json
//	@Security
//	@Success		200	{object}	healthStatus	"Alive"
//	@Header			200	{string}	ETag
//	@Router			/healthz [get]
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, r, http.StatusOK, healthStatus{Status: "alive"})
}

// ready says whether requests should be sent here.
//
//	@Summary		Is the server ready
//	@Description	Checks the database, its migrations and the event relay. A server that is shutting down is not ready.
//	@ID				getReadiness
//	@Tags			service
//	@Produce		json
//	@Security
//	@Success		200	{object}	healthStatus	"Ready"
//	@Header			200	{string}	ETag
//	@Failure		503	{object}	Problem			"Not ready; `checks` says what is missing"
//	@Router			/readyz [get]
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
		w.Header().Set("Connection", "close") // to ask another server the next time
		return errs.New(errs.Unavailable, "the server is not ready").With("checks", checks)
	}
	return s.writeJSON(w, r, http.StatusOK, healthStatus{"ready", checks})
}

// metrics serves the Prometheus metrics.
//
//	@Summary		Metrics
//	@Description	Prometheus text format.
//	@ID				getMetrics
//	@Tags			service
//	@Produce		plain
//	@Security
//	@Success		200	{string}	string	"The metrics"
//	@Router			/metrics [get]
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) { s.opts.Metrics.ServeHTTP(w, r) }

// docsPage holds what the page has beside Swagger UI's own files.
//
//go:embed docs
var docsPage embed.FS

// docsPolicy keeps the page to this server. Swagger UI draws its icons from data
// URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsRoutes adds the API description and the page that renders it; neither needs
// a token. The page loads nothing from anywhere else.
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
		panic(err) // embedded; any test of the routes finds a wrong name
	}
	return body
}

// describeJSON serves the API description as JSON.
//
//	@Summary		Read the API description as JSON
//	@Description	The OpenAPI 3.0.3 description of this server.
//	@ID				getOpenAPIJSON
//	@Tags			service
//	@Produce		json
//	@Security
//	@Param			If-None-Match	header		string			false	"The ETag of the copy you have"
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Your copy is current"
//	@Router			/openapi.json [get]
func describeJSON() http.HandlerFunc {
	return newStaticDocument(contentTypeJSON, openapi.JSON()).ServeHTTP
}

// describeYAML serves the API description as YAML.
//
//	@Summary		Read the API description as YAML
//	@Description	The same description as `/openapi.json`, as YAML.
//	@ID				getOpenAPIYAML
//	@Tags			service
//	@Produce		application/yaml
//	@Security
//	@Param			If-None-Match	header		string			false	"The ETag of the copy you have"
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Your copy is current"
//	@Router			/openapi.yaml [get]
func describeYAML() http.HandlerFunc {
	return newStaticDocument("application/yaml", openapi.YAML()).ServeHTTP
}

// readDocs serves the page that renders the description.
//
//	@Summary		Read the API description in a browser
//	@Description	A page that renders `/openapi.json` and can send requests to this server. It loads nothing from anywhere else.
//	@ID				getDocs
//	@Tags			service
//	@Produce		html
//	@Security
//	@Param			If-None-Match	header		string	false	"The ETag of the copy you have"
//	@Success		200				{string}	string	"The page"
//	@Header			200				{string}	ETag
//	@Header			200				{string}	Cache-Control
//	@Success		304				"Your copy is current"
//	@Router			/docs [get]
func readDocs() http.HandlerFunc {
	page := newStaticDocument("text/html; charset=utf-8", mustReadFile(docsPage, "docs/index.html"))
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", docsPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		page.ServeHTTP(w, r)
	}
}

// staticDocument is an answer that never changes while the program runs.
type staticDocument struct {
	contentType, tag string
	body             []byte
}

func newStaticDocument(contentType string, body []byte) staticDocument {
	return staticDocument{contentType, entityTag(0, body), body}
}

// ServeHTTP sends the document. Anyone may keep it, and asks whether it is still
// current before using it: the next release brings another one.
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
	_, _ = w.Write(d.body) // a client that is gone by now is nobody's error
}
