package api

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"comet/internal/errs"
	"comet/models"
)

const (
	contentTypeJSON    = "application/json"
	contentTypeProblem = "application/problem+json"
)

// maxPooledBuffer is the capacity in bytes above which a buffer is not reused.
const maxPooledBuffer = 256 << 10

// withBuffer calls use with an empty buffer from the pool.
func (p *responder) withBuffer(use func(*bytes.Buffer) error) error {
	buf := p.buffers.Get().(*bytes.Buffer)
	buf.Reset()
	err := use(buf)
	if buf.Cap() <= maxPooledBuffer {
		p.buffers.Put(buf)
	}
	return err
}

// writeJSON writes v as JSON with status 200.
func (p *responder) writeJSON(w http.ResponseWriter, r *http.Request, v any) error {
	return p.writeEntity(w, r, http.StatusOK, 0, v)
}

// writeEntity writes v as JSON. It encodes v before it sends anything, so that an encoding error
// becomes a problem document. A 200 response to GET or HEAD has a strong ETag, and is 304 if it
// matches If-None-Match. For a resource with a version (from 1) every response has an ETag, of the
// form "version.hash"; version is 0 for others.
func (p *responder) writeEntity(w http.ResponseWriter, r *http.Request, status int, version int64, v any) error {
	return p.withBuffer(func(buf *bytes.Buffer) error {
		if err := json.MarshalWrite(buf, v, p.json); err != nil {
			return fmt.Errorf("encode the response: %w", err)
		}
		p.writeBody(w, r, status, version, contentTypeJSON, buf.Bytes())
		return nil
	})
}

