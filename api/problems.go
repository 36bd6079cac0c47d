package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/requestid"
)

// statusClientClosed is what the log says of a request whose client went away;
// nobody receives it.
const statusClientClosed = 499

// retryAfterSeconds is how long a client should wait when the error does not
// know better.
const retryAfterSeconds = 1

// Problem is the body of every answer that is an error (RFC 9457). Further
// members depend on the code.
type Problem struct {
	Type      string         `json:"type" example:"/problems/invalid-request"`
	Title     string         `json:"title" example:"Invalid request"`
	Status    int            `json:"status" example:"400"`
	Detail    string         `json:"detail,omitempty" example:"level must be an integer, not a string"`
	Instance  string         `json:"instance,omitempty" example:"/api/v1/agents"`
	Code      errs.Code      `json:"code" example:"invalid-request"`
	RequestID string         `json:"request_id,omitempty" example:"01890a5d-ac96-774b-bcce-b302099a8057"`
	Errors    []errs.Field   `json:"errors,omitempty"`
	Meta      map[string]any `json:",embed" swaggerignore:"true"`
}

// statusOf is the one place that knows the HTTP status of an error.
func statusOf(class errs.Class) int {
	switch class {
	case errs.ClassInvalid:
		return http.StatusBadRequest
	case errs.ClassUnauthenticated:
		return http.StatusUnauthorized
	case errs.ClassForbidden:
		return http.StatusForbidden
	case errs.ClassNotFound:
		return http.StatusNotFound
	case errs.ClassMethod:
		return http.StatusMethodNotAllowed
	case errs.ClassNotAcceptable:
		return http.StatusNotAcceptable
	case errs.ClassConflict:
		return http.StatusConflict
	case errs.ClassPrecondition:
		return http.StatusPreconditionFailed
	case errs.ClassTooLarge:
		return http.StatusRequestEntityTooLarge
	case errs.ClassMediaType:
		return http.StatusUnsupportedMediaType
	case errs.ClassRange:
		return http.StatusRequestedRangeNotSatisfiable
	case errs.ClassUnprocessable:
		return http.StatusUnprocessableEntity
	case errs.ClassTooMany:
		return http.StatusTooManyRequests
	case errs.ClassTimeout, errs.ClassUnavailable:
		return http.StatusServiceUnavailable
	case errs.ClassBadGateway:
		return http.StatusBadGateway
	case errs.ClassInternal:
	}
	return http.StatusInternalServerError
}

// writeError writes err as a problem document. The cause of a fault of ours goes to
// the log, where the context's request id is added, and never to the client.
func (p *responder) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if isClientGone(r.Context(), err) {
		p.log.LogAttrs(r.Context(), slog.LevelDebug, "client went away", slog.Any("error", err))
		w.WriteHeader(statusClientClosed)
		return
	}
	e := toKnownError(r.Context(), err)
	status := statusOf(e.Code.Class())
	if status >= http.StatusInternalServerError {
		p.log.LogAttrs(r.Context(), slog.LevelError, "request failed",
			slog.String("method", r.Method), slog.String("path", clipPath(r.URL.Path)),
			slog.String("code", string(e.Code)), slog.Any("error", err))
	}
	p.writeProblem(w, r, status, e)
}

// isClientGone reports whether err follows from the client's own disconnect. The
// server also cancels the context when a body does not arrive in time; that
// client still listens.
func isClientGone(ctx context.Context, err error) bool {
	if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	class := errs.CodeOf(err).Class()
	return errors.Is(err, context.Canceled) || class == errs.ClassInternal || class == errs.ClassUnavailable || class == errs.ClassTimeout
}

// toKnownError gives every error a code: a deadline that passed is a timeout, what
// has no code is a fault of ours.
func toKnownError(ctx context.Context, err error) *errs.Error {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	if errs.Is(err, errs.Internal) && late {
		return errs.Wrap(errs.Timeout, err, "the request took longer than the server allows")
	}
	e := errs.From(err)
	if e.Code.Class() == errs.ClassInternal {
		return errs.Wrap(errs.Internal, err, "something went wrong on our side; the log has more under this request id")
	}
	return e
}

