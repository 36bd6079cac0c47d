package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/requestid"
)

// statusClientClosed is the status in the log of a request whose client disconnected; it is never
// sent.
const statusClientClosed = 499

// retryAfterSeconds is the Retry-After of errors that do not specify one.
const retryAfterSeconds = 1

// Problem is the body of every error response (RFC 9457). Some codes have further members.
type Problem struct {
	Type      string         `json:"type" example:"/problems/invalid-request"`                            // Address of a description of the code.
	Title     string         `json:"title" example:"Invalid request"`                                     // A short text for the code.
	Status    int            `json:"status" example:"400"`                                                // The HTTP status.
	Detail    string         `json:"detail,omitempty" example:"level must be an integer, not a string"`   // An explanation of this occurrence.
	Instance  string         `json:"instance,omitempty" example:"/api/v1/agents"`                         // The path of the request.
	Code      errs.Code      `json:"code" example:"invalid-request"`                                      // A stable identifier of the error.
	RequestID string         `json:"request_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8057"` // The request's id in the logs of the server.
	Errors    []errs.Field   `json:"errors,omitempty"`                                                    // The invalid parts of the request.
	Meta      map[string]any `json:",embed" swaggerignore:"true"`
}

// statusOf returns the HTTP status of an error code.
func statusOf(code errs.Code) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

var statuses = map[errs.Code]int{ //nolint:gochecknoglobals // a constant table
	errs.InvalidRequest: http.StatusBadRequest, errs.MalformedJSON: http.StatusBadRequest, errs.MalformedYAML: http.StatusBadRequest,
	errs.InvalidParameter: http.StatusBadRequest, errs.InvalidHeader: http.StatusBadRequest, errs.InvalidFrequency: http.StatusBadRequest,
	errs.ParentNotFound: http.StatusBadRequest, errs.InvalidParentLevel: http.StatusBadRequest, errs.ImmutableField: http.StatusBadRequest,

	errs.Unauthenticated: http.StatusUnauthorized,

	errs.MissingScope: http.StatusForbidden, errs.AgentInactive: http.StatusForbidden,
	errs.InsecureRequest: http.StatusForbidden,
	errs.ForeignAgent:    http.StatusForbidden, errs.ToolDenied: http.StatusForbidden, errs.BudgetExceeded: http.StatusForbidden,

	errs.NotFound: http.StatusNotFound, errs.MethodNotAllowed: http.StatusMethodNotAllowed, errs.NotAcceptable: http.StatusNotAcceptable,

	errs.AgentExists: http.StatusConflict, errs.SystemAgentExists: http.StatusConflict, errs.ProtectedAgent: http.StatusConflict,
	errs.ActiveChildren: http.StatusConflict, errs.ParentInactive: http.StatusConflict, errs.LastAdminToken: http.StatusConflict,
	errs.TokenRevoked: http.StatusConflict, errs.AgentDeactivated: http.StatusConflict, errs.RequestIDReused: http.StatusConflict,
	errs.ReservationEnded: http.StatusConflict, errs.WebhookDisabled: http.StatusConflict, errs.TaskState: http.StatusConflict,
	errs.TaskExists: http.StatusConflict, errs.IdempotencyKeyReused: http.StatusConflict, errs.Conflict: http.StatusConflict,

	errs.PreconditionFailed: http.StatusPreconditionFailed, errs.BodyTooLarge: http.StatusRequestEntityTooLarge,
	errs.UnsupportedMediaType: http.StatusUnsupportedMediaType, errs.RangeNotSatisfiable: http.StatusRequestedRangeNotSatisfiable,

	errs.BudgetExceedsMaximum: http.StatusUnprocessableEntity, errs.AddressRefused: http.StatusUnprocessableEntity,
	errs.LimitReached: http.StatusUnprocessableEntity, errs.UnsupportedWork: http.StatusUnprocessableEntity,
	errs.CodeFailed: http.StatusUnprocessableEntity,

	errs.BudgetReserved: http.StatusTooManyRequests, errs.RateLimited: http.StatusTooManyRequests,
	errs.UpstreamFailed: http.StatusBadGateway,
	errs.Timeout:        http.StatusServiceUnavailable, errs.Unavailable: http.StatusServiceUnavailable,
	errs.NoAgent: http.StatusServiceUnavailable, errs.Busy: http.StatusServiceUnavailable,
}

