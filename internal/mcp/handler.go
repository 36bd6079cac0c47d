package mcp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/cors"
	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/models"
)

const (
	// Path is the path of the MCP endpoint.
	Path = "/mcp"
	// metadataPath is the path of the metadata of the resource (RFC 9728 §3.1).
	metadataPath = "/.well-known/oauth-protected-resource"
)

// HandlerOptions configures NewHandler; nil is the zero value.
type HandlerOptions struct {
	// Origins lists the origins whose web pages may call, such as https://app.example.com.
	Origins []string
	// Hosts lists the accepted names of the server. If it is empty, any name is accepted, but at a
	// loopback address only a loopback name.
	Hosts []string
	// PublicURL is the address of the server for clients; "" takes it from each request.
	PublicURL string
	// AuthorizationServers are listed in the metadata for clients that need a token.
	AuthorizationServers []string
	// Scopes are what clients request from those servers to call tools.
	Scopes []string
	// MaxBody is the size limit of a request in bytes, default 4 MiB.
	MaxBody int64
	// Limits are the limits of tokens and addresses that all APIs share, nil for limits of its own.
	Limits *httpkit.Limits
}

// Handler serves Streamable HTTP in all protocol versions on one path. As a background.Service it
// ends sessions and streams of tokens that are no longer accepted. Stop it after the HTTP server.
type Handler struct {
	*sessionTable
	server        *Server
	authenticator *httpkit.Authenticator
	opts          HandlerOptions
	requests      requestChecker
	// writeTimeout limits how long a client may read nothing of its response.
	writeTimeout time.Duration
	handler      http.Handler
}

// NewHandler returns the HTTP handler. Version 2026-07-28 has no sessions and older ones have: each
// kind has an SDK handler, selected by the version header.
func NewHandler(g *Server, tokens *auth.Auth, opts *HandlerOptions) (*Handler, error) {
	d := &Handler{server: g, sessionTable: newSessionTable(tokens.Lapsed, g.receivesLogs, g.log, g.opts.Clock), requests: newRequestChecker(), writeTimeout: defaultWriteTimeout}
	if opts != nil {
		d.opts = *opts
	}
	d.authenticator = httpkit.NewAuthenticator(tokens, &httpkit.AuthenticatorOptions{Limits: d.opts.Limits})
	server := func(*http.Request) *mcp.Server { return g.mcp }
	without := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless: true, Logger: sdkLogger(g.log), MaxRequestBodyBytes: d.opts.MaxBody, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
	})
	with := d.resumable(mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: sdkLogger(g.log), MaxRequestBodyBytes: d.opts.MaxBody, DisableLocalhostProtection: true, EventStore: d.events,
	}))
	pages := http.NewCrossOriginProtection()
	for _, origin := range d.opts.Origins {
		if err := pages.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	pages.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeHTTPError(w, http.StatusForbidden, nil, "", "web pages of "+input.Clip(r.Header.Get("Origin"))+" may not call this server; mcp.origins lists the permitted origins")
	}))
	d.handler = allowOrigins(d.opts.Origins, pages.Handler(d.authenticate(d.validateMessages(passIdentity(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*resultFilter); ok {
			_ = http.NewResponseController(a.ResponseWriter).SetReadDeadline(time.Time{}) // the request has arrived
		}
		if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
			d.serveLimited(w, r, without)
			return
		}
		d.serveLimited(w, r, with)
	}))))))
	return d, nil
}

// resumable prepares the streams of sessions for clients that resume them.
func (d *Handler) resumable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, after, intro := r.Header.Get("Mcp-Session-Id"), r.Header.Get("Last-Event-ID"), ""
		who, _ := r.Context().Value(identityKey{}).(identity)
		switch {
		case r.Method == http.MethodPost:
			intro = retryField
		case r.Method == http.MethodGet && after != "":
			d.events.interrupt(r.Context(), session, after, who.principal.TokenID)
		case r.Method == http.MethodGet:
			if after = d.events.lastEvent(session); after != "" {
				r.Header.Set("Last-Event-ID", after)
			}
			if r.Header.Get("Mcp-Protocol-Version") >= primingVersion {
				intro = retryField + "event: prime\nid: " + after + "\ndata: \n\n"
			}
		}
		if a, ok := w.(*resultFilter); ok {
			a.intro = intro
		}
		ctx, cancel := context.WithCancel(r.Context())
		reader := &streamReader{tokenID: who.principal.TokenID, cancel: cancel, ended: make(chan struct{})}
		defer func() { close(reader.ended) }() // keeps the reader reachable for its weak pointer
		defer cancel()
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, streamReaderKey{}, reader)))
	})
}

