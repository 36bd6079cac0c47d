package upstream

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"comet/internal/nearest"
	"comet/internal/words"
)

// entry is one server of a file while it is read.
type entry struct {
	*parser
	server Server
	keys   map[string]member
}

// readKey takes one key of a server over. The names besides the common ones are those of
// the clients that have names of their own.
func (e *entry) readKey(m member) {
	s := &e.server
	switch m.name {
	case "command":
		e.decode(m, &s.Command, "a string")
	case "args":
		e.decode(m, &s.Args, "a list of strings")
	case "env":
		e.decode(m, &s.Env, "an object of strings")
	case "cwd":
		e.decode(m, &s.Dir, "a string")
	case "url", "serverUrl", "httpUrl":
		e.readURL(m)
	case "headers":
		e.decode(m, &s.Headers, "an object of strings")
	case "type", "transport":
		e.readTransport(m)
	case "disabled":
		e.decode(m, &s.Disabled, "true or false")
	case "comet":
		e.readCometSettings(m)
	default:
		meant := ""
		if near, ok := nearest.Word(m.name, []string{"command", "args", "env", "cwd", "url", "headers", "type", "disabled", "comet"}); ok {
			meant = "; did you mean " + near + "?"
		}
		e.warnings = append(e.warnings, fmt.Sprintf("server %s: %s (line %d) means nothing to comet and is left out%s",
			words.Quote(s.ID), words.Quote(m.name), m.line, meant))
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s means nothing to comet and is left out%s", words.Quote(m.name), meant))
	}
}

// decode decodes m into v; what is the only text of the sentence, so that no secret in a
// wrong place is repeated.
func (e *entry) decode(m member, v any, what string) {
	if m.kind() == 'n' {
		return // as good as left out
	}
	if err := json.Unmarshal(m.raw, v); err != nil {
		e.addViolation(m, "type", "server %s: %s must be %s", words.Quote(e.server.ID), m.name, what)
	}
}

func (e *entry) readURL(m member) {
	if e.server.URL != "" {
		e.addViolation(m, "rule", "server %s: its address is given twice", words.Quote(e.server.ID))
		return
	}
	e.decode(m, &e.server.URL, "a string")
}

func (e *entry) readTransport(m member) {
	var name string
	e.decode(m, &name, "a string")
	switch name {
	case "streamable-http", "streamableHttp", "streamable_http", "http":
		e.server.Transport = HTTP
	case "local":
		e.server.Transport = Stdio
	default:
		e.server.Transport = Transport(name)
	}
}

// readCometSettings reads comet's own settings, which must be known.
func (e *entry) readCometSettings(m member) {
	if m.kind() != '{' {
		e.addViolation(m, "type", "server %s: comet must be an object", words.Quote(e.server.ID))
		return
	}
	s := &e.server
	for _, key := range e.members(m.raw, m.at) {
		key.path = m.path + "/" + key.name
		switch key.name {
		case "bearer":
			e.decode(key, &s.Bearer, "a string")
		case "timeout":
			e.readTimeout(key)
		case "roots":
			e.decode(key, &s.Roots, "a list of strings")
		case "protocol":
			e.decode(key, &s.Protocol, "a string")
		default:
			e.addViolation(key, "unknown_field", "server %s: comet has no setting %s; it has bearer, timeout, roots and protocol",
				words.Quote(s.ID), words.Quote(key.name))
		}
	}
}

func (e *entry) readTimeout(m member) {
	var text string
	e.decode(m, &text, `a duration such as "45s"`)
	d, err := time.ParseDuration(text)
	if err != nil {
		e.addViolation(m, "type", `server %s: timeout must be a duration such as "45s"`, words.Quote(e.server.ID))
		return
	}
	e.server.Timeout = d
}
