package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"comet/models"
)

const (
	contentTypeJSON    = "application/json"
	contentTypeProblem = "application/problem+json"
)

// maxPooledBuffer keeps one large answer from holding its memory for good.
const maxPooledBuffer = 256 << 10

func newBufferPool() *sync.Pool {
	return &sync.Pool{New: func() any { return new(bytes.Buffer) }}
}

// borrow passes an empty buffer to use and takes it back afterwards.
func (p *responder) borrow(use func(*bytes.Buffer) error) error {
	buf := p.buffers.Get().(*bytes.Buffer)
	buf.Reset()
	err := use(buf)
	if buf.Cap() <= maxPooledBuffer {
		p.buffers.Put(buf)
	}
	return err
}

// writeJSON answers with v. Nothing is sent before v is encoded, so an error
// returned here can still become a problem. A 200 to GET or HEAD gets a strong
// ETag and answers If-None-Match with 304.
func (p *responder) writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	return p.writeEntity(w, r, status, 0, v)
}

// writeEntity is writeJSON for a resource with a version, from 1: every answer
// carries an ETag of the form "version.hash", also those to POST and PATCH.
func (p *responder) writeEntity(w http.ResponseWriter, r *http.Request, status int, version int64, v any) error {
	return p.borrow(func(buf *bytes.Buffer) error {
		if err := json.MarshalWrite(buf, v, p.json); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		p.writeBody(w, r, status, version, contentTypeJSON, buf.Bytes())
		return nil
	})
}

// writeBody answers with bytes that are already encoded; version is 0 where the
// resource has none. A client that is gone by now is nobody's error.
func (p *responder) writeBody(w http.ResponseWriter, r *http.Request, status int, version int64, contentType string, body []byte) {
	h := w.Header()
	readable := status == http.StatusOK && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	if version > 0 || readable {
		tag := entityTag(version, body)
		if lines := r.Header["If-None-Match"]; readable && lines != nil {
			if known, ok := noneMatch(lines, tag); ok {
				h.Set("ETag", known)
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		h.Set("ETag", tag)
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeAnswer sends a stored answer again.
func (p *responder) writeAnswer(w http.ResponseWriter, a models.StoredResponse) {
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

// encode returns v as writeJSON would send it.
func (p *responder) encode(v any) ([]byte, error) { return json.Marshal(v, p.json) }
