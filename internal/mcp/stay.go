package mcp

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
)

// slotKey is under which the context of a session's first request has its place.
type slotKey struct{}

// serveLimited serves a request that may last or begin what lasts. A stream ends with the server, and
// when its token does; a call is answered.
func (d *Handler) serveLimited(w http.ResponseWriter, r *http.Request, next http.Handler) {
	who, _ := r.Context().Value(identityKey{}).(identity)
	listens := r.Header.Get("Mcp-Protocol-Version") >= statelessVersion && r.Header.Get("Mcp-Method") == "subscriptions/listen"
	switch {
	case r.Method == http.MethodGet:
		ctx, cancel := d.untilDrained(r.Context())
		defer cancel()
		defer d.sessions.addStream(who.token, cancel).release()
		r = r.WithContext(ctx)
	case r.Method == http.MethodPost && (listens || r.Header.Get("Mcp-Protocol-Version") < statelessVersion && r.Header.Get("Mcp-Session-Id") == ""):
		p, err := d.sessions.reserve(who.token)
		if err != nil {
			d.writeLimitReached(w, err)
			return
		}
		defer p.release()
		ctx, cancel := r.Context(), context.CancelFunc(func() {})
		if listens {
			ctx, cancel = d.untilDrained(ctx)
			p.cancelOnRevoke(cancel)
		}
		defer cancel()
		r = r.WithContext(context.WithValue(ctx, slotKey{}, p))
	case r.Method == http.MethodPost && r.Header.Get("Mcp-Protocol-Version") < statelessVersion:
		defer d.sessions.beginRequest(r.Header.Get("Mcp-Session-Id"))()
	}
	next.ServeHTTP(w, r)
}

// untilDrained is a context that ends with the server.
func (d *Handler) untilDrained(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.draining, cancel)
	return ctx, func() { stop(); cancel() }
}

// writeLimitReached answers a request for which there is no place.
func (d *Handler) writeLimitReached(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "60")
	var id any
	if a, ok := w.(*resultFilter); ok {
		id = a.id
	}
	writeHTTPError(w, http.StatusServiceUnavailable, id, errs.CodeOf(err), errs.From(err).Detail)
}

// bindSession gives a session the place that its first request has taken.
func bindSession(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if method != "initialize" || err != nil {
			return res, err
		}
		p, ok := ctx.Value(slotKey{}).(*slot)
		if session, is := req.GetSession().(*mcp.ServerSession); ok && is {
			p.bind(session)
		}
		return res, nil
	}
}
