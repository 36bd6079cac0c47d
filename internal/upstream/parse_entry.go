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

// read takes one key of a server over. The names besides the common ones are those of
// the clients that have names of their own.
func (e *entry) read(m member) {
	s := &e.server
	switch m.name {
	case "command":
		e.value(m, &s.Command, "a string")
	case "args":
		e.value(m, &s.Args, "a list of strings")
	case "env":
		e.value(m, &s.Env, "an object of strings")
	case "cwd":
		e.value(m, &s.Dir, "a string")
	case "url", "serverUrl", "httpUrl":
		e.address(m)
	case "headers":
		e.value(m, &s.Headers, "an object of strings")
	case "type", "transport":
		e.transport(m)
	case "disabled":
		e.value(m, &s.Disabled, "true or false")
	case "comet":
		e.comet(m)
	default:
		meant := ""
		if near, ok := nearest.Word(m.name, []string{"command", "args", "env", "cwd", "url", "headers", "type", "disabled", "comet"}); ok {
			meant = "; did you mean " + near + "?"
		}
		e.warnings = append(e.warnings, fmt.Sprintf("server %s: %s (line %d) means nothing to comet and is left out%s",
			words.Quote(s.ID), words.Quote(m.name), m.line, meant))
		s.Notes = append(s.Notes, fmt.Sprintf("%s means nothing to comet and is left out%s", words.Quote(m.name), meant))
	}
}

// value decodes m into v; what is the only text of the sentence, so that no secret in a
// wrong place is repeated.
func (e *entry) value(m member, v any, what string) {
	if m.kind() == 'n' {
		return // as good as left out
	}
	if err := json.Unmarshal(m.raw, v); err != nil {
		e.mistake(m, "type", "server %s: %s must be %s", words.Quote(e.server.ID), m.name, what)
	}
}

func (e *entry) address(m member) {
	if e.server.URL != "" {
		e.mistake(m, "rule", "server %s: its address is given twice", words.Quote(e.server.ID))
		return
	}
	e.value(m, &e.server.URL, "a string")
}

func (e *entry) transport(m member) {
	var name string
	e.value(m, &name, "a string")
	switch name {
	case "streamable-http", "streamableHttp", "streamable_http", "http":
		e.server.Transport = HTTP
	case "local":
		e.server.Transport = Stdio
	default:
		e.server.Transport = Transport(name)
	}
}

// comet reads comet's own settings, which must be known.
func (e *entry) comet(m member) {
	if m.kind() != '{' {
		e.mistake(m, "type", "server %s: comet must be an object", words.Quote(e.server.ID))
		return
	}
	s := &e.server
	for _, key := range e.members(m.raw, m.at) {
		key.path = m.path + "/" + key.name
		switch key.name {
		case "bearer":
			e.value(key, &s.Bearer, "a string")
		case "timeout":
			e.timeout(key)
		case "roots":
			e.value(key, &s.Roots, "a list of strings")
		case "protocol":
			e.value(key, &s.Protocol, "a string")
		default:
			e.mistake(key, "unknown_field", "server %s: comet has no setting %s; it has bearer, timeout, roots and protocol",
				words.Quote(s.ID), words.Quote(key.name))
		}
	}
}

func (e *entry) timeout(m member) {
	var text string
	e.value(m, &text, `a duration such as "45s"`)
	d, err := time.ParseDuration(text)
	if err != nil {
		e.mistake(m, "type", `server %s: timeout must be a duration such as "45s"`, words.Quote(e.server.ID))
		return
	}
	e.server.Timeout = d
}