// serveLimited serves a request that may start a session or a stream. The streams of GET and of
// subscriptions/listen end with the server and with their token; a call is always answered.
func (d *Handler) serveLimited(w http.ResponseWriter, r *http.Request, next http.Handler) {
	who, _ := r.Context().Value(identityKey{}).(identity)
	stream, _, resumes := strings.Cut(r.Header.Get("Last-Event-ID"), "_")
	listens := r.Method == http.MethodPost && r.Header.Get("Mcp-Protocol-Version") >= statelessVersion && r.Header.Get("Mcp-Method") == "subscriptions/listen"
	switch {
	case r.Method == http.MethodGet && (stream == "" || !resumes), listens:
		if listens { // the stream of a session is counted with the session
			release, err := d.reserve(who.token)
			if err != nil {
				d.writeLimitReached(w, err)
				return
			}
			defer release()
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer d.add(who.token, cancel)()
		r = r.WithContext(ctx)
	case r.Method == http.MethodPost && r.Header.Get("Mcp-Protocol-Version") < statelessVersion && r.Header.Get("Mcp-Session-Id") == "":
		release, err := d.reserve(who.token) // it may start a session
		if err != nil {
			d.writeLimitReached(w, err)
			return
		}
		o := &opening{table: d.sessionTable, by: who, release: release}
		o.asking, o.endQuestions = context.WithCancel(context.WithoutCancel(r.Context()))
		defer o.end()
		r = r.WithContext(context.WithValue(r.Context(), openingKey{}, o))
	case r.Method == http.MethodDelete:
		d.endQuestions(r.Header.Get("Mcp-Session-Id"), who.principal.TokenID)
	case r.Header.Get("Mcp-Protocol-Version") < statelessVersion: // a GET resumes the stream of a call
		defer d.beginRequest(r.Header.Get("Mcp-Session-Id"))()
	}
	next.ServeHTTP(w, r)
}

// writeLimitReached responds to a request that gets no slot.
func (d *Handler) writeLimitReached(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "60")
	var id any
	if a, ok := w.(*resultFilter); ok {
		id = a.id
	}
	writeHTTPError(w, http.StatusServiceUnavailable, id, errs.CodeOf(err), errs.From(err).Detail)
}

// IsStreaming selects the requests that set their own deadlines.
func IsStreaming(r *http.Request) bool { return r.URL.Path == Path }

// ServeHTTP implements http.Handler.
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A call takes as long as its tool, and a stream as long as its client. The body and the token
	// must arrive in time.
	a := newResultFilter(w, r, d.writeTimeout, d.server.countFailure)
	defer a.finish()
	if !d.knowsHost(r) {
		writeHTTPError(a, http.StatusForbidden, nil, errs.InvalidHeader, "the host "+input.Clip(r.Host)+" is not a name of this server; behind a proxy, list it in mcp.hosts")
		return
	}
	if r.URL.Path != Path {
		d.serveMetadata(a, r)
		return
	}
	d.handler.ServeHTTP(a, r)
}

// knowsHost reports whether the Host of a request is a name of the server. Without a list, a name
// of another machine is rejected at a loopback address: it is a sign of DNS rebinding.
func (d *Handler) knowsHost(r *http.Request) bool {
	host := r.Host
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if len(d.opts.Hosts) == 0 {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		return at == nil || !isLoopback(at.String()) || isLoopback(name)
	}
	return slices.ContainsFunc(d.opts.Hosts, func(h string) bool { return strings.EqualFold(h, host) || strings.EqualFold(h, name) })
}

