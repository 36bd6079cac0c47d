package transport

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

const (
	agentRoot       = "/api/agent/"
	contentTypeJSON = "application/json"
	contentTypeForm = "application/x-www-form-urlencoded" // curl's default
	// bodyTimeout is how long sending a response may take, in addition to the time it waits.
	bodyTimeout = 30 * time.Second
	// maxEchoBytes is the longest message that is read from a rejected caller, to name the message
	// in the refusal.
	maxEchoBytes = 64 << 10
)

// handler serves a request. Its error is written as a refusal of the protocol.
type handler func(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error

// Mount adds the agents' routes. They authenticate requests themselves, because the protocol
// formats refusals.
func (s *Server) Mount(r chi.Router) {
	r.Post(agentRoot+"message", s.endpoint(s.sendMessage))
	r.Get(agentRoot+"connect", s.endpoint(agentsOnly(s.connectAgent)))
	r.Get(agentRoot+"inbox", s.endpoint(agentsOnly(s.pollInbox)))
	r.Post(agentRoot+"inbox/ack", s.endpoint(agentsOnly(s.acknowledgeInbox)))
	r.Get(agentRoot+"stream", s.endpoint(agentsOnly(s.streamInbox)))
	r.Put(agentRoot+"push", s.endpoint(agentsOnly(s.putPushRegistration)))
	r.Get(agentRoot+"push", s.endpoint(agentsOnly(s.getPushRegistration)))
	r.Delete(agentRoot+"push", s.endpoint(agentsOnly(s.deletePushRegistration)))
	for _, proto := range s.protocols {
		if proto.info.Path == "" {
			continue
		}
		r.Post(proto.info.Path+"messages", s.endpointFor(proto, func(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error {
			return s.receiveMessages(w, r, from, proto)
		}))
		if proto.info.Prompt != nil {
			r.Get(proto.info.Path+"prompts/{name}", s.endpointFor(proto, getPrompt(proto)))
		}
	}
}

// IsStreaming reports whether a request sets its own deadlines.
func (s *Server) IsStreaming(r *http.Request) bool {
	switch r.URL.Path {
	case agentRoot + "message", agentRoot + "connect", agentRoot + "inbox", agentRoot + "stream":
		return true
	}
	prefix, isMessages := strings.CutSuffix(r.URL.Path, "messages")
	return isMessages && s.protocols.find(func(i protocol.Info) bool { return i.Path != "" && i.Path == prefix }) != nil
}

// endpoint wraps a handler with authentication and rate limiting.
func (s *Server) endpoint(next handler) http.HandlerFunc { return s.endpointFor(nil, next) }

// endpointFor is endpoint with the refusals of a protocol, nil for that of the request.
func (s *Server) endpointFor(proto *describedProtocol, next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, err := s.authenticate(w, r, proto)
		switch {
		case err != nil:
		case r.Method == http.MethodHead: // a HEAD response could not carry the result
			w.Header().Set("Allow", http.MethodGet)
			err = errs.New(errs.MethodNotAllowed, "HEAD is not allowed here; use GET")
		default:
			err = next(w, r, from)
		}
		if err != nil {
			s.writeRefusal(w, r, proto, err)
		}
	}
}

// agentsOnly rejects tokens that are not bound to an agent.
func agentsOnly(next func(w http.ResponseWriter, r *http.Request, from httpkit.Identity, agentID string) error) handler {
	return func(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error {
		if from.AgentID == nil {
			return errs.New(errs.ForeignAgent, "the token %q is bound to no agent; this endpoint is for agents", from.Name)
		}
		return next(w, r, from, *from.AgentID)
	}
}

// readShortBody returns the message of a request, nil if it is long or cannot be read.
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

func (s *Server) writeRefusal(w http.ResponseWriter, r *http.Request, proto *describedProtocol, err error) {
	proto = cmp.Or(proto, s.protocols.ofRequest(r))
	var raw []byte
	beforeBody := []errs.Code{errs.Unauthenticated, errs.AgentInactive, errs.MissingScope, errs.ForeignAgent, errs.RateLimited}
	if len(r.Header["Authorization"]) == 0 { // authenticate has read the body and put it back
		beforeBody = append(beforeBody, errs.InvalidRequest)
	}
	if slices.Contains(beforeBody, errs.CodeOf(err)) && !httpkit.IsThrottled(err) {
		raw = readShortBody(r)
	}
	if errs.CodeOf(err) == errs.Unauthenticated && len(r.Header["Authorization"]) == 0 {
		err = errs.New(errs.Unauthenticated, "the header Authorization is missing").With("header", "Authorization")
	}
	e := errs.From(err)
	status := map[errs.Code]int{
		errs.BodyTooLarge: http.StatusRequestEntityTooLarge, errs.UnsupportedMediaType: http.StatusUnsupportedMediaType,
		errs.MethodNotAllowed: http.StatusMethodNotAllowed, errs.NotFound: http.StatusNotFound, errs.Timeout: http.StatusRequestTimeout,
	}[e.Code]
	if httpkit.IsThrottled(err) {
		status = http.StatusTooManyRequests
	}
	switch e.Code {
	case errs.AgentInactive, errs.ForeignAgent, errs.MissingScope: // the response does not say why
		s.log.InfoContext(r.Context(), "a request was refused", "reason", e.Detail, "path", r.URL.Path)
	case errs.Internal:
		s.log.ErrorContext(r.Context(), "a request of an agent failed", "path", r.URL.Path, "error", err)
	}
	reply := proto.Refuse(err, raw)
	if !proto.info.Framed {
		reply.Body = append(reply.Body, '\n')
	}
	reply.Status = cmp.Or(status, reply.Status)
	if seconds, ok := e.Meta["retry_after"].(int); ok {
		reply.RetryAfter = time.Duration(seconds) * time.Second
	}
	if reply.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeReply(w, reply)
}

func writeReply(w http.ResponseWriter, reply protocol.Reply) {
	h := w.Header()
	if reply.Location != "" {
		h.Set("Location", reply.Location)
	}
	if reply.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(reply.RetryAfter.Seconds()))))
	}
	if len(reply.Body) > 0 {
		reply.ContentType = cmp.Or(reply.ContentType, contentTypeJSON)
		h.Set("Content-Type", reply.ContentType)
		h.Set("Content-Length", strconv.Itoa(len(reply.Body)))
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body) // the client may be gone by now
}

