package upstream

import (
	"reflect"
	"time"
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
