package api

import (
	"bytes"
	"context"
	"embed"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/stats"
	"comet/internal/template"
	"comet/internal/upstream"
	"comet/models"
	"comet/openapi"
)

// readyWithin is the time limit of the checks of /readyz.
const readyWithin = 3 * time.Second

// healthStatus is the state of the server.
type healthStatus struct {
	Status string            `json:"status" example:"ready" enums:"alive,ready,unavailable"` // `ok`.
	Checks map[string]string `json:"checks,omitempty"`                                       // Result of each check by name: `ok` or the error.
}

// getHealth reports that the process is alive.
//
//	@Summary		Check that the process is alive
//	@Description	Returns 200 as long as the process can serve requests; it checks nothing else. Restart a process that does not respond.
//	@Success		200	{object}	healthStatus	"Alive"
//	@Header			200	{string}	ETag
func (s *Server) getHealth(w http.ResponseWriter, r *http.Request) error {
	return s.writeJSON(w, r, healthStatus{Status: "alive"})
}

// getReadiness reports whether the server accepts requests.
//
//	@Summary		Check that the server is ready
//	@Description	Checks the database, its migrations and the event relay. A server that is shutting down is not ready.
//	@Success		200	{object}	healthStatus	"Ready"
//	@Header			200	{string}	ETag
//	@Failure		503	{object}	Problem			"Not ready; `checks` contains the failed checks"
func (s *Server) getReadiness(w http.ResponseWriter, r *http.Request) error {
	health := s.readiness(r)
	if health.Status != "ready" {
		w.Header().Set("Connection", "close") // the client's next request opens a connection to another server
		return errs.New(errs.Unavailable, "the server is not ready").With("checks", health.Checks)
	}
	return s.writeJSON(w, r, health)
}

// readiness returns the state of the server and the result of each check.
func (s *Server) readiness(r *http.Request) healthStatus {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	health := healthStatus{"ready", map[string]string{}}
	for name, check := range s.opts.Checks {
		health.Checks[name] = "ok"
		if err := check(ctx); err != nil {
			health.Checks[name], health.Status = errs.From(err).Detail, "unavailable"
			s.log.WarnContext(r.Context(), "not ready", "check", name, "error", err)
		}
	}
	return health
}

// serverStatus is the state of the server, for its start page.
type serverStatus struct {
	healthStatus
	Version  string `json:"version" example:"v1.4.0"`                          // Version of the server.
	Database string `json:"database" enums:"sqlite,postgres" example:"sqlite"` // The kind of database.
	Metrics  bool   `json:"-"`
	URL      string `json:"-"`
}

// getHome serves the start page.
//
//	@Summary		Read the start page
//	@Description	Returns the state of the server: a page with links and the first steps or, if the request accepts `application/json` and not `text/html`, a JSON object.
//	@Produce		html
//	@Produce		json
//	@Success		200	{object}	serverStatus	"The state"
func (s *Server) getHome(w http.ResponseWriter, r *http.Request) error {
	v := serverStatus{s.readiness(r), s.opts.Version, s.opts.Database, s.opts.Metrics != nil, httpkit.Origin(r)}
	w.Header().Add("Vary", "Accept")
	if accept := r.Header.Get("Accept"); !strings.Contains(accept, "text/html") && strings.Contains(accept, contentTypeJSON) {
		return s.writeJSON(w, r, v)
	}
	return writePage(w, r, "home.html", v)
}

// writePage writes a page for browsers from its template.
func writePage(w http.ResponseWriter, r *http.Request, name string, data any) error {
	var page bytes.Buffer
	err := renderPage(&page, name, data)
	if err == nil {
		staticDocument(contentTypePage, page.Bytes)(w, r)
	}
	return err
}

const contentTypePage = "text/html; charset=utf-8"

// renderPage executes a template. Its values are not escaped by themselves: templates must write {{html .Name}}.
func renderPage(page *bytes.Buffer, name string, data any) error {
	text, err := template.Execute(string(docsFile(name)), data, nil)
	page.WriteString(text)
	return err
}

// getMetrics serves the Prometheus metrics.
//
//	@Summary		Read the metrics
//	@Description	Metrics in the Prometheus text format.
//	@Produce		plain
//	@Success		200	{string}	string	"The metrics"
func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request) { s.opts.Metrics.ServeHTTP(w, r) }

// docsPage contains the files of the page. Those of Swagger UI are compressed (see docs/NOTICE).
//
//go:embed docs
var docsPage embed.FS

