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

	"comet/internal/words"
)

// Transport is how an upstream is reached.
type Transport string

// The transports.
const (
	// Stdio is a program of this machine, spoken to over its standard input and output.
	Stdio Transport = "stdio"
	// HTTP is Streamable HTTP.
	HTTP Transport = "http"
)

// DefaultTimeout is how long a call may take where nothing else is said.
const DefaultTimeout = 30 * time.Second

// Server is the definition of one upstream, as the mcpServers file of desktop clients
// has it. In Command, Args, Env, Dir, URL, Headers and Bearer ${NAME}, ${env:NAME},
// ${NAME:-otherwise} and ${file:/path} stand for the value of a variable or the content
// of a file, and $${ for ${ itself. They are looked up at every start; what is not set
// fails the start.
type Server struct {
	// ID is letters, digits and hyphens, at most 64.
	ID string
	// Transport is told from Command and URL where it is empty.
	Transport Transport

	// Command, Args, Env and Dir start a Stdio upstream. It gets Env and a minimal
	// environment (PATH, HOME, LANG and the like), nothing else of comet's.
	Command string
	Args    []string
	Env     map[string]string
	Dir     string

	// URL, Headers and Bearer reach an HTTP upstream. Bearer is the token of an
	// Authorization header.
	URL     string
	Headers map[string]string
	Bearer  string

	// Timeout is how long a call may take, default DefaultTimeout.
	Timeout time.Duration
	// Roots are the folders the upstream is told when it asks, as absolute paths.
	Roots []string
	// Protocol asks for one revision of the protocol, e.g. "2025-11-25", instead of
	// the newest that both sides speak.
	Protocol string
	// Warnings are what the definition says that means nothing to comet, a sentence each.
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

// equal reports whether two definitions mean the same, so that nothing has to be
// restarted.
func (s Server) equal(other Server) bool {
	return reflect.DeepEqual(s.normalized(), other.normalized())
}

// normalized is s with what may be said in two ways said in one.
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
	minTimeout = time.Second // shorter ones fail by chance
)

// violation is a rule that a definition breaks: the key as the file has it, and what is
// wrong with it.
type violation struct{ key, detail string }

// Validate returns a KindInvalid error that names the first rule s breaks.
func (s Server) Validate() error {
	if b := s.check(); b != nil {
		return newError(KindInvalid, words.Clip(s.ID), "cannot be used: %s %s", b.key, b.detail)
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

// ValidateID returns a KindInvalid error that says what an id has that an id cannot have.
func ValidateID(id string) error {
	if b := checkID(id); b != nil {
		return newError(KindInvalid, words.Clip(id), "cannot be used: %s %s", b.key, b.detail)
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
		return &violation{"id", fmt.Sprintf("has other characters than letters, digits and hyphens; %q would do", plain)}
	}
	return nil
}

// checkTransport looks at how the upstream is reached.
func (s Server) checkTransport() *violation {
	switch {
	case s.Command == "" && s.URL == "":
		return &violation{"command", "or url must be given"}
	case s.Command != "" && s.URL != "":
		return &violation{"command", "and url are both given; one upstream is a program or an address"}
	}
	switch s.transport() {
	case Stdio:
		if s.Command == "" {
			return &violation{"command", "is missing, which the type stdio needs"}
		}
		if len(s.Headers) > 0 || s.Bearer != "" {
			return &violation{"headers", "are for upstreams with a url; a program gets its secrets in env"}
		}
	case HTTP:
		return s.checkAddress()
	case "sse":
		return &violation{"type", "is sse, the transport of 2024-11-05, which comet does not support; use http with the address of Streamable HTTP"}
	default:
		return &violation{"type", fmt.Sprintf("is %s; it can be stdio or http", words.Quote(string(s.Transport)))}
	}
	return nil
}

func (s Server) checkAddress() *violation {
	switch {
	case s.URL == "":
		return &violation{"url", "is missing, which the type " + string(s.transport()) + " needs"}
	case len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "":
		return &violation{"url", "does not go with args, env or cwd"}
	}
	for name := range s.Headers {
		if !isToken(name) {
			return &violation{"headers", fmt.Sprintf("has %s, which is no name of a header", words.Quote(name))}
		}
		if http.CanonicalHeaderKey(name) == "Authorization" && s.Bearer != "" {
			return &violation{"headers", "has Authorization, and a bearer token is given too"}
		}
	}
	if strings.Contains(s.URL, "${") {
		return nil // judged when it is known
	}
	return checkURL(s.URL)
}

func checkURL(raw string) *violation {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &violation{"url", "is no address of the form https://host/path"}
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
			return &violation{"env", fmt.Sprintf("has %s, which is no name of a variable", words.Quote(name))}
		}
		values = append(values, name, value)
	}
	for name, value := range s.Headers {
		values = append(values, name, value)
	}
	for _, v := range values {
		if len(v) > maxValue || strings.ContainsRune(v, 0) {
			return &violation{"a value", fmt.Sprintf("is longer than %d bytes or has a NUL in it", maxValue)}
		}
	}
	return nil
}

func (s Server) checkSettings() *violation {
	if s.Timeout != 0 && (s.Timeout < minTimeout || s.Timeout > maxTimeout) {
		return &violation{"timeout", fmt.Sprintf("is not between %s and %s", minTimeout, maxTimeout)}
	}
	for _, root := range s.Roots {
		if !filepath.IsAbs(root) {
			return &violation{"roots", fmt.Sprintf("has %s, which is no absolute path", words.Quote(root))}
		}
	}
	if s.Protocol != "" && !slices.Contains(mcp.SupportedProtocolVersions(), s.Protocol) {
		return &violation{"protocol", "is none of " + strings.Join(mcp.SupportedProtocolVersions(), ", ")}
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