func (p *responder) writeProblem(w http.ResponseWriter, r *http.Request, status int, e *errs.Error) {
	h := w.Header()
	p.setErrorHeaders(h, r, e)
	doc := Problem{
		Type: "/problems/" + string(e.Code), Title: e.Code.Title(), Status: status,
		Detail: e.Detail, Instance: clipPath(r.URL.EscapedPath()), Code: e.Code,
		RequestID: requestid.From(r.Context()), Errors: e.Fields, Meta: extensionMembers(e.Meta),
	}
	err := p.withBuffer(func(buf *bytes.Buffer) error {
		// What a client sent and a detail repeats need not be UTF-8.
		if err := json.MarshalWrite(buf, &doc, p.json, jsontext.AllowInvalidUTF8(true)); err != nil {
			return err
		}
		h.Set("Content-Type", contentTypeProblem)
		h.Set("Content-Length", strconv.Itoa(buf.Len()))
		w.WriteHeader(status)
		_, _ = w.Write(buf.Bytes())
		return nil
	})
	if err != nil { // a member that is not JSON, a mistake of ours
		p.log.LogAttrs(r.Context(), slog.LevelError, "encode problem",
			slog.String("code", string(e.Code)), slog.Any("error", err))
		http.Error(w, e.Code.Title(), status)
	}
}

// extensionMembers returns the further members of a problem without those whose names
// the document has for itself.
func extensionMembers(meta map[string]any) map[string]any {
	for _, name := range []string{"type", "title", "status", "detail", "instance", "code", "request_id", "errors"} {
		if _, taken := meta[name]; !taken {
			continue
		}
		rest := map[string]any{}
		for k, v := range meta {
			if k != name {
				rest[k] = v
			}
		}
		meta = rest
	}
	return meta
}

// setErrorHeaders sets the headers that belong to an error, and takes back those
// a handler may have set for the answer it meant to give.
func (p *responder) setErrorHeaders(h http.Header, r *http.Request, e *errs.Error) {
	h.Del("ETag")
	h.Del("Content-Encoding")
	h.Set("Cache-Control", "no-store")
	switch e.Code.Class() {
	case errs.ClassUnauthenticated:
		challenge := `Bearer realm="comet"`
		// Another scheme is no broken token (RFC 6750 §3.1).
		if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
			challenge += `, error="invalid_token"`
		}
		h.Set("WWW-Authenticate", challenge)
	case errs.ClassForbidden:
		if scope, ok := e.Meta["scope"]; ok {
			h.Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="comet", error="insufficient_scope", scope="%v"`, scope))
		}
	case errs.ClassTimeout, errs.ClassUnavailable, errs.ClassTooMany:
		if seconds, ok := e.Meta["retry_after"]; ok {
			h.Set("Retry-After", fmt.Sprint(seconds))
		} else if at, ok := e.Meta["reset_at"].(time.Time); ok {
			seconds := math.Ceil(at.Sub(p.now()).Seconds())
			h.Set("Retry-After", strconv.Itoa(max(1, int(seconds))))
		} else if h.Get("Retry-After") == "" {
			h.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		}
	}
}

// ProblemType describes a problem code. The type member of a problem document is its address.
type ProblemType struct {
	Type   string    `json:"type" example:"/problems/parent-not-found"`
	Code   errs.Code `json:"code" example:"parent-not-found"`
	Title  string    `json:"title" example:"Parent not found"`
	Status int       `json:"status" example:"400"`
}

// getProblemType returns a problem type.
//
//	@Summary		Get a problem type
//	@Description	Returns the title and the HTTP status of a problem code. The `type` of a problem document is this address.
//	@ID				getProblemType
//	@Tags			service
//	@Produce		json
//	@Security
//	@Param			code			path	string	true	"The problem's code"	example(parent-not-found)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	ProblemType	"The problem type"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such problem type"
//	@Router			/problems/{code} [get]
func (p *responder) getProblemType(w http.ResponseWriter, r *http.Request) error {
	code := errs.Code(chi.URLParam(r, "code"))
	if !slices.Contains(errs.Codes(), code) {
		return errs.New(errs.NotFound, "there is no problem type %s", input.Quote(string(code)))
	}
	return p.writeJSON(w, r, http.StatusOK, ProblemType{
		Type: "/problems/" + string(code), Code: code, Title: code.Title(),
		Status: statusOf(code.Class()),
	})
}

// notFound answers for an address that no route has.
func (p *responder) notFound(w http.ResponseWriter, r *http.Request) {
	p.writeError(w, r, errs.New(errs.NotFound, "there is nothing at %s", clipPath(r.URL.EscapedPath())))
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
		p.writeError(w, r, errs.New(errs.MethodNotAllowed, "%s is not allowed here, only %s", input.Clip(r.Method), list))
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
