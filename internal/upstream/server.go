package upstream

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/http/httpguts"

	"comet/internal/errs"
	"comet/internal/input"
)

// Transport is the way to reach an upstream.
type Transport string

// The transports.
const (
	// Stdio is a local program that uses its standard input and output.
	Stdio Transport = "stdio"
	// HTTP is Streamable HTTP.
	HTTP Transport = "http"
)

// DefaultTimeout is the default timeout of a call.
const DefaultTimeout = 30 * time.Second

// Server is the definition of one upstream, as in the mcpServers file of desktop clients. In
// Command, Args, Env, Dir, URL, Headers and Bearer the references ${NAME}, ${env:NAME},
// ${NAME:-default} and ${file:/path} stand for the value of a variable or the content of a file,
// and $${ stands for ${. They are resolved at every start; a missing value fails the start.
type Server struct {
	// ID has letters, digits and hyphens, at most 64.
	ID string
	// Transport follows from Command and URL if it is empty.
	Transport Transport

	// Command, Args, Env and Dir start a Stdio upstream, with a minimal environment besides Env.
	Command string
	Args    []string
	Env     map[string]string
	Dir     string

	// URL, Headers and Bearer, the token of the Authorization header, reach an HTTP upstream.
	URL     string
	Headers map[string]string
	Bearer  string
	// OAuth configures how comet gets the token of an HTTP upstream that requires an authorization.
	OAuth OAuth

	// Timeout is the timeout of a call, default DefaultTimeout.
	Timeout time.Duration
	// Roots are absolute paths of the directories that the upstream may request as roots.
	Roots []string
	// Protocol selects a protocol version, e.g. "2025-11-25", instead of the newest common one.
	Protocol string
	// Warnings name the settings of the definition that comet does not know, one sentence each.
	Warnings []string
	// Disabled upstreams are listed and not started.
	Disabled bool
}

// OAuth names the client that an authorization server has registered, and the scopes to request. Without
// them comet registers a client, and requests the scopes that the upstream names.
type OAuth struct {
	ClientID     string   `json:"client_id"`
	ClientSecret string   `json:"client_secret"`
	Scopes       []string `json:"scopes"`
}

func (s Server) transport() Transport {
	switch {
	case s.Transport != "":
		return s.Transport
	case s.Command == "" && s.URL != "":
		return HTTP
	}
	return Stdio
}

// usesOAuth reports whether the upstream may get an access token: no Authorization is configured.
func (s Server) usesOAuth() bool {
	isToken := func(name string) bool { return http.CanonicalHeaderKey(name) == "Authorization" }
	return s.transport() == HTTP && s.Bearer == "" && !slices.ContainsFunc(slices.Collect(maps.Keys(s.Headers)), isToken)
}

func (s Server) timeout() time.Duration { return cmp.Or(s.Timeout, DefaultTimeout) }

// equal reports whether two definitions have the same meaning, so that a restart is not needed.
func (s Server) equal(other Server) bool {
	same := slices.Equal(s.Args, other.Args) && slices.Equal(s.Roots, other.Roots) &&
		maps.Equal(s.Env, other.Env) && maps.Equal(s.Headers, other.Headers)
	for _, d := range []*Server{&s, &other} {
		d.Transport, d.Timeout = d.transport(), d.timeout()
		d.Args, d.Roots, d.Env, d.Headers = nil, nil, nil, nil
	}
	return same && reflect.DeepEqual(s, other)
}

const (
	maxID      = 64
	maxEntries = 1000        // arguments, variables, headers, roots
	maxValue   = 64 << 10    // bytes of one of them
	maxTimeout = time.Hour   // of a call
	minTimeout = time.Second // shorter ones fail at random
)

// violation is a rule that a definition breaks: the key of the file and the problem.
type violation struct{ key, detail string }

func violates(key, format string, args ...any) *violation {
	return &violation{key, fmt.Sprintf(format, args...)}
}

// invalid returns nil for nil, else errs.InvalidRequest.
func (v *violation) invalid(id string) error {
	if v == nil {
		return nil
	}
	return newError(errs.InvalidRequest, input.Clip(id), "cannot be used: %s %s", v.key, v.detail)
}

// Validate returns errs.InvalidRequest for the first rule that s breaks.
func (s Server) Validate() error { return s.check().invalid(s.ID) }

// ValidateID returns errs.InvalidRequest for an invalid id.
func ValidateID(id string) error { return checkID(id).invalid(id) }

