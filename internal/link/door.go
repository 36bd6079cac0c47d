package link

import (
	"bytes"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"comet/internal/dialect"
	"comet/internal/errs"
	"comet/internal/words"
	"comet/models"
)

const (
	root            = "/api/agent/"
	contentTypeJSON = "application/json"
	// bodyTimeout is how long an answer may take to be read, beside what it waits for.
	bodyTimeout = 30 * time.Second
	// maxEcho is how much of a message is read of somebody whose token is not accepted,
	// to name the message in the refusal.
	maxEcho = 64 << 10
)

// visitor is who makes a request.
type visitor struct {
	models.Principal
	token string
}

// handler answers a request; its error is written as the dialect's refusal.
type handler func(w http.ResponseWriter, r *http.Request, who visitor) error

// Mount adds the routes of the agents' door. They authenticate themselves, because a
// refusal is in the dialect's words.
func (l *Links) Mount(r chi.Router) {
	r.Post(root+"message", l.door(l.message))
	r.Get(root+"connect", l.door(ofAgent(l.connect)))
	r.Get(root+"inbox", l.door(ofAgent(l.inbox)))
	r.Post(root+"inbox/ack", l.door(ofAgent(l.acknowledge)))
	r.Get(root+"stream", l.door(ofAgent(l.stream)))
	r.Put(root+"push", l.door(ofAgent(l.putPush)))
	r.Get(root+"push", l.door(ofAgent(l.getPush)))
	r.Delete(root+"push", l.door(ofAgent(l.deletePush)))
}

// Endless selects the requests that set their own limits of time.
func Endless(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, root) }

// door lets in whoever has a token.
func (l *Links) door(next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, token, err := l.doorman.request(r)
		var raw []byte
		switch {
		case err == nil && r.Method == http.MethodHead: // the answer would be lost
			err = errs.New(errs.MethodNotAllowed, "HEAD is not allowed here")
		case err == nil:
			err = next(w, r, visitor{p, token})
		case rejected(err):
			raw = beginning(r)
		}
		if err != nil {
			l.refuse(w, r, err, raw)
		}
	}
}

// ofAgent lets in whoever is an agent.
func ofAgent(next func(w http.ResponseWriter, r *http.Request, who visitor, agentID string) error) handler {
	return func(w http.ResponseWriter, r *http.Request, who visitor) error {
		if who.AgentID == nil {
			return errs.New(errs.ForeignAgent, "the token %q is bound to no agent, and this is for agents", who.Name)
		}
		return next(w, r, who, *who.AgentID)
	}
}

// beginning returns a message that is not long, nil for another.
func beginning(r *http.Request) []byte {
	if r.Method != http.MethodPost || r.ContentLength > maxEcho {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxEcho+1))
	if err != nil || len(raw) > maxEcho {
		return nil
	}
	return raw
}

// refuse answers with an error in the dialect's words.
func (l *Links) refuse(w http.ResponseWriter, r *http.Request, err error, raw []byte) {
	e, status := errs.From(err), 0
	switch e.Code {
	case errs.RateLimited:
		// Whoever tries tokens is not told more than that the last one was wrong.
		status = http.StatusTooManyRequests
		err = errs.New(errs.Unauthenticated, "the token is unknown, expired or revoked")
	case errs.BodyTooLarge:
		status = http.StatusRequestEntityTooLarge
	case errs.UnsupportedMediaType:
		status = http.StatusUnsupportedMediaType
	case errs.MethodNotAllowed:
		status = http.StatusMethodNotAllowed
	case errs.MissingScope, errs.ForeignAgent:
		status = http.StatusForbidden
	case errs.Internal:
		l.log.ErrorContext(r.Context(), "a request of an agent failed", "path", r.URL.Path, "error", err)
	}
	a := l.speech.Refuse(err, raw)
	if status != 0 {
		a.Status = status
	}
	if wait, ok := e.Meta[retryAfter].(time.Duration); ok {
		a.RetryAfter = wait
	}
	if a.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	write(w, a)
}

// write sends an answer of the dialect.
func write(w http.ResponseWriter, a dialect.Answer) {
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
	write(w, dialect.Answer{Status: http.StatusOK, Body: b.Bytes()})
	return nil
}

// unbind takes the server's limits of time from a request whose body was read and whose
// answer waits for something. Only a test's writer cannot do this.
func unbind(w http.ResponseWriter, wait time.Duration) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(wait + bodyTimeout))
}

// readBody reads a body of JSON of up to most bytes. The errors are
// errs.UnsupportedMediaType, errs.BodyTooLarge, errs.Timeout and errs.InvalidRequest.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if text := r.Header.Get("Content-Type"); text != "" {
		kind, _, err := mime.ParseMediaType(text)
		if err != nil || kind != contentTypeJSON {
			return nil, errs.New(errs.UnsupportedMediaType, "the body must be %s, not %s", contentTypeJSON, words.Quote(text))
		}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errs.New(errs.BodyTooLarge, "the message is over the limit of %d bytes", most)
	case err != nil:
		return nil, errs.Wrap(errs.InvalidRequest, err, "the message did not come whole")
	}
	return raw, nil
}

// query reads the parameters of a request. Errors are kept until they are asked for.
type query struct {
	values url.Values
	err    error
}

func parseQuery(r *http.Request, known ...string) *query {
	q := &query{}
	q.values, q.err = url.ParseQuery(r.URL.RawQuery)
	if q.err != nil {
		q.err = errs.Wrap(errs.InvalidParameter, q.err, "the query of the address cannot be read")
	}
	for name, all := range q.values {
		switch {
		case !slices.Contains(known, name):
			q.fail("there is no parameter %s here, only %s", words.Quote(name), strings.Join(known, ", "))
		case len(all) > 1:
			q.fail("the parameter %s is given more than once", name)
		}
	}
	return q
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = errs.New(errs.InvalidParameter, format, args...)
	}
}

// number reads a whole number of a range.
func (q *query) number(name string, least, most, otherwise int) int {
	text := q.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.fail("%s must be a whole number from %d to %d, not %s", name, least, most, words.Quote(text))
	}
	return n
}

// list reads words that are separated by commas.
func (q *query) list(name string) []string {
	text := q.values.Get(name)
	if text == "" {
		return nil
	}
	all := strings.Split(text, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}
