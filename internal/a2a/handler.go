// Package a2a is the server of the Linux Foundation's A2A protocol: version 1.0 over JSON-RPC and HTTP+JSON, and version 0.3
// over JSON-RPC. It uses the types of the official SDK, but not its bindings (docs/adr/0054-own-bindings-of-a2a.md).
package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
)

// The paths of the server.
const (
	rpcPath    = "/a2a"
	restPath   = "/a2a/rest"
	agentsPath = "/a2a/agents/"
	cardPath   = "/.well-known/agent-card.json"
	// oldCardPath is where clients of 0.2 look for a card. It has that of 0.3.
	oldCardPath = "/.well-known/agent.json"
)

// Handler serves the bindings and the cards.
type Handler struct {
	*service
	authenticator *httpkit.Authenticator
	started       time.Time
}

// New returns the handler.
func New(d Dependencies, opts *Options) *Handler {
	o := opts.orDefaults()
	return &Handler{
		service:       &service{d, o, httpkit.NewStreamLimits(o.MaxStreams)},
		authenticator: httpkit.NewAuthenticator(d.Auth, &httpkit.AuthenticatorOptions{Limits: o.Limits}),
		started:       d.Store.Now(),
	}
}

// Paths returns the paths that the handler serves, as patterns.
func (h *Handler) Paths() []string { return []string{rpcPath, rpcPath + "/*", cardPath, oldCardPath} }

// IsStreaming selects the requests that set their own deadlines.
func IsStreaming(r *http.Request) bool {
	return r.URL.Path == rpcPath || strings.HasPrefix(r.URL.Path, rpcPath+"/")
}

// Drain ends the streams, and the requests that wait for tasks.
func (h *Handler) Drain() { h.streams.Drain() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch rest, isREST := strings.CutPrefix(path, restPath+"/"); {
	case path == cardPath, path == oldCardPath:
		h.servePublicCard(w, r)
	case strings.HasPrefix(path, agentsPath):
		h.serveAgentCard(w, r)
	case isREST:
		h.serveREST(w, r, rest)
	case path == rpcPath, path == rpcPath+"/":
		h.serveRPC(w, r)
	default:
		h.writeError(w, fail(a2a.ErrMethodNotFound, "there is no %s", path))
	}
}

// call is a request of an authenticated client.
type call struct {
	w http.ResponseWriter
	r *http.Request
	sender
	token string
	// baseURL is the address of the server as the client sees it.
	baseURL string
}

// enter authenticates a request and reads its version.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request) (*call, error) {
	from, err := h.authenticator.Authenticate(w, r)
	if err = httpkit.AsRateLimited(err); err != nil {
		if httpkit.IsRejected(err) {
			w.Header().Set("WWW-Authenticate", "Bearer"+httpkit.TokenError(r, http.StatusUnauthorized, errs.From(err).Detail))
		}
		return nil, err
	}
	c := &call{w: w, r: r, sender: sender{Principal: from.Principal, traceparent: httpkit.Traceparent(r)}, token: from.Token, baseURL: h.baseURL(r)}
	c.legacy, err = version(r)
	return c, err
}

// version reports whether a request is of version 0.3, which is also that of requests without a version (A2A 1.0 §3.6.2).
func version(r *http.Request) (legacy bool, err error) {
	switch sentVersion(r) {
	case "", "0.3":
		return true, nil
	case "1.0":
		return false, nil
	}
	return false, fail(a2a.ErrVersionNotSupported, "the versions of A2A are 1.0 and 0.3, not %q", sentVersion(r))
}

// sentVersion returns the version in the header or the query of a request, "" for none.
func sentVersion(r *http.Request) string {
	return cmp.Or(strings.TrimSpace(r.Header.Get("A2A-Version")), r.URL.Query().Get("A2A-Version"))
}

