package upstream

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

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

	// Command, Args, Env and Dir start a Stdio upstream. Its environment is Env and a minimal set
	// (PATH, HOME, LANG and the like).
	Command string
	Args    []string
	Env     map[string]string
	Dir     string

	// URL, Headers and Bearer reach an HTTP upstream. Bearer is the token of the Authorization
	// header.
	URL     string
	Headers map[string]string
	Bearer  string

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

func (s Server) transport() Transport {
	switch {
	case s.Transport != "":
		return s.Transport
	case s.Command == "" && s.URL != "":
		return HTTP
	}
	return Stdio
}

func (s Server) timeout() time.Duration { return defaultDuration(s.Timeout, DefaultTimeout) }

// equal reports whether two definitions have the same meaning, so that a restart is not needed.
func (s Server) equal(other Server) bool {
	return reflect.DeepEqual(s.normalized(), other.normalized())
}

// normalized returns s with defaults filled in and empty collections set to nil.
func (s Server) normalized() Server {
	s.Transport, s.Timeout = s.transport(), s.timeout()
	if len(s.Args) == 0 {
		s.Args = nil
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
	if len(s.Roots) == 0 {
		s.Roots = nil
	}
	return s
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

// Validate returns a KindInvalid error for the first rule that s breaks.
func (s Server) Validate() error {
	if b := s.check(); b != nil {
		return newError(KindInvalid, input.Clip(s.ID), "cannot be used: %s %s", b.key, b.detail)
	}
	return nil
}

func (s Server) check() *violation {
	if b := checkID(s.ID); b != nil {
		return b
	}
	for _, b := range []*violation{s.checkTransport(), s.checkSizes(), s.checkSettings()} {
		if b != nil {
			return b
		}
	}
	return nil
}

// ValidateID returns a KindInvalid error for an invalid id.
func ValidateID(id string) error {
	if b := checkID(id); b != nil {
		return newError(KindInvalid, input.Clip(id), "cannot be used: %s %s", b.key, b.detail)
	}
	return nil
}

func checkID(id string) *violation {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, id)
	switch {
	case id == "":
		return &violation{"id", "is empty"}
	case len(id) > maxID:
		return &violation{"id", fmt.Sprintf("is longer than %d characters", maxID)}
	case plain != id:
		return &violation{"id", fmt.Sprintf("may only have letters, digits and hyphens, for example %q", plain)}
	}
	return nil
}

// checkTransport checks the fields that select and configure the transport.
func (s Server) checkTransport() *violation {
	switch {
	case s.Command == "" && s.URL == "":
		return &violation{"command", "or url is required"}
	case s.Command != "" && s.URL != "":
		return &violation{"command", "and url exclude each other"}
	}
	switch s.transport() {
	case Stdio:
		if s.Command == "" {
			return &violation{"command", "is required for the type stdio"}
		}
		if len(s.Headers) > 0 || s.Bearer != "" {
			return &violation{"headers", "are for upstreams with a url; a program gets its secrets in env"}
		}
	case HTTP:
		return s.checkAddress()
	case "sse":
		return &violation{"type", "is sse, the transport of 2024-11-05, which comet does not support; use http with the address of Streamable HTTP"}
	default:
		return &violation{"type", fmt.Sprintf("is %s; it can be stdio or http", input.Quote(string(s.Transport)))}
	}
	return nil
}

func (s Server) checkAddress() *violation {
	switch {
	case s.URL == "":
		return &violation{"url", "is required for the type " + string(s.transport())}
	case len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "":
		return &violation{"url", "excludes args, env and cwd"}
	}
	for name := range s.Headers {
		if !isToken(name) {
			return &violation{"headers", fmt.Sprintf("has %s, which is not the name of a header", input.Quote(name))}
		}
		if http.CanonicalHeaderKey(name) == "Authorization" && s.Bearer != "" {
			return &violation{"headers", "has Authorization, which excludes a bearer token"}
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
		return &violation{"url", "is not an address of the form https://host/path"}
	}
	return nil
}

func (s Server) checkSizes() *violation {
	for key, n := range map[string]int{"args": len(s.Args), "env": len(s.Env), "headers": len(s.Headers), "roots": len(s.Roots)} {
		if n > maxEntries {
			return &violation{key, fmt.Sprintf("has more than %d entries", maxEntries)}
		}
	}
	values := append([]string{s.Command, s.Dir, s.URL, s.Bearer}, s.Args...)
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return &violation{"env", fmt.Sprintf("has %s, which is not the name of a variable", input.Quote(name))}
		}
		values = append(values, name, value)
	}
	for name, value := range s.Headers {
		values = append(values, name, value)
	}
	for _, v := range values {
		if len(v) > maxValue || strings.ContainsRune(v, 0) {
			return &violation{"a value", fmt.Sprintf("is longer than %d bytes or contains NUL", maxValue)}
		}
	}
	return nil
}

func (s Server) checkSettings() *violation {
	if s.Timeout != 0 && (s.Timeout < minTimeout || s.Timeout > maxTimeout) {
		return &violation{"timeout", fmt.Sprintf("must be between %s and %s", minTimeout, maxTimeout)}
	}
	for _, root := range s.Roots {
		if !filepath.IsAbs(root) {
			return &violation{"roots", fmt.Sprintf("has %s, which is not an absolute path", input.Quote(root))}
		}
	}
	if s.Protocol != "" && !slices.Contains(mcp.SupportedProtocolVersions(), s.Protocol) {
		return &violation{"protocol", "is not one of " + strings.Join(mcp.SupportedProtocolVersions(), ", ")}
	}
	return nil
}

// isToken reports whether s can be the name of a header (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) {
			return false
		}
	}
	return s != ""
}
