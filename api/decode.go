package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/words"
)

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
			e := errs.New(errs.UnsupportedMediaType, "the body must be sent without Content-Encoding, not as %q", words.Clip(c))
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
		came = "it was " + words.Quote(sent)
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
