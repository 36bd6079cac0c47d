package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

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

	// maxSessions is how many sessions of the older revisions there may be, sessionIdle how
	// long one may be silent.
	maxSessions = 10_000
	sessionIdle = time.Hour
)

// DoorOptions configures Door; nil is the zero value.
type DoorOptions struct {
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
	// Admit counts a request of a token, and may refuse it; nil admits all.
	Admit func(w http.ResponseWriter, r *http.Request, tokenID string) error
}

// Door is the gateway over HTTP: Streamable HTTP of all revisions on one path.
type Door struct {
	g       *Gateway
	tokens  *auth.Auth
	opts    DoorOptions
	handler http.Handler
	drained context.Context
	drain   context.CancelFunc
}

// NewDoor returns the HTTP door. The 2026-07-28 revision has no sessions and those before it
// have: each is a handler of its own, chosen by what the request says it speaks.
func NewDoor(g *Gateway, tokens *auth.Auth, opts *DoorOptions) (*Door, error) {
	d := &Door{g: g, tokens: tokens}
	if opts != nil {
		d.opts = *opts
	}
	d.drained, d.drain = context.WithCancel(context.Background())
	server := func(*http.Request) *mcp.Server { return g.mcp }
	without := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Stateless: true, Logger: quiet(g.log), MaxRequestBodyBytes: d.opts.MaxBody, PropagateRequestCancellation: true,
	})
	with := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{
		Logger: quiet(g.log), MaxRequestBodyBytes: d.opts.MaxBody, SessionTimeout: sessionIdle,
	})
	pages := http.NewCrossOriginProtection()
	for _, origin := range d.opts.Origins {
		if err := pages.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	d.handler = pages.Handler(d.authenticated(wellFormed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := w.(*patient); ok {
			answer.calm() // the request has come
		}
		if r.Header.Get("Mcp-Protocol-Version") >= stateless {
			without.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" && d.full() {
			w.Header().Set("Retry-After", "60")
			http.Error(w, "the server has as many MCP sessions as it may", http.StatusServiceUnavailable)
			return
		}
		with.ServeHTTP(w, r)
	}), d.opts.MaxBody)))
	return d, nil
}

// Endless selects the requests that set their own limits of time.
func Endless(r *http.Request) bool { return r.URL.Path == Path }

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		d.metadata(w, r)
		return
	}
	if !d.named(r.Host) {
		http.Error(w, "the server does not go by the name "+clip(r.Host)+"; mcp.hosts says by which it does", http.StatusForbidden)
		return
	}
	// A call takes as long as its tool, a stream as long as its client; but who has not said
	// what he wants, and who he is, does not hold the connection.
	answer := newPatient(w)
	answer.hurry()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(d.drained, cancel)()
	if r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen" { // a stream ends when the server does; a call is answered
		r = r.WithContext(ctx)
	}
	d.handler.ServeHTTP(answer, r)
}

// Drain ends the streams, which the server waits for when it stops. It may be called twice.
func (d *Door) Drain() {
	d.drain()
	for s := range d.g.mcp.Sessions() {
		if s.ID() == "" {
			continue // of one request, which is answered
		}
		go func() { _ = s.Close() }() // it may wait for calls
	}
}

// full reports whether there are as many sessions as may be.
func (d *Door) full() bool {
	n := 0
	for range d.g.mcp.Sessions() {
		n++
	}
	return n >= maxSessions
}

// named reports whether the server goes by a name. Without a list the SDK refuses names that
// are not of this machine at an address that is.
func (d *Door) named(host string) bool {
	if len(d.opts.Hosts) == 0 {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return slices.ContainsFunc(d.opts.Hosts, func(h string) bool { return strings.EqualFold(h, host) || strings.EqualFold(h, name) })
}

// authenticated lets requests through whose token may call tools.
func (d *Door) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var verified models.Principal
		admitted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d.opts.Admit != nil {
				if err := d.opts.Admit(w, r, verified.TokenID); err != nil {
					http.Error(w, errs.From(err).Detail, http.StatusTooManyRequests)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
		verify := func(ctx context.Context, secret string, _ *http.Request) (*sdkauth.TokenInfo, error) {
			p, err := d.tokens.Verify(ctx, secret)
			if class := errs.CodeOf(err).Class(); err != nil && (class == errs.ClassUnauthenticated || class == errs.ClassForbidden) {
				return nil, sdkauth.ErrInvalidToken
			}
			if err != nil {
				d.g.log.Warn("a token cannot be verified", "error", err)
				return nil, errNotNow
			}
			verified = p
			info := &sdkauth.TokenInfo{UserID: p.TokenID, Extra: map[string]any{principalKey: p}}
			if p.Has(models.ScopeToolsCall) {
				info.Scopes = []string{string(models.ScopeToolsCall)}
			}
			return info, nil
		}
		sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{
			ResourceMetadataURL: d.base(r) + metadataPath + Path, Scopes: []string{string(models.ScopeToolsCall)}, AllowMissingExpiration: true,
		})(admitted).ServeHTTP(w, r)
	})
}

// errNotNow is what a client is told where its token cannot be looked up.
var errNotNow = errs.New(errs.Unavailable, "tokens cannot be verified at the moment")

// metadata says what the resource is and how it wants to be asked (RFC 9728).
func (d *Door) metadata(w http.ResponseWriter, r *http.Request) {
	sdkauth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: d.base(r) + Path, AuthorizationServers: d.opts.AuthorizationServers,
		ScopesSupported: []string{string(models.ScopeToolsCall)}, BearerMethodsSupported: []string{"header"},
		ResourceName: "comet", ResourceDocumentation: d.base(r) + "/docs",
	}).ServeHTTP(w, r)
}

// base is how the client reached the server.
func (d *Door) base(r *http.Request) string {
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
func (d *Door) Paths() []string { return []string{Path, metadataPath, metadataPath + Path} }
