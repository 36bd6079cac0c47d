package mcp

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
)

// placeKey is under which the context of a session's first request has its place.
type placeKey struct{}

// stay serves a request that may last or begin what lasts. A stream ends with the server, and
// when its token does; a call is answered.
func (d *Handler) stay(w http.ResponseWriter, r *http.Request, next http.Handler) {
	who, _ := r.Context().Value(visitorKey{}).(visitor)
	listens := r.Header.Get("Mcp-Protocol-Version") >= stateless && r.Header.Get("Mcp-Method") == "subscriptions/listen"
	switch {
	case r.Method == http.MethodGet:
		ctx, cancel := d.ending(r.Context())
		defer cancel()
		defer d.guests.stream(who.secret, cancel).leave()
		r = r.WithContext(ctx)
	case r.Method == http.MethodPost && (listens || r.Header.Get("Mcp-Protocol-Version") < stateless && r.Header.Get("Mcp-Session-Id") == ""):
		p, err := d.guests.enter(who.secret)
		if err != nil {
			d.turnAway(w, err)
			return
		}
		defer p.leave()
		ctx, cancel := r.Context(), context.CancelFunc(func() {})
		if listens {
			ctx, cancel = d.ending(ctx)
			p.listen(cancel)
		}
		defer cancel()
		r = r.WithContext(context.WithValue(ctx, placeKey{}, p))
	case r.Method == http.MethodPost && r.Header.Get("Mcp-Protocol-Version") < stateless:
		defer d.guests.asks(r.Header.Get("Mcp-Session-Id"))()
	}
	next.ServeHTTP(w, r)
}

// ending is a context that ends with the server.
func (d *Handler) ending(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.drained, cancel)
	return ctx, func() { stop(); cancel() }
}

// turnAway answers a request for which there is no place.
func (d *Handler) turnAway(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "60")
	var id any
	if a, ok := w.(*answer); ok {
		id = a.id
	}
	refuse(w, http.StatusServiceUnavailable, id, errs.CodeOf(err), errs.From(err).Detail)
}

// seated gives a session the place that its first request has taken.
func seated(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if method != "initialize" || err != nil {
			return res, err
		}
		p, ok := ctx.Value(placeKey{}).(*place)
		if session, is := req.GetSession().(*mcp.ServerSession); ok && is {
			p.seat(session)
		}
		return res, nil
	}
}