// writeBody writes an encoded body; version is 0 for a resource without one. A disconnected client
// is not an error.
func (p *responder) writeBody(w http.ResponseWriter, r *http.Request, status int, version int64, contentType string, body []byte) {
	h := w.Header()
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	readable := isRead && status == http.StatusOK && h.Get("Cache-Control") != "no-store"
	if version > 0 || readable {
		tag := entityTag(version, body)
		if known, ok := matchingTag(r.Header["If-None-Match"], tag); ok && readable {
			h.Set("ETag", known)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("ETag", tag)
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (p *responder) writeStoredResponse(w http.ResponseWriter, a models.StoredResponse) {
	h := w.Header()
	for name, value := range a.Header {
		h.Set(name, value)
	}
	if len(a.Body) > 0 && h.Get("Content-Type") == "" {
		h.Set("Content-Type", contentTypeJSON)
	}
	if a.Status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// encode returns v as writeJSON writes it.
func (p *responder) encode(v any) ([]byte, error) { return json.Marshal(v, p.json) }

// gzipSuffix is what the gzip middleware appends inside the quotes of a strong ETag, because a
// compressed response is another representation (RFC 9110 §8.8.3.3).
const gzipSuffix = "-gzip"

// entityTag returns the strong ETag of a response: "version.hash", or "hash" for a resource without
// a version (0). If-Match compares only versions, so that usage figures, which change by
// themselves, do not cause a 412.
func entityTag(version int64, body []byte) string {
	b := make([]byte, 0, 40)
	b = append(b, '"')
	if version > 0 {
		b = append(strconv.AppendInt(b, version, 10), '.')
	}
	b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, xxhash.Sum64(body)))
	return string(append(b, '"'))
}

// tagRef is one entity tag in a request.
type tagRef struct {
	weak   bool
	opaque string // the text between the quotes
}

// version returns the number before the dot; ok is false for a tag of another form.
func (t tagRef) version() (int64, bool) {
	number, _, ok := strings.Cut(t.opaque, ".")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(number, 10, 64)
	return v, err == nil && v > 0
}

// condition is the value of If-Match or If-None-Match: * or a list of tags.
type condition struct {
	star bool
	tags []tagRef
}

// parseCondition parses the values of an If-Match or If-None-Match header (RFC 9110 §8.8.3, §13.1).
// ok is false if they are malformed.
func parseCondition(lines []string) (c condition, ok bool) {
	rest := strings.TrimSpace(strings.Join(lines, ","))
	if rest == "*" {
		return condition{star: true}, true
	}
	for {
		rest = strings.TrimLeft(rest, ", \t")
		if rest == "" {
			return c, len(c.tags) > 0
		}
		var t tagRef
		rest, t.weak = strings.CutPrefix(rest, "W/")
		if rest == "" || rest[0] != '"' {
			return condition{}, false
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 || strings.ContainsFunc(rest[1:1+end], func(r rune) bool { return r <= 0x20 || r == 0x7F }) {
			return condition{}, false
		}
		t.opaque, rest = rest[1:1+end], strings.TrimLeft(rest[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return condition{}, false
		}
		c.tags = append(c.tags, t)
	}
}

// matchingTag looks for a response's tag in an If-None-Match header. It compares weakly and treats
// the tag of the compressed form as equal. It returns the tag to send with the 304. A malformed
// header matches nothing, because the full response is always correct.
func matchingTag(lines []string, tag string) (known string, ok bool) {
	c, ok := parseCondition(lines)
	if !ok || c.star {
		return tag, ok
	}
	opaque := strings.Trim(tag, `"`)
	for _, t := range c.tags {
		if strings.TrimSuffix(t.opaque, gzipSuffix) == opaque {
			return `"` + t.opaque + `"`, true
		}
	}
	return "", false
}

// precondition reads If-Match and If-None-Match of a request that changes a resource, nil without
// either. Weak tags never match in If-Match (RFC 9110 §13.1.1). A malformed header is
// errs.InvalidHeader. The precondition returns errs.PreconditionFailed.
func precondition(r *http.Request) (models.Precondition, error) {
	match, err := conditionOf(r, "If-Match")
	if err != nil {
		return nil, err
	}
	none, err := conditionOf(r, "If-None-Match")
	if err != nil {
		return nil, err
	}
	if match == nil && none == nil {
		return nil, nil
	}
	return func(version int64) error {
		if match != nil && !match.matches(version, false) {
			return preconditionFailed("If-Match", version, "the resource is at version %d, which If-Match does not name")
		}
		if none != nil && none.matches(version, true) {
			return preconditionFailed("If-None-Match", version, "the resource is at version %d, which If-None-Match excludes")
		}
		return nil
	}, nil
}

// conditionOf reads If-Match or If-None-Match, nil without the header.
func conditionOf(r *http.Request, header string) (*condition, error) {
	lines := r.Header.Values(header)
	if len(lines) == 0 {
		return nil, nil
	}
	c, ok := parseCondition(lines)
	if !ok {
		return nil, invalidHeader(header, "entity_tag",
			`%s must be * or a list of entity tags in double quotes, such as "3.a1b2c3d4e5f60718"`, header)
	}
	return &c, nil
}

// matches reports whether the condition contains the version.
func (c *condition) matches(version int64, weakly bool) bool {
	if c.star {
		return version > 0
	}
	for _, t := range c.tags {
		if v, ok := t.version(); ok && v == version && (weakly || !t.weak) {
			return true
		}
	}
	return false
}

func preconditionFailed(header string, version int64, format string) error {
	e := errs.New(errs.PreconditionFailed, format, version).With("current_version", version)
	e.Fields = []errs.Field{{Header: header, Rule: "entity_tag", Detail: e.Detail}}
	return e
}

func invalidHeader(header, rule, format string, args ...any) *errs.Error {
	e := errs.New(errs.InvalidHeader, format, args...)
	e.Fields = []errs.Field{{Header: header, Rule: rule, Detail: e.Detail}}
	return e
}

// orNull returns a pointer to v, nil for the zero value.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// orZero returns what v points to, the zero value for nil.
func orZero[T any](v *T) T { return *cmp.Or(v, new(T)) }

// orEmpty returns a list that is sent as [] instead of null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
