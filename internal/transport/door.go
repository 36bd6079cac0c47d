package transport

import (
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/protocol"
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
func (l *Transports) Mount(r chi.Router) {
	r.Post(root+"message", l.door(l.message))
	r.Get(root+"connect", l.door(ofAgent(l.connect)))
	r.Get(root+"inbox", l.door(ofAgent(l.inbox)))
	r.Post(root+"inbox/ack", l.door(ofAgent(l.acknowledge)))
	r.Get(root+"stream", l.door(ofAgent(l.stream)))
	r.Put(root+"push", l.door(ofAgent(l.putPush)))
	r.Get(root+"push", l.door(ofAgent(l.getPush)))
	r.Delete(root+"push", l.door(ofAgent(l.deletePush)))
	if speech := l.plain(); speech != nil {
		r.Post(textRoot+"messages", l.doorIn(speech, l.texts(speech)))
		r.Get(textRoot+"prompts/{name}", l.doorIn(speech, prompts(speech)))
	}
}

// IsStreaming selects the requests that set their own limits of time.
func IsStreaming(r *http.Request) bool {
	switch r.URL.Path {
	case root + "message", root + "connect", root + "inbox", root + "stream", textRoot + "messages":
		return true
	}
	return false
}

// door lets in whoever has a token and does not ask too often.
func (l *Transports) door(next handler) http.HandlerFunc { return l.doorIn(l.speech, next) }

// doorIn is door with refusals in the words of a dialect.
func (l *Transports) doorIn(speech protocol.Protocol, next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, token, err := l.doorman.request(r)
		if err == nil {
			err = l.opts.Admit(w, r, p.TokenID)
		}
		switch {
		case err != nil:
		case r.Method == http.MethodHead: // the answer would be lost
			err = errs.New(errs.MethodNotAllowed, "HEAD is not allowed here")
		default:
			err = next(w, r, visitor{p, token})
		}
		if err != nil {
			l.refuse(w, r, speech, err)
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

// isUnread reports whether an error comes before the message was read.
func isUnread(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent, errs.RateLimited:
		return !shutOut(err)
	}
	return false
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
func (l *Transports) refuse(w http.ResponseWriter, r *http.Request, speech protocol.Protocol, err error) {
	var raw []byte
	if isUnread(err) {
		raw = beginning(r)
	}
	err = withoutHeader(r, err)
	e, status := errs.From(err), 0
	switch e.Code {
	case errs.Unauthenticated:
		if shutOut(err) {
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
	write(w, a)
}