// docsPolicy restricts pages to resources of this server. Swagger UI draws its icons from data
// URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsRoutes adds the API description and the page that renders it. Both are public. The page loads
// nothing from other servers.
func docsRoutes(r chi.Router) {
	r.Get("/openapi.json", getOpenAPIJSON())
	r.Get("/openapi.yaml", getOpenAPIYAML())
	r.Get("/docs", getDocs())
	r.Get("/docs/", http.RedirectHandler("/docs", http.StatusMovedPermanently).ServeHTTP)
	r.Get("/favicon.ico", staticDocument("image/x-icon", func() []byte { return docsFile("favicon.ico") }))
	for name, contentType := range map[string]string{
		"init.js": "text/javascript; charset=utf-8", "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
		"swagger-ui.css": "text/css; charset=utf-8", "page.css": "text/css; charset=utf-8",
	} {
		r.Get("/docs/"+name, staticDocument(contentType, func() []byte { return docsFile(name) }))
	}
}

// docsFile returns an embedded file of the page; those of Swagger UI are compressed.
func docsFile(name string) []byte {
	if body, err := docsPage.ReadFile("docs/" + name); err == nil {
		return body
	}
	packed, err := docsPage.ReadFile("docs/" + name + ".gz")
	if err != nil {
		panic(err) // the tests of the routes read every file
	}
	return openapi.Gunzip(packed)
}

// getOpenAPIJSON serves the API description as JSON.
//
//	@Summary		Read the API description as JSON
//	@Description	The OpenAPI 3.0.3 description of this API.
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	Cache-Control
func getOpenAPIJSON() http.HandlerFunc {
	return staticDocument(contentTypeJSON, openapi.JSON)
}

// getOpenAPIYAML serves the API description as YAML.
//
//	@Summary		Read the API description as YAML
//	@Description	The content of `/openapi.json` as YAML.
//	@Produce		application/yaml
//	@Success		200				{object}	map[string]any	"The description"
//	@Header			200				{string}	Cache-Control
func getOpenAPIYAML() http.HandlerFunc {
	return staticDocument("application/yaml", openapi.YAML)
}

// getDocs serves the page that renders the description.
//
//	@Summary		Read the API description in a browser
//	@Description	A page that renders `/openapi.json` and can send requests to this server. It loads nothing from other servers.
//	@Produce		html
//	@Success		200				{string}	string	"The page"
//	@Header			200				{string}	Cache-Control
func getDocs() http.HandlerFunc {
	return staticDocument(contentTypePage, func() []byte { return docsFile("index.html") })
}

