package httpkit

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/telemetry"
)

// BodyRules describes the bodies that an endpoint accepts.
type BodyRules struct {
	// Limit is the size limit in bytes.
	Limit int64
	// MediaTypes are the accepted media types; without any, Content-Type is not checked.
	MediaTypes []string
	// TypeOptional accepts a body without Content-Type as one of the first media type.
	TypeOptional bool
}

// ReadBody returns the body of a request and its media type, which is the first accepted one if it
// is not sent. Errors: errs.UnsupportedMediaType, errs.BodyTooLarge, errs.Timeout,
// errs.InvalidRequest for a body that ends early, or the context's. It ends the read deadline of
// the request.
func ReadBody(w http.ResponseWriter, r *http.Request, rules BodyRules) (body []byte, mediaType string, err error) {
	if len(rules.MediaTypes) > 0 {
		if mediaType, err = checkMediaType(r, rules); err != nil {
			w.Header().Set("Accept", strings.Join(rules.MediaTypes, ", "))
			return nil, "", err
		}
	}
	inner := innermost(w)
	if r.ContentLength > rules.Limit {
		if r.Header.Get("Expect") == "" {
			// Reading one byte makes the server close the connection in a way that lets the response
			// through. A client that waits for "100 Continue" has not sent anything yet.
			_, _ = http.MaxBytesReader(inner, r.Body, 0).Read(make([]byte, 1))
		}
		return nil, "", tooLarge(rules.Limit)
	}
	counted, isLong := r.Body.(*CountedReader)
	if isLong {
		until, _ := r.Context().Deadline()
		counted.control, counted.until = http.NewResponseController(w), cmp.Or(until, time.Now().Add(maxArrival))
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), uncountedBytes)+bytes.MinRead)) // grows once the body is counted
	if _, err := buf.ReadFrom(http.MaxBytesReader(inner, r.Body, rules.Limit)); err != nil {
		return nil, "", readError(r, err, rules.Limit) // the read deadline stays: the server reads on
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if isLong {
		counted.enter()
	}
	return buf.Bytes(), mediaType, nil
}

// innermost returns the server's own response writer. MaxBytesReader notifies it of a body that is
// too large, and does not unwrap those of middlewares.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// checkMediaType checks Content-Type and Content-Encoding.
func checkMediaType(r *http.Request, rules BodyRules) (string, error) {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if c := strings.TrimSpace(coding); c != "" && !strings.EqualFold(c, "identity") {
			return "", unsupported("Content-Encoding", "identity", "the body must be sent without Content-Encoding, not as %q", input.Clip(c))
		}
	}
	sent := r.Header.Get("Content-Type")
	if sent == "" && (rules.TypeOptional || r.ContentLength == 0) {
		return rules.MediaTypes[0], nil
	}
	mediaType, params, err := mime.ParseMediaType(sent)
	charset := params["charset"]
	if err == nil && slices.Contains(rules.MediaTypes, mediaType) && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return mediaType, nil
	}
	found := "there is no Content-Type"
	if sent != "" {
		found = "it was " + input.Quote(sent)
	}
	return "", unsupported("Content-Type", "media_type", "the body must be %s in UTF-8; %s", strings.Join(rules.MediaTypes, " or "), found).
		With("accepted", rules.MediaTypes)
}

func unsupported(header, rule, format string, args ...any) *errs.Error {
	e := errs.New(errs.UnsupportedMediaType, format, args...)
	e.Fields = []errs.Field{{Header: header, Rule: rule, Detail: e.Detail}}
	return e
}

func tooLarge(limit int64) error {
	return errs.New(errs.BodyTooLarge, "the body must be at most %d bytes long", limit).With("limit", limit)
}

// readError returns the error for a body that could not be read.
func readError(r *http.Request, err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case errs.Is(err, errs.Unavailable):
		return err
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errs.Wrap(errs.Timeout, err, "the body did not arrive in time; a body of more than %d KiB must arrive at %d KiB per second", uncountedBytes>>10, arrivalRate>>10)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errs.Wrap(errs.InvalidRequest, err, "the body ended before its announced length")
	case r.Context().Err() != nil:
		return r.Context().Err()
	}
	return errs.Wrap(errs.InvalidRequest, err, "the body could not be read")
}

// Traceparent returns the W3C trace context of a request (Trace Context §3.2), "" if it is absent,
// repeated or invalid.
func Traceparent(r *http.Request) string {
	if lines := r.Header["Traceparent"]; len(lines) == 1 && telemetry.IsTraceparent(lines[0]) {
		return lines[0]
	}
	return ""
}

// PreferredWait returns N of "Prefer: wait=N" (RFC 7240 §4.3), in seconds and at most limit;
// preferred is false without it. Other preferences are ignored. The error is errs.InvalidHeader.
func PreferredWait(r *http.Request, limit time.Duration) (wait time.Duration, preferred bool, err error) {
	for preference := range strings.SplitSeq(strings.Join(r.Header["Prefer"], ","), ",") {
		preference, _, _ = strings.Cut(preference, ";")
		name, value, _ := strings.Cut(preference, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
		if errors.Is(err, strconv.ErrRange) {
			return limit, true, nil
		}
		if err != nil {
			e := errs.New(errs.InvalidHeader, "Prefer must have the form wait=N, where N is a number of whole seconds")
			e.Fields = []errs.Field{{Header: "Prefer", Rule: "wait", Detail: e.Detail}}
			return 0, false, e
		}
		return min(time.Duration(seconds)*time.Second, limit), true, nil
	}
	return 0, false, nil
}
