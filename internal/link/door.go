package link

import (
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
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
func Endless(r *http.Request) bool {
	switch r.URL.Path {
	case root + "message", root + "connect", root + "inbox", root + "stream":
		return true
	}
	return false
}

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
