package mcp

import (
	"context"
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
	"comet/models"
)

const (
	// Path is where MCP clients come in.
	Path = "/mcp"
	// metadataPath is where they learn how (RFC 9728 §3.1).
	metadataPath = "/.well-known/oauth-protected-resource"
)

// HandlerOptions configures Door; nil is the zero value.
type HandlerOptions struct {
	// Origins may call from a web page of another origin, such as https://app.example.com.
	Origins []string
	// Hosts are the names the server goes by; none in it takes any that is not a trick
	// played on a loopback address.
	Hosts []string
	// PublicURL is how clients reach the server, "" for as they say themselves.
	PublicURL string
	// AuthorizationServers are told to clients that look for a token.
	AuthorizationServers []string
	// MaxBody is the longest request in bytes, default 4 MiB.
	MaxBody int64
	// RateLimit counts a request of a token, and may refuse it; nil admits all.
	RateLimit func(w http.ResponseWriter, r *http.Request, tokenID string) error
}

// Handler is the gateway over HTTP: Streamable HTTP of all revisions on one path. As a
// lifecycle.Service it ends what is open in the name of tokens that are no longer accepted; it
// is stopped when no requests come any more.
type Handler struct {
	*sessions
	server  *Server
	tokens  *auth.Auth
	opts    HandlerOptions
	schemas requestSchemas
	// writeTimeout is for how long a client may take nothing of what it is told.
	writeTimeout time.Duration
	handler      http.Handler
	draining     context.Context
	startDrain   context.CancelFunc
}

// NewHandler returns the HTTP door. The 2026-07-28 revision has no sessions and those before it
// have: each is a handler of its own, chosen by what the request says it speaks.
func NewHandler(g *Server, tokens *auth.Auth, opts *HandlerOptions) (*Handler, error) {
	d := &Handler{server: g, tokens: tokens, sessions: newSessions(tokens.Lapsed, g.log), schemas: newRequestSchemas(), writeTimeout: defaultWriteTimeout}
	if opts != nil {
		d.opts = *opts
	}
	d.draining, d.startDrain = context.WithCancel(context.Background())
	server := func(*http.Request) *mcp.Server { return g.mcp }
	without := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless: true, Logger: sdkLogger(g.log), MaxRequestBodyBytes: d.opts.MaxBody, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
	})
	with := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: sdkLogger(g.log), MaxRequestBodyBytes: d.opts.MaxBody, SessionTimeout: sessionIdleTimeout, DisableLocalhostProtection: true,
	})
	pages := http.NewCrossOriginProtection()
	for _, origin := range d.opts.Origins {
		if err := pages.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	pages.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeHTTPError(w, http.StatusForbidden, nil, "", "a web page of "+clip(r.Header.Get("Origin"))+" may not call this server; mcp.origins names those that may")
	}))
	d.handler = allowOrigins(d.opts.Origins, pages.Handler(d.authenticate(d.validateMessages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, ok := w.(*resultFilter); ok {
			a.clearReadDeadline() // the request has come
		}
		if r.Header.Get("Mcp-Protocol-Version") >= statelessVersion {
			d.serveLimited(w, r, without)
			return
		}
		d.serveLimited(w, r, with)
	})))))
	return d, nil
}

// IsStreaming selects the requests that set their own limits of time.
func IsStreaming(r *http.Request) bool { return r.URL.Path == Path }

// ServeHTTP implements http.Handler.
func (d *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A call takes as long as its tool, a stream as long as its client; but who has not said
	// what he wants, and who he is, does not hold the connection.
	a := &resultFilter{deadlineWriter: newDeadlineWriter(w, d.writeTimeout), r: r}
	defer a.finish()
	a.limitRequest()
	if !d.knowsHost(r) {
		writeHTTPError(a, http.StatusForbidden, nil, errs.InvalidHeader, "the server does not go by the name "+clip(r.Host)+"; behind a proxy that says so, mcp.hosts has to name it")
		return
	}
	if r.URL.Path != Path {
		d.serveMetadata(a, r)
		return
	}
	d.handler.ServeHTTP(a, r)
}

// Drain ends the streams and sessions, which the server waits for when it stops. It may be
// called twice.
func (d *Handler) Drain() {
	d.startDrain()
	d.sessions.drain()
}

// knowsHost reports whether the server goes by the name that a request has for it. Without a list
// those are refused that are not of this machine at an address that is: a name of another's
// leads there by a trick (DNS rebinding).
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

// isLoopback reports whether an address, with a port or without, is of this machine only.
func isLoopback(address string) bool {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	address = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	ip, err := netip.ParseAddr(address)
	return strings.EqualFold(address, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// serveMetadata says what the resource is and how it wants to be asked (RFC 9728).
func (d *Handler) serveMetadata(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // the browser of any page may ask, and says its revision with it
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Methods", "GET, OPTIONS")
		w.Header().Set("Access-Control-Allow-Headers", "*")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	sdkauth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: d.baseURL(r) + Path, AuthorizationServers: d.opts.AuthorizationServers,
		ScopesSupported: []string{string(models.ScopeToolsCall)}, BearerMethodsSupported: []string{"header"},
		ResourceName: "comet", ResourceDocumentation: d.baseURL(r) + "/docs",
	}).ServeHTTP(w, r)
}

// baseURL is how the client reached the server.
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

// Paths are what the door answers.
func (d *Handler) Paths() []string { return []string{Path, metadataPath, metadataPath + Path} }

// allowOrigins lets web pages of other origins read what they are answered (CORS), and answers the
// question that their browsers ask first, which has no token. Nobody else's is answered.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.Handler(cors.Options{
		AllowOriginFunc: func(_ *http.Request, origin string) bool { return slices.Contains(origins, origin) },
		AllowedMethods:  []string{http.MethodGet, http.MethodPost, http.MethodDelete},
		AllowedHeaders:  []string{"*"}, // which those of a protocol that goes on are
		ExposedHeaders:  []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate", "Retry-After", "X-Request-Id"},
		MaxAge:          600,
	})(next)
}