// baseURL returns the address of the server as the client sees it.
func (h *Handler) baseURL(r *http.Request) string {
	switch {
	case h.opts.PublicURL != "":
		return strings.TrimSuffix(h.opts.PublicURL, "/")
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// readBody reads a JSON body.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: h.opts.MaxBody, MediaTypes: []string{"application/json", "application/a2a+json"}})
	return body, err
}

// do executes an operation with JSON parameters and returns its result. openStream opens streams.
func (h *Handler) do(c *call, operation string, params []byte) (any, error) {
	ctx, stop := h.streams.UntilDrain(c.r.Context())
	defer stop()
	switch operation {
	case "SendMessage":
		req, err := decode[sendRequest](params)
		if err != nil {
			return nil, err
		}
		httpkit.ReleaseBody(c.r)
		sent, err := h.send(ctx, c.sender, req, func() error { return h.checkToken(ctx, c) })
		return a2a.StreamResponse{Event: sent}, err
	case "GetTask", "CancelTask":
		req, err := decode[taskRequest](params)
		switch {
		case err != nil:
			return nil, err
		case operation == "GetTask":
			return h.get(ctx, c.Principal, req)
		}
		return h.cancel(context.WithoutCancel(ctx), c.Principal, req)
	case "ListTasks":
		req, err := decode[listRequest](params)
		if err != nil {
			return nil, err
		}
		return h.list(ctx, c.Principal, req)
	case "GetExtendedAgentCard":
		req, err := decode[cardRequest](params)
		if err != nil {
			return nil, err
		}
		out, err := h.extendedCard(c, req.Tenant)
		if err != nil {
			return nil, err
		}
		return h.signCard(ctx, c.baseURL, out.in(c.legacy))
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig":
		return h.push(context.WithoutCancel(ctx), c.sender, operation, params)
	}
	return nil, fail(a2a.ErrMethodNotFound, "version 1.0 has no method %s; those of version 0.3 need the header A2A-Version: 0.3", input.Quote(operation))
}

// isStream reports whether an operation returns a stream.
func isStream(operation string) bool {
	return operation == "SendStreamingMessage" || operation == "SubscribeToTask"
}

// openStream opens the stream of an operation.
func (h *Handler) openStream(ctx context.Context, c *call, operation string, params []byte) (*stream, error) {
	if operation == "SubscribeToTask" {
		req, err := decode[taskRequest](params)
		if err != nil {
			return nil, err
		}
		st, err := h.open(ctx, c.sender, req.ID, c.r.Header.Get("Last-Event-ID"), shown{artifacts: true})
		if _, resumes := readPlace(c.r.Header.Get("Last-Event-ID")); err == nil && st.f.ended() && !resumes {
			err = fail(a2a.ErrUnsupportedOperation, "the task %s has ended; get it instead", req.ID)
		}
		return st, err
	}
	req, err := decode[sendRequest](params)
	if err != nil {
		return nil, err
	}
	f, err := h.accept(ctx, c.sender, req)
	if err != nil {
		return nil, err
	}
	return h.open(ctx, c.sender, f.id(), "", shown{history: req.Configuration.HistoryLength, artifacts: true})
}

// checkToken returns an error if the token of a request that waits was revoked.
func (h *Handler) checkToken(ctx context.Context, c *call) error {
	if h.authenticator.Revoked(ctx, c.token) {
		c.w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		return fail(a2a.ErrUnauthenticated, "the token was revoked; send the request with another one")
	}
	return nil
}

// serveStream opens the stream of an operation and writes its events as wrap returns them. An error that it returns is for the
// client: the stream has not begun.
func (h *Handler) serveStream(c *call, operation string, params []byte, wrap func(a2a.Event) any) error {
	release, err := h.streams.Acquire(c.TokenID)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := h.streams.UntilDrain(c.r.Context())
	defer stop()
	st, err := h.openStream(ctx, c, operation, params)
	if err != nil {
		return err
	}
	httpkit.ReleaseBody(c.r)
	out := httpkit.NewEventStream(c.w, h.opts.WriteTimeout)
	c.w.WriteHeader(http.StatusOK)
	write := func(text []byte) error {
		if _, err := out.Write(text); err != nil {
			return err
		}
		return out.Flush()
	}
	err = st.run(ctx, c.sender, func(id string, e a2a.Event) error {
		text, err := json.Marshal(wrap(e))
		if err != nil {
			return err
		}
		return write(httpkit.AppendEvent(nil, id, "", text))
	}, func() error {
		if err := h.checkToken(ctx, c); err != nil {
			return err
		}
		return write([]byte(": idle\n\n"))
	})
	if err != nil && ctx.Err() == nil {
		h.opts.Logger.Debug("the stream of a task was interrupted", "task", st.f.id(), "error", err)
	}
	return nil
}

// writeJSON writes a response.
func (h *Handler) writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		h.opts.Logger.Error("a response cannot be encoded", "error", err)
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	out := httpkit.NewStream(w, h.opts.WriteTimeout) // the request may have waited for longer than the server's deadline
	out.ExtendDeadline()
	w.WriteHeader(status)
	_, _ = out.Write(text) // the client is gone otherwise
}

// report returns how a failure is reported. It counts it, logs it if it is the server's, and sets Retry-After.
func (h *Handler) report(w http.ResponseWriter, err error) (failure, string) {
	f, text := describe(err)
	if f.status == http.StatusInternalServerError {
		h.opts.Logger.Error("an A2A request failed", "error", err)
	}
	if after := errs.From(err).Meta["retry_after"]; after != nil {
		w.Header().Set("Retry-After", fmt.Sprint(after))
	} else if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if f.status == http.StatusForbidden {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", error_description=%+q`, text))
	}
	if h.opts.OnFailure != nil {
		h.opts.OnFailure(cmp.Or(f.reason, f.grpc))
	}
	return f, text
}