// staticDocument serves a response that does not change while the program runs. It is read at the
// first request. Caches may store it but must revalidate it, because it may change with each release.
func staticDocument(contentType string, read func() []byte) http.HandlerFunc {
	document := sync.OnceValues(func() ([]byte, string) {
		body := read()
		return body, entityTag(0, body)
	})
	return func(w http.ResponseWriter, r *http.Request) {
		body, tag := document()
		h := w.Header()
		h.Set("Cache-Control", "public, no-cache")
		h.Set("Content-Security-Policy", docsPolicy)
		h.Set("Referrer-Policy", "no-referrer")
		if known, ok := matchingTag(r.Header["If-None-Match"], tag); ok {
			h.Set("ETag", known)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("ETag", tag)
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // a disconnected client is not an error
	}
}

// statsView is the work in a window of time. What the scopes of the token do not allow is absent.
type statsView struct {
	Window      string           `json:"window" example:"1h" enums:"1h,24h,7d"` // The length of the window.
	From        time.Time        `json:"from" example:"2026-01-12T14:31:00Z"`   // The beginning of the first step.
	To          time.Time        `json:"to" example:"2026-01-12T15:30:12Z"`     // When the figures were computed.
	StepSeconds int              `json:"step_seconds" example:"60"`             // The length of a step: a minute, or an hour for the longer windows.
	Now         map[string]int64 `json:"now"`                                   // What is in progress, by name: `tasks_queued`, `tasks_running`, `tasks_waiting_for_reply`, `workers_online`, `workers_busy`, `workers_offline`, `workflows_running`, `workflows_paused`, `upstreams_ready`, `upstreams_failed`, `agents`.
	Totals      statsCounters    `json:"totals"`                                // The whole window.
	Series      []statsStep      `json:"series"`                                // The steps in order, also those without work.
}

// statsStep is what happened in one step.
type statsStep struct {
	At time.Time `json:"at" example:"2026-01-12T14:31:00Z"` // The beginning of the step.
	statsCounters
}

// statsCounters are counts and durations of a step or a window.
type statsCounters struct {
	TasksCreated   *int64   `json:"tasks_created,omitempty" example:"120"`   // Tasks that were submitted.
	TasksCompleted *int64   `json:"tasks_completed,omitempty" example:"117"` // Tasks that succeeded.
	TasksFailed    *int64   `json:"tasks_failed,omitempty" example:"2"`      // Tasks that failed.
	TasksCancelled *int64   `json:"tasks_cancelled,omitempty" example:"1"`   // Tasks that were cancelled.
	TasksP50       *float64 `json:"tasks_p50_ms,omitempty" example:"180"`    // Median time from the submission of a task to its end, in milliseconds; absent without such tasks.
	TasksP95       *float64 `json:"tasks_p95_ms,omitempty" example:"380"`    // The 95th percentile of that time.
	ToolCalls      *int64   `json:"tool_calls,omitempty" example:"310"`      // Tool calls that ended.
	ToolFailures   *int64   `json:"tool_failures,omitempty" example:"4"`     // Tool calls that failed or were refused.
	CallsP50       *float64 `json:"calls_p50_ms,omitempty" example:"12.5"`   // Median duration of a tool call in milliseconds; absent without calls.
	CallsP95       *float64 `json:"calls_p95_ms,omitempty" example:"95"`     // The 95th percentile of that duration.
	Tokens         *int64   `json:"tokens,omitempty" example:"41200"`        // Tokens that agents used.
}

// getStats returns how much work was done in a window of time.
//
//	@Summary		Read statistics
//	@Description	Returns counts and durations of the last hour, day or week, by minute or hour, and what is in progress. The token needs one of the scopes `tasks:read` (tasks and workers), `tools:call` (tool calls, workflows and upstreams) and `agents:read` (tokens and agents); what it does not allow is absent. A token that is bound to an agent gets the figures of that agent and the agents below it; a token without `admin` gets those of its own tool calls. The figures are at most two seconds old. Percentiles are computed from the 20,000 newest durations at most, of which each step keeps an even selection of 200.
//	@Param			window	query	string	false	"Length of the window"	enums(1h,24h,7d)	default(1h)
//	@Success		200	{object}	statsView	"The statistics"
func (s *Server) getStats(r request) (any, error) {
	q := newQuery(r.Request, "window")
	var names []string
	for _, w := range stats.Windows() {
		names = append(names, w.Name)
	}
	name := q.Enum("window", names[0], names...)
	if err := q.Err(); err != nil {
		return nil, err
	}
	f := stats.Filter{Root: orZero(r.caller.AgentID)}
	if r.caller.Has(models.ScopeToolsCall) && !r.caller.Administers() {
		f.Token = r.caller.TokenID
	}
	result, err := s.core.Stats.Get(r.Context(), stats.Windows()[slices.Index(names, name)], f)
	if err != nil {
		return nil, err
	}
	out := statsView{
		Window: name, From: result.From, To: result.To, StepSeconds: int(result.Window.Step.Seconds()), Now: map[string]int64{},
		Totals: newStatsCounters(r.caller, result.Steps...),
	}
	for _, step := range result.Steps {
		out.Series = append(out.Series, statsStep{step.At, newStatsCounters(r.caller, step)})
	}
	for kind, n := range result.Now {
		group, _, _ := strings.Cut(kind, "_")
		if r.caller.Has(statsScopes[group]) {
			out.Now[kind] = n
		}
	}
	if r.caller.Has(models.ScopeToolsCall) {
		servers, err := s.core.Tools.Upstreams(r.Context(), r.caller)
		if err != nil {
			return nil, err
		}
		for _, u := range servers {
			out.Now["upstreams_ready"] += int64(map[bool]int{true: 1}[u.State == upstream.Ready])
			out.Now["upstreams_failed"] += int64(map[bool]int{true: 1}[u.State == upstream.Failed])
		}
	}
	return out, nil
}

// statsScopes are the scopes that the figures in progress require, by the first word of their names.
var statsScopes = map[string]models.Scope{ //nolint:gochecknoglobals // a constant table
	"tasks": models.ScopeTasksRead, "workers": models.ScopeTasksRead, "workflows": models.ScopeToolsCall, "agents": models.ScopeAgentsRead,
}

// newStatsCounters returns the sums of steps that a token may see.
func newStatsCounters(by models.Principal, steps ...stats.Step) (c statsCounters) {
	var sum stats.Step
	var tasks, calls []stats.Durations
	for _, s := range steps {
		sum.TasksCreated += s.TasksCreated
		sum.TasksCompleted += s.TasksCompleted
		sum.TasksFailed += s.TasksFailed
		sum.TasksCancelled += s.TasksCancelled
		sum.ToolCalls += s.ToolCalls
		sum.ToolFailures += s.ToolFailures
		sum.Tokens += s.Tokens
		tasks, calls = append(tasks, s.TaskDurations), append(calls, s.CallDurations)
	}
	if by.Has(models.ScopeTasksRead) {
		c.TasksCreated, c.TasksCompleted, c.TasksFailed, c.TasksCancelled = &sum.TasksCreated, &sum.TasksCompleted, &sum.TasksFailed, &sum.TasksCancelled
		c.TasksP50, c.TasksP95 = stats.Percentile(0.5, tasks...), stats.Percentile(0.95, tasks...)
	}
	if by.Has(models.ScopeToolsCall) {
		c.ToolCalls, c.ToolFailures = &sum.ToolCalls, &sum.ToolFailures
		c.CallsP50, c.CallsP95 = stats.Percentile(0.5, calls...), stats.Percentile(0.95, calls...)
	}
	if by.Has(models.ScopeAgentsRead) {
		c.Tokens = &sum.Tokens
	}
	return c
}