func (s Server) check() *violation {
	return cmp.Or(checkID(s.ID), s.checkTransport(), s.checkSizes(), s.checkSettings())
}

func checkID(id string) *violation {
	plain := regexp.MustCompile(`[^A-Za-z0-9-]`).ReplaceAllString(id, "-")
	switch {
	case id == "":
		return violates("id", "is empty")
	case len(id) > maxID:
		return violates("id", "is longer than %d characters", maxID)
	case plain != id:
		return violates("id", "may contain only letters, digits and hyphens, for example %q", plain)
	}
	return nil
}

// checkTransport checks the fields that select and configure the transport.
func (s Server) checkTransport() *violation {
	switch {
	case s.Command == "" && s.URL == "":
		return violates("command", "or url is required")
	case s.Command != "" && s.URL != "":
		return violates("command", "and url exclude each other")
	}
	switch t := s.transport(); {
	case t == Stdio && s.Command == "":
		return violates("command", "is required for the type stdio")
	case s.OAuth.ClientID == "" && s.OAuth.ClientSecret != "":
		return violates("comet.oauth", "has a client_secret without a client_id")
	case !s.usesOAuth() && (s.OAuth.ClientID != "" || len(s.OAuth.Scopes) > 0):
		return violates("comet.oauth", "is for upstreams with a url and without a token")
	case t == Stdio && (len(s.Headers) > 0 || s.Bearer != ""):
		return violates("headers", "are for upstreams with a url; a program gets its secrets in env")
	case t == HTTP:
		return s.checkAddress()
	case t == "sse":
		return violates("type", "is sse, the transport of 2024-11-05, which comet does not support; use http with the address of Streamable HTTP")
	case t != Stdio:
		return violates("type", "is %s; it can be stdio or http", input.Quote(string(s.Transport)))
	}
	return nil
}

func (s Server) checkAddress() *violation {
	switch {
	case s.URL == "":
		return violates("url", "is required for the type http")
	case len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "":
		return violates("url", "excludes args, env and cwd")
	}
	for name := range s.Headers {
		if !httpguts.ValidHeaderFieldName(name) {
			return violates("headers", "has %s, which is not the name of a header", input.Quote(name))
		}
		if http.CanonicalHeaderKey(name) == "Authorization" && s.Bearer != "" {
			return violates("headers", "has Authorization, which excludes a bearer token")
		}
	}
	if strings.Contains(s.URL, "${") {
		return nil // checked after it is resolved
	}
	return checkURL(s.URL)
}

func checkURL(raw string) *violation {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return violates("url", "is not an address of the form https://host/path")
	}
	return nil
}

func (s Server) checkSizes() *violation {
	for key, n := range map[string]int{"args": len(s.Args), "env": len(s.Env), "headers": len(s.Headers), "roots": len(s.Roots), "comet.oauth.scopes": len(s.OAuth.Scopes)} {
		if n > maxEntries {
			return violates(key, "has more than %d entries", maxEntries)
		}
	}
	values := slices.Concat([]string{s.Command, s.Dir, s.URL, s.Bearer, s.OAuth.ClientID, s.OAuth.ClientSecret}, s.Args, s.OAuth.Scopes)
	for name := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return violates("env", "has %s, which is not the name of a variable", input.Quote(name))
		}
	}
	for _, members := range []map[string]string{s.Env, s.Headers} {
		values = slices.AppendSeq(slices.AppendSeq(values, maps.Keys(members)), maps.Values(members))
	}
	for _, v := range values {
		if len(v) > maxValue || strings.ContainsRune(v, 0) {
			return violates("a value", "is longer than %d bytes or contains NUL", maxValue)
		}
	}
	return nil
}

func (s Server) checkSettings() *violation {
	if s.Timeout != 0 && (s.Timeout < minTimeout || s.Timeout > maxTimeout) {
		return violates("timeout", "must be between %s and %s", minTimeout, maxTimeout)
	}
	for _, root := range s.Roots {
		if !filepath.IsAbs(root) {
			return violates("roots", "has %s, which is not an absolute path", input.Quote(root))
		}
	}
	if s.Protocol != "" && !slices.Contains(mcp.SupportedProtocolVersions(), s.Protocol) {
		return violates("protocol", "is not one of %s", strings.Join(mcp.SupportedProtocolVersions(), ", "))
	}
	return nil
}