// isLoopback reports whether an address, with or without a port, is a loopback address.
func isLoopback(address string) bool {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	address = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	ip, err := netip.ParseAddr(address)
	return strings.EqualFold(address, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// serveMetadata returns the metadata of the protected resource (RFC 9728).
func (d *Handler) serveMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // browsers send the version header from any page
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Methods", "GET, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	sdkauth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: d.baseURL(r) + Path, AuthorizationServers: d.opts.AuthorizationServers,
		ScopesSupported: d.opts.Scopes, BearerMethodsSupported: []string{"header"},
		ResourceName: "comet", ResourceDocumentation: d.baseURL(r) + "/docs",
	}).ServeHTTP(w, r)
}

// baseURL returns the address of the server as the client sees it.
func (d *Handler) baseURL(r *http.Request) string {
	if d.opts.PublicURL != "" {
		return strings.TrimSuffix(d.opts.PublicURL, "/")
	}
	u := url.URL{Scheme: "http", Host: r.Host}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// Paths returns the paths that the handler serves.
func (d *Handler) Paths() []string { return []string{Path, metadataPath, metadataPath + Path} }

// allowOrigins lets web pages of the origins read responses, and answers their preflight requests.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.Handler(cors.Options{
		AllowOriginFunc: func(_ *http.Request, origin string) bool { return slices.Contains(origins, origin) },
		AllowedMethods:  []string{http.MethodGet, http.MethodPost, http.MethodDelete},
		AllowedHeaders:  []string{"*"}, // later protocol versions add headers
		ExposedHeaders:  []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate", "Retry-After", "X-Request-Id"},
		MaxAge:          600,
	})(next)
}

type identityKey struct{}

// identity is the principal of a request and the hash of its token.
type identity struct {
	principal models.Principal
	token     tokenHash
}

// authenticate forwards the requests whose token may call tools.
func (d *Handler) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := d.authenticator.Authenticate(w, r)
		err = httpkit.AsRateLimited(err)
		switch e := errs.From(err); {
		case err == nil:
		case e.Code == errs.RateLimited:
			w.Header().Set("Retry-After", fmt.Sprint(e.Meta["retry_after"]))
			writeHTTPError(w, http.StatusTooManyRequests, nil, e.Code, e.Detail)
			return
		case httpkit.IsRejected(err):
			d.challenge(w, r, http.StatusUnauthorized, e.Code, e.Detail)
			return
		default:
			d.server.log.Warn("tokens cannot be verified", "error", err)
			w.Header().Set("Retry-After", "5")
			writeHTTPError(w, http.StatusServiceUnavailable, nil, errs.Unavailable, "tokens cannot be verified at the moment; try again in a few seconds")
			return
		}
		if err := auth.Require(from.Principal, models.ScopeToolsCall); err != nil {
			d.challenge(w, r, http.StatusForbidden, errs.MissingScope, errs.From(err).Detail)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, identity{from.Principal, sha256.Sum256([]byte(from.Token))})))
	})
}

// passIdentity passes the identity of a request to the SDK.
func passIdentity(next http.Handler) http.Handler {
	// The SDK reads the token with its own verifier, which takes the identity from the context.
	return sdkauth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		v, ok := ctx.Value(identityKey{}).(identity)
		if !ok {
			return nil, sdkauth.ErrInvalidToken
		}
		return &sdkauth.TokenInfo{UserID: v.principal.TokenID, Extra: map[string]any{principalKey: v.principal}}, nil
	}, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

// challenge rejects a token and names the metadata of the resource (RFC 6750 §3, RFC 9728 §5.1).
func (d *Handler) challenge(w http.ResponseWriter, r *http.Request, status int, code errs.Code, sentence string) {
	w.Header().Add("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q, scope=%q%s", d.baseURL(r)+metadataPath+Path, strings.Join(d.opts.Scopes, " "), httpkit.TokenError(r, status, sentence)))
	writeHTTPError(w, status, nil, code, sentence)
}