// writeError writes err as a problem document. The cause of an internal error is logged with the
// request id and never sent.
func (p *responder) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if isClientGone(r.Context(), err) {
		p.log.LogAttrs(r.Context(), slog.LevelDebug, "the client disconnected", slog.Any("error", err))
		w.WriteHeader(statusClientClosed)
		return
	}
	e := toKnownError(r.Context(), err)
	status := statusOf(e.Code)
	if e.Code == errs.Timeout && errors.Is(err, os.ErrDeadlineExceeded) { // the body arrived too slowly
		status = http.StatusRequestTimeout
	}
	if status >= http.StatusInternalServerError {
		p.log.LogAttrs(r.Context(), slog.LevelError, "request failed",
			slog.String("method", r.Method), slog.String("path", httpkit.ClipPath(r.URL.Path)),
			slog.String("code", string(e.Code)), slog.Any("error", err))
	}
	p.writeProblem(w, r, status, e)
}

// WriteError writes an error of a mounted handler as a problem document.
func (s *Server) WriteError(w http.ResponseWriter, r *http.Request, err error) {
	s.writeError(w, r, err)
}

// isClientGone reports whether err is a consequence of the client's disconnect. The server also
// cancels the context when a body does not arrive in time; that client still waits for a response.
func isClientGone(ctx context.Context, err error) bool {
	if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	status := statusOf(errs.CodeOf(err))
	return errors.Is(err, context.Canceled) || status == http.StatusInternalServerError || status == http.StatusServiceUnavailable
}

// toKnownError returns err with a code: errs.Timeout for a passed deadline, errs.Internal for an
// error without a code, and errs.BudgetReserved for a budget that reserved tokens exceed.
func toKnownError(ctx context.Context, err error) *errs.Error {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	if errs.Is(err, errs.Internal) && late {
		return errs.Wrap(errs.Timeout, err, "the request took longer than the server allows")
	}
	e := errs.From(err)
	if _, reserved := e.Meta["retry_after"]; reserved && e.Code == errs.BudgetExceeded {
		held := *e
		held.Code = errs.BudgetReserved
		return &held
	}
	if statusOf(e.Code) == http.StatusInternalServerError {
		return errs.Wrap(errs.Internal, err, "an internal error occurred; the server's log has the details under this request id")
	}
	return e
}

func (p *responder) writeProblem(w http.ResponseWriter, r *http.Request, status int, e *errs.Error) {
	h := w.Header()
	p.onFailure(e.Code)
	p.setErrorHeaders(h, r, e)
	contentType, doc := contentTypeProblem, Problem{
		Type: "/problems/" + string(e.Code), Title: e.Code.Title(), Status: status,
		Detail: e.Detail, Instance: httpkit.ClipPath(r.URL.EscapedPath()), Code: e.Code,
		RequestID: requestid.From(r.Context()), Errors: e.Fields, Meta: extensionMembers(e.Meta),
	}
	err := p.withBuffer(func(buf *bytes.Buffer) (err error) {
		if e.Code == errs.NotFound && !strings.HasPrefix(r.URL.Path, "/api/") && acceptsPage(h, r) {
			contentType, err = contentTypePage, renderPage(buf, "problem.html", typeOf(e.Code, e.Detail))
			h.Set("Content-Security-Policy", docsPolicy)
		} else { // a detail may quote input that is not UTF-8
			err = json.MarshalWrite(buf, &doc, p.json, jsontext.AllowInvalidUTF8(true))
		}
		if err != nil {
			return err
		}
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", strconv.Itoa(buf.Len()))
		w.WriteHeader(status)
		_, _ = w.Write(buf.Bytes())
		return nil
	})
	if err != nil { // a member that cannot be encoded, a programming error
		p.log.LogAttrs(r.Context(), slog.LevelError, "encode problem",
			slog.String("code", string(e.Code)), slog.Any("error", err))
		http.Error(w, e.Code.Title(), status)
	}
}

// extensionMembers returns the further members of a problem without those that collide with
// standard members.
func extensionMembers(meta map[string]any) map[string]any {
	standard := []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors"}
	further := maps.Clone(meta)
	maps.DeleteFunc(further, func(name string, _ any) bool { return slices.Contains(standard, name) })
	return further
}

