package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// pathID returns an id that stands in the address of a request without
// parameters. It reports unknown parameters, and errs.NotFound as decodeID does.
func pathID(r *http.Request, name string) (string, error) {
	if err := newQuery(r).Err(); err != nil {
		return "", err
	}
	return decodeID(r, name)
}

// decodeID returns an id that stands in the address. Nothing has one that is too
// long or that no database can look for: errs.NotFound.
func decodeID(r *http.Request, name string) (string, error) {
	id := chi.URLParam(r, name)
	if r.URL.RawPath != "" { // the router goes by the address as it was sent
		id, _ = url.PathUnescape(id) // net/http has refused what cannot be decoded
	}
	if len(id) > models.MaxIDLength || !storable(id) {
		return "", errs.New(errs.NotFound, "there is nothing at %s", clipPath(r.URL.EscapedPath()))
	}
	return id, nil
}

// storable reports whether every database can compare a column with the text.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// clipPath bounds a path in logs and problem documents.
func clipPath(s string) string { return input.ClipTo(s, 512) }

// maxBody is the most a request body may hold, in bytes.
const maxBody = 1 << 20

const contentTypeMergePatch = "application/merge-patch+json"

// readBody reads a body of one of the accepted media types, at most limit bytes.
// It returns the body and its media type, which is the first accepted one where
// the body is empty and has no Content-Type. Errors: UnsupportedMediaType,
// BodyTooLarge, InvalidRequest for a body that ends early, or the context's.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, accepted ...string) (body []byte, mediaType string, err error) {
	mediaType, err = checkMediaType(r, accepted)
	if err != nil {
		w.Header().Set("Accept", strings.Join(accepted, ", "))
		return nil, "", err
	}
	inner := innermost(w)
	if r.ContentLength > limit {
		if r.Header.Get("Expect") == "" {
			// One byte tells the server that the rest is not wanted, so that it
			// closes in a way that lets the answer through. A client that waits
			// for "100 Continue" has not sent anything yet.
			_, _ = http.MaxBytesReader(inner, r.Body, 0).Read(make([]byte, 1))
		}
		return nil, "", tooLarge(limit)
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(inner, r.Body, limit)); err != nil {
		return nil, "", readError(r, err, limit) // the deadline of timeout stays: the server reads on
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return buf.Bytes(), mediaType, nil
}

// innermost returns the server's own writer, which MaxBytesReader tells of a body
// that is too large; it does not look behind those of the middlewares.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// checkMediaType judges Content-Type and Content-Encoding.
func checkMediaType(r *http.Request, accepted []string) (string, error) {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if c := strings.TrimSpace(coding); c != "" && !strings.EqualFold(c, "identity") {
			e := errs.New(errs.UnsupportedMediaType, "the body must be sent without Content-Encoding, not as %q", input.Clip(c))
			e.Fields = []errs.Field{{Header: "Content-Encoding", Rule: "identity", Detail: e.Detail}}
			return "", e
		}
	}
	sent := r.Header.Get("Content-Type")
	if sent == "" && (r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0) {
		return accepted[0], nil
	}
	mediaType, params, err := mime.ParseMediaType(sent)
	charset := params["charset"]
	if err == nil && slices.Contains(accepted, mediaType) && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return mediaType, nil
	}
	came := "there is no Content-Type"
	if sent != "" {
		came = "it was " + input.Quote(sent)
	}
	e := errs.New(errs.UnsupportedMediaType, "the body must be %s in UTF-8; %s", strings.Join(accepted, " or "), came).
		With("accepted", accepted)
	e.Fields = []errs.Field{{Header: "Content-Type", Rule: "media_type", Detail: e.Detail}}
	return "", e
}

func tooLarge(limit int64) error {
	return errs.New(errs.BodyTooLarge, "the body may be at most %d bytes long", limit).With("limit", limit)
}

// readError says why a body could not be read.
func readError(r *http.Request, err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errs.Wrap(errs.Timeout, err, "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Wrap(errs.InvalidRequest, err, "the body ended before its announced length")
	case r.Context().Err() != nil:
		return r.Context().Err()
	}
	return errs.Wrap(errs.InvalidRequest, err, "the body could not be read")
}

// maxIdempotencyKey is the longest Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

// readIdempotencyKey reads the Idempotency-Key of a request; nil without one. render makes the
// answer that is stored and sent again; it leaves out what is shown only once.
func (s *Server) readIdempotencyKey(r *http.Request, body []byte, render func(result any) (models.StoredResponse, error)) (*models.Idempotency, error) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return nil, nil //nolint:nilnil // the header is optional
	}
	key := lines[0]
	if len(lines) > 1 || key == "" || len(key) > maxIdempotencyKey || strings.ContainsFunc(key, notVisible) {
		return nil, invalidHeader("Idempotency-Key", "idempotency_key",
			"Idempotency-Key must be one value of 1 to %d visible ASCII characters", maxIdempotencyKey)
	}
	h := sha256.New()
	h.Write([]byte(r.Method + " " + r.URL.RequestURI() + "\n" + r.Header.Get("Content-Type") + "\n"))
	h.Write(body)
	o := &models.Idempotency{Principal: caller(r).TokenID, Key: key, Render: render}
	h.Sum(o.RequestHash[:0])
	return o, nil
}

func notVisible(r rune) bool { return r < 0x21 || r > 0x7e }

// writeReplay sends the stored answer of a request that was made before; it reports
// whether there was one.
func (s *Server) writeReplay(w http.ResponseWriter, o *models.Idempotency) bool {
	if o == nil || o.Replay == nil {
		return false
	}
	w.Header().Set("Idempotency-Replayed", "true")
	s.writeStoredResponse(w, *o.Replay)
	return true
}

// decodeOptional is decode for a request that may come without a body.
func (s *Server) decodeOptional(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	body, _, err := readBody(w, r, s.opts.MaxBody, contentTypeJSON)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return body, err
	}
	return body, input.DecodeJSON(body, v)
}
