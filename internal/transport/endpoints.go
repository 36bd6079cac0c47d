package transport

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

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/internal/words"
	"comet/models"
)

const (
	agentRoot       = "/api/agent/"
	contentTypeJSON = "application/json"
	// bodyTimeout is how long an answer may take to be read, beside what it waits for.
	bodyTimeout = 30 * time.Second
	// maxEchoBytes is how much of a message is read of somebody whose token is not accepted,
	// to name the message in the refusal.
	maxEchoBytes = 64 << 10
)

// caller is who makes a request.
type caller struct {
	models.Principal
	token string
}

// handler answers a request; its error is written as the dialect's refusal.
type handler func(w http.ResponseWriter, r *http.Request, who caller) error

// Mount adds the routes of the agents' door. They authenticate themselves, because a
// refusal is in the dialect's words.
func (l *Server) Mount(r chi.Router) {
	r.Post(agentRoot+"message", l.endpoint(l.postMessage))
	r.Get(agentRoot+"connect", l.endpoint(agentsOnly(l.connectWebSocket)))
	r.Get(agentRoot+"inbox", l.endpoint(agentsOnly(l.getInbox)))
	r.Post(agentRoot+"inbox/ack", l.endpoint(agentsOnly(l.ackInbox)))
	r.Get(agentRoot+"stream", l.endpoint(agentsOnly(l.streamInbox)))
	r.Put(agentRoot+"push", l.endpoint(agentsOnly(l.putPush)))
	r.Get(agentRoot+"push", l.endpoint(agentsOnly(l.getPush)))
	r.Delete(agentRoot+"push", l.endpoint(agentsOnly(l.deletePush)))
	if speech := l.unframedProtocol(); speech != nil {
		r.Post(v5Root+"messages", l.endpointFor(speech, l.postV5Messages(speech)))
		r.Get(v5Root+"prompts/{name}", l.endpointFor(speech, getPrompt(speech)))
	}
}

// IsStreaming selects the requests that set their own limits of time.
func IsStreaming(r *http.Request) bool {
	switch r.URL.Path {
	case agentRoot + "message", agentRoot + "connect", agentRoot + "inbox", agentRoot + "stream", v5Root + "messages":
		return true
	}
	return false
}

// endpoint lets in whoever has a token and does not ask too often.
func (l *Server) endpoint(next handler) http.HandlerFunc {
	return l.endpointFor(l.defaultProtocol, next)
}

// endpointFor is door with refusals in the words of a dialect.
func (l *Server) endpointFor(speech protocol.Protocol, next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, token, err := l.authenticator.authenticate(r)
		if err == nil {
			err = l.opts.Admit(w, r, p.TokenID)
		}
		switch {
		case err != nil:
		case r.Method == http.MethodHead: // the answer would be lost
			err = errs.New(errs.MethodNotAllowed, "HEAD is not allowed here")
		default:
			err = next(w, r, caller{p, token})
		}
		if err != nil {
			l.writeRefusal(w, r, speech, err)
		}
	}
}

// agentsOnly lets in whoever is an agent.
func agentsOnly(next func(w http.ResponseWriter, r *http.Request, who caller, agentID string) error) handler {
	return func(w http.ResponseWriter, r *http.Request, who caller) error {
		if who.AgentID == nil {
			return errs.New(errs.ForeignAgent, "the token %q is bound to no agent, and this is for agents", who.Name)
		}
		return next(w, r, who, *who.AgentID)
	}
}

// failsBeforeBody reports whether an error comes before the message was read.
func failsBeforeBody(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent, errs.RateLimited:
		return !isThrottled(err)
	}
	return false
}

// readShortBody returns a message that is not long, nil for another.
func readShortBody(r *http.Request) []byte {
	if r.Method != http.MethodPost || r.ContentLength > maxEchoBytes {
		return nil
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxEchoBytes+1))
	if err != nil || len(raw) > maxEchoBytes {
		return nil
	}
	return raw
}

// writeRefusal answers with an error in the dialect's words.
func (l *Server) writeRefusal(w http.ResponseWriter, r *http.Request, speech protocol.Protocol, err error) {
	var raw []byte
	if failsBeforeBody(err) {
		raw = readShortBody(r)
	}
	err = explainMissingHeader(r, err)
	e, status := errs.From(err), 0
	switch e.Code {
	case errs.Unauthenticated:
		if isThrottled(err) {
			status = http.StatusTooManyRequests
		}
	case errs.BodyTooLarge:
		status = http.StatusRequestEntityTooLarge
	case errs.UnsupportedMediaType:
		status = http.StatusUnsupportedMediaType
	case errs.MethodNotAllowed:
		status = http.StatusMethodNotAllowed
	case errs.NotFound:
		status = http.StatusNotFound
	case errs.Internal:
		l.log.ErrorContext(r.Context(), "a request of an agent failed", "path", r.URL.Path, "error", err)
	}
	a := speech.Refuse(err, raw)
	if speech.Unframed() {
		a.Body = append(a.Body, '\n')
	}
	if status != 0 {
		a.Status = status
	}
	if seconds, ok := e.Meta[retryAfter].(int); ok {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	if a.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeReply(w, a)
}

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

// intParam reads a whole number of a range.
func (q *query) intParam(name string, least, most, otherwise int) int {
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

// listParam reads words that are separated by commas.
func (q *query) listParam(name string) []string {
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
