package transport

import (
	"bytes"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/words"
)

// writeReply sends an answer of the dialect.
func writeReply(w http.ResponseWriter, a protocol.Reply) {
	h := w.Header()
	if a.Location != "" {
		h.Set("Location", a.Location)
	}
	if a.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.RetryAfter.Seconds()))))
	}
	if len(a.Body) > 0 {
		if a.ContentType == "" {
			a.ContentType = contentTypeJSON
		}
		h.Set("Content-Type", a.ContentType)
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // whoever is gone by now is nobody's error
}

// writeJSON answers with v. It returns an error before anything was sent.
func writeJSON(w http.ResponseWriter, v any) error {
	var b bytes.Buffer
	if err := json.MarshalWrite(&b, v); err != nil {
		return err
	}
	writeReply(w, protocol.Reply{Status: http.StatusOK, Body: b.Bytes()})
	return nil
}

// extendDeadlines takes the server's limits of time from a request whose body was read and whose
// answer waits for something. Only a test's writer cannot do this.
func extendDeadlines(w http.ResponseWriter, wait time.Duration) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(wait + bodyTimeout))
}

// readBody reads a body of JSON of up to most bytes. The errors are
// errs.UnsupportedMediaType, errs.BodyTooLarge, errs.Timeout and errs.InvalidRequest.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	return readBodyOf(w, r, "the message is", most, contentTypeJSON)
}

// readBodyOf is readBody for one of several types, the first of which is asked for. what
// begins the sentence about a body that is too long.
func readBodyOf(w http.ResponseWriter, r *http.Request, what string, most int64, kinds ...string) ([]byte, error) {
	if text := r.Header.Get("Content-Type"); text != "" {
		kind, _, err := mime.ParseMediaType(text)
		if err != nil || !slices.Contains(kinds, kind) {
			return nil, errs.New(errs.UnsupportedMediaType, "the body must be %s, not %s", kinds[0], words.Quote(text))
		}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errs.New(errs.BodyTooLarge, "%s over the limit of %d bytes", what, most)
	case err != nil:
		return nil, errs.Wrap(errs.InvalidRequest, err, "the body did not come whole")
	}
	return raw, nil
}
