package api

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/models"
)

// The adapters below turn functions of the API into HTTP handlers: they read the path and the body,
// call the function and write its result. A function returns the body of the response, a reply if
// there is more to say, or nil for 204.

// request is a request whose path was read.
type request struct {
	*http.Request

	caller models.Principal
	id     string              // the first id in the path, "" without one
	subID  string              // the second id in the path
	pre    models.Precondition // of a change, nil without one
}

// reply is a response that is not a body with status 200 alone.
type reply struct {
	status   int    // 0 is 200
	location string // of the resource that the request created or changed
	noStore  bool   // no cache may store the response
	version  int64  // of the resource, for its ETag; 0 without one
	next     string // the cursor of the next page
	body     any
}

// read adapts a read without query parameters.
func (s *Server) read(get func(request) (any, error)) http.HandlerFunc {
	return s.find(func(r request) (any, error) {
		if err := newQuery(r.Request).Err(); err != nil {
			return nil, err
		}
		return get(r)
	})
}

// find adapts a read that checks its query parameters itself.
func (s *Server) find(get func(request) (any, error)) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		req, err := readPath(r)
		if err != nil {
			return err
		}
		result, err := get(req)
		if err != nil {
			return err
		}
		return s.writeReply(w, r, result)
	})
}

// remove adapts a request without a body and without a result, such as DELETE.
func (s *Server) remove(do func(request) error) http.HandlerFunc {
	return change(s, withoutBody, func(r request, _ struct{}) (any, error) { return nil, do(r) })
}

// bodyRule says which body a request has.
type bodyRule int

const (
	withoutBody  bodyRule = iota // an empty object is accepted
	jsonBody                     // JSON, whose values the core validates
	validBody                    // JSON, validated by the tags of its type
	optionalBody                 // like jsonBody, may be missing
)

// change adapts a request without query parameters that changes something.
func change[D any](s *Server, rule bodyRule, do func(request, D) (any, error)) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		var d D
		req, _, err := s.readRequest(w, r, rule, &d)
		if err != nil {
			return err
		}
		result, err := do(req, d)
		if err != nil {
			return err
		}
		return s.writeReply(w, r, result)
	})
}

// maxIdempotencyKey is the maximum length of an Idempotency-Key in bytes.
const maxIdempotencyKey = 255

// readIdempotencyKey reads the Idempotency-Key of a request, nil without one. render creates the
// response that is stored for repeated requests; it omits secrets.
func (s *Server) readIdempotencyKey(r *http.Request, body []byte, render func(result any) (models.StoredResponse, error)) (*models.Idempotency, error) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return nil, nil //nolint:nilnil // the header is optional
	}
	key := lines[0]
	if len(lines) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return nil, invalidHeader("Idempotency-Key", "idempotency_key",
			"Idempotency-Key must be one value of 1 to %d visible ASCII characters", maxIdempotencyKey)
	}
	h := sha256.New()
	h.Write([]byte(r.Method + " " + r.URL.RequestURI() + "\n"))
	h.Write(input.Canonical(body))
	o := &models.Idempotency{Principal: caller(r).TokenID, Key: key, Render: render}
	h.Sum(o.RequestHash[:0])
	return o, nil
}

// writeReplay writes the stored response of an earlier request with the same key. It reports
// whether there was one.
func (s *Server) writeReplay(w http.ResponseWriter, o *models.Idempotency) bool {
	if o == nil || o.Replay == nil {
		return false
	}
	w.Header().Set("Idempotency-Replayed", "true")
	s.writeStoredResponse(w, *o.Replay)
	return true
}

// once adapts a change that may have an Idempotency-Key. respond makes the response of its result.
func once[D, T any](s *Server, rule bodyRule, do func(request, D, *models.Idempotency) (T, error), respond func(T) reply) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		var d D
		req, body, err := s.readRequest(w, r, rule, &d)
		if err != nil {
			return err
		}
		return runOnce(s, w, r, body, func(key *models.Idempotency) (T, error) { return do(req, d, key) }, respond)
	})
}

// runOnce calls do, or repeats the response of the request that had the same Idempotency-Key.
func runOnce[T any](s *Server, w http.ResponseWriter, r *http.Request, body []byte,
	do func(*models.Idempotency) (T, error), respond func(T) reply) error {
	key, err := s.readIdempotencyKey(r, body, storing(s, respond))
	if err != nil {
		return err
	}
	result, err := do(key)
	if err != nil || s.writeReplay(w, key) {
		return err
	}
	return s.writeReply(w, r, respond(result))
}