// writeJSON responds with v. On an error nothing has been sent.
func writeJSON(w http.ResponseWriter, v any) error {
	var b bytes.Buffer
	if err := json.MarshalWrite(&b, v); err != nil {
		return err
	}
	writeReply(w, protocol.Reply{Status: http.StatusOK, Body: b.Bytes()})
	return nil
}

// extendDeadlines replaces the server's deadlines for a request whose body was read and which may
// wait. The errors are ignored: only a test's response writer returns one.
func extendDeadlines(w http.ResponseWriter, wait time.Duration) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(wait + bodyTimeout))
}

// readBody reads a JSON body of at most limit bytes; the errors are those of httpkit.ReadBody.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	raw, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: limit, MediaTypes: []string{contentTypeJSON}, TypeOptional: true})
	return raw, err
}

// requestedConnection returns the connection and the protocol version that the parameters
// concurrency, protocol and versions select. q holds further parameters that were read before.
func (s *Server) requestedConnection(r *http.Request, q *httpkit.Query, transport, agentID string) (c *connection, version string, err error) {
	concurrency, versions := q.Int("concurrency", 1, orchestrator.MaxConcurrency, 1), listParam(q, "versions")
	name, _ := q.Value("protocol")
	if err := q.Err(); err != nil {
		return nil, "", err
	}
	proto, err := s.protocols.required(name)
	if err != nil {
		return nil, "", err
	}
	if version, err = proto.negotiate(versions); err != nil {
		return nil, "", err
	}
	agent, err := s.acceptedAgent(r.Context(), proto, agentID)
	if err != nil {
		return nil, "", err
	}
	return s.newConnection(agent, transport, proto, concurrency), version, nil
}

// listParam returns the values of a comma-separated parameter.
func listParam(q *httpkit.Query, name string) []string {
	text, _ := q.Value(name)
	if text == "" {
		return nil
	}
	values := strings.Split(text, ",")
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
	return values
}
