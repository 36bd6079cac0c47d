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