// storing returns the function that makes the response for repetitions of a request. It has no
// secrets.
func storing[T any](s *Server, respond func(T) reply) func(any) (models.StoredResponse, error) {
	return func(result any) (models.StoredResponse, error) {
		out := respond(result.(T))
		if b, ok := out.body.(interface{ withoutSecret() any }); ok {
			out.body = b.withoutSecret()
		}
		body, err := s.encode(out.body)
		stored := models.StoredResponse{Status: out.statusCode(), Body: body, Header: map[string]string{}}
		if out.location != "" {
			stored.Header["Location"] = out.location
		}
		if out.noStore {
			stored.Header["Cache-Control"] = "no-store"
		}
		if out.version > 0 {
			stored.Header["ETag"] = entityTag(out.version, body)
		}
		return stored, err
	}
}

// bodyReply is the response with a body alone.
func bodyReply[T any](body T) reply { return reply{body: body} }

func (o reply) statusCode() int {
	if o.status == 0 {
		return http.StatusOK
	}
	return o.status
}

func (s *Server) writeReply(w http.ResponseWriter, r *http.Request, result any) error {
	if result == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	out, ok := result.(reply)
	if !ok {
		out.body = result
	}
	h := w.Header()
	if out.location != "" {
		h.Set("Location", out.location)
	}
	if out.noStore {
		h.Set("Cache-Control", "no-store")
	}
	if out.next != "" {
		h.Set("Link", links(r, out.next))
	}
	return s.writeEntity(w, r, out.statusCode(), out.version, out.body)
}

// readRequest reads the path, the body and the precondition of a request without query parameters.
// It also returns the raw body.
func (s *Server) readRequest(w http.ResponseWriter, r *http.Request, rule bodyRule, v any) (request, []byte, error) {
	if err := newQuery(r).Err(); err != nil {
		return request{}, nil, err
	}
	req, err := readPath(r)
	if err != nil {
		return request{}, nil, err
	}
	var body []byte
	switch rule {
	case withoutBody:
		if r.ContentLength != 0 {
			body, err = s.decode(w, r, v, true)
		}
		if errs.Is(err, errs.InvalidRequest) {
			err = errs.New(errs.InvalidRequest, "this request must not have a body")
		}
	case validBody:
		if body, err = s.decode(w, r, v, false); err == nil {
			err = input.Validate(v).Err()
		}
	default:
		body, err = s.decode(w, r, v, rule == optionalBody)
	}
	if err == nil {
		req.pre, err = precondition(r)
	}
	return req, body, err
}

// readPath reads the ids in the path. An id that is too long or cannot be stored is errs.NotFound,
// because no resource has it.
func readPath(r *http.Request) (request, error) {
	req := request{Request: r, caller: caller(r)}
	ids := []*string{&req.id, &req.subID}
	values := chi.RouteContext(r.Context()).URLParams.Values
	for i, into := range ids[:min(len(values), len(ids))] {
		value := values[i]
		if r.URL.RawPath != "" { // the router matches the path as it was sent
			value, _ = url.PathUnescape(value) // net/http has rejected malformed escapes
		}
		if len(value) > input.MaxID || !storable(value) {
			return req, errs.New(errs.NotFound, "there is no resource at %s", httpkit.ClipPath(r.URL.EscapedPath()))
		}
		*into = value
	}
	return req, nil
}

// storable reports whether all databases can store the text.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

const contentTypeMergePatch = "application/merge-patch+json"

// decode reads a JSON body into v and returns the raw body. It checks types, not values.
// If optional is set, the body may be empty.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any, optional bool) ([]byte, error) {
	accepted := []string{contentTypeJSON}
	if r.Method == http.MethodPatch {
		accepted = append(accepted, contentTypeMergePatch)
	}
	body, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: s.opts.MaxBody, MediaTypes: accepted})
	if err != nil || optional && len(bytes.TrimSpace(body)) == 0 {
		return body, err
	}
	return body, input.DecodeJSON(body, v)
}

// cutPage cuts a list that was read with one entry more than the limit, and returns the cursor of
// the next page, "" without one. position is what the cursor contains of the last entry.
func cutPage[T any](list []T, limit int, position func(T) string) (page []T, next string) {
	if len(list) <= limit {
		return list, ""
	}
	return list[:limit], encodeCursor(position(list[limit-1]))
}

// views returns the views of a list, never nil.
func views[T, V any](list []T, view func(T) V) []V {
	out := make([]V, len(list))
	for i, v := range list {
		out[i] = view(v)
	}
	return out
}

// links returns the Link header of a page that has a next one (RFC 8288).
func links(r *http.Request, next string) string {
	values := r.URL.Query()
	values.Del("offset")
	values.Del("cursor")
	first := *r.URL
	first.RawQuery = values.Encode()
	values.Set("cursor", next)
	following := url.URL{Path: first.Path, RawQuery: values.Encode()}
	return "<" + following.RequestURI() + `>; rel="next", <` + (&url.URL{Path: first.Path, RawQuery: first.RawQuery}).RequestURI() + `>; rel="first"`
}