// setErrorHeaders sets the headers of an error response, and removes those that a handler set for a
// successful one.
func (p *responder) setErrorHeaders(h http.Header, r *http.Request, e *errs.Error) {
	h.Del("ETag")
	h.Del("Content-Encoding")
	h.Set("Cache-Control", "no-store")
	switch statusOf(e.Code) {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="comet"`+httpkit.TokenError(r, http.StatusUnauthorized, e.Detail))
	case http.StatusForbidden:
		h.Del("Retry-After")
		if scope, ok := e.Meta["scope"]; ok && e.Code == errs.MissingScope {
			h.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="comet", error="insufficient_scope", scope="%v"`, scope))
		}
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if seconds, ok := e.Meta["retry_after"]; ok {
			h.Set("Retry-After", fmt.Sprint(seconds))
		} else if h.Get("Retry-After") == "" {
			h.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
	}
}

// ProblemType describes an error code. Its address is the `type` of problem documents.
type ProblemType struct {
	Type    string    `json:"type" example:"/problems/parent-not-found"`                       // Address of this description.
	Code    errs.Code `json:"code" example:"parent-not-found"`                                 // The stable identifier of the error.
	Title   string    `json:"title" example:"Parent not found"`                                // A short text for the code.
	Status  int       `json:"status" example:"400"`                                            // The HTTP status.
	Meaning string    `json:"meaning" example:"The id of the parent is not that of an agent."` // What the error means.
	Action  string    `json:"action" example:"List the agents, and use the id of an agent."`   // What the client can do.
	Detail  string    `json:"-"`                                                               // The detail of one occurrence.
}

// typeOf returns the description of an error code. detail is that of one occurrence, "" for none.
func typeOf(code errs.Code, detail string) ProblemType {
	texts := problemTexts()[code]
	return ProblemType{"/problems/" + string(code), code, code.Title(), statusOf(code), texts[0], texts[1], detail}
}

// acceptsPage reports whether the client is a browser, and adds Vary to the headers of the response.
func acceptsPage(h http.Header, r *http.Request) bool {
	h.Add("Vary", "Accept")
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// problemTexts returns the meaning of each code and what the client can do.
var problemTexts = sync.OnceValue(func() (texts map[errs.Code][2]string) { //nolint:gochecknoglobals // a constant table
	if err := json.Unmarshal(docsFile("problems.json"), &texts); err != nil {
		panic(err) // the tests read the file
	}
	return texts
})

// getProblemType returns the description of an error code.
//
//	@Summary		Get a problem type
//	@Description	Returns what an error code means, what to do, and its HTTP status. The `type` of a problem document is this address. Browsers, which accept `text/html`, get a page.
//	@Param			code			path	string	true	"The error code"	example(parent-not-found)
//	@Success		200	{object}	ProblemType	"The problem type"
//	@Failure		404	"The problem type does not exist"
func (p *responder) getProblemType(w http.ResponseWriter, r *http.Request) error {
	code := errs.Code(chi.URLParam(r, "code"))
	if !slices.Contains(code.All(), code) {
		return errs.New(errs.NotFound, "there is no problem type %s", input.Quote(string(code)))
	}
	about := typeOf(code, "")
	if acceptsPage(w.Header(), r) {
		return writePage(w, r, "problem.html", about)
	}
	return p.writeJSON(w, r, about)
}

// fallbacks returns the handlers of requests for unknown paths and of requests with a method that the
// route does not support; Allow lists the supported ones. HEAD is supported wherever GET is
// (middleware.GetHead).
func (p *responder) fallbacks(routes chi.Routes) (notFound, methodNotAllowed http.HandlerFunc) {
	// Mounted routers hide their methods from the outer router, so the lookup uses a flat copy. It
	// is created on first use, because routes are still being added when these handlers are
	// registered.
	flat := sync.OnceValue(func() *chi.Mux { return flatten(routes) })
	notFound = func(w http.ResponseWriter, r *http.Request) {
		path, hint := r.URL.EscapedPath(), ""
		if short := strings.TrimSuffix(path, "/"); short != path && len(allowedMethods(flat(), short)) > 0 {
			hint = "; did you mean " + httpkit.ClipPath(short) + "?"
		}
		p.writeError(w, r, errs.New(errs.NotFound, "there is no resource at %s%s", httpkit.ClipPath(path), hint))
	}
	return notFound, func(w http.ResponseWriter, r *http.Request) {
		allowed := allowedMethods(flat(), cmp.Or(r.URL.RawPath, r.URL.Path))
		if len(allowed) == 0 { // an unknown method on an unknown path
			notFound(w, r)
			return
		}
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		p.writeError(w, r, errs.New(errs.MethodNotAllowed, "%s is not supported at this address; use %s", input.Clip(r.Method), list))
	}
}

// flatten copies all routes into one router without middlewares.
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

// allowedMethods returns the sorted methods of a path.
func allowedMethods(routes chi.Routes, path string) []string {
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
