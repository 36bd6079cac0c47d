package upstream

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"comet/internal/errs"
	"comet/internal/nearest"
	"comet/internal/strictjson"
	"comet/internal/words"
)

// MaxFile is the size limit of a file of upstreams, in bytes.
const MaxFile = 4 << 20

// ParseServers reads the file that desktop clients keep their servers in: the objects
// "mcpServers" and "servers" of a JSON document, of which everything else is other
// programs'. The servers come in the order of the file. Keys of a server that mean
// nothing to comet are named in warnings; those under its "comet" key must be known.
//
// An error is an *errs.Error with a field for each mistake: its line, and in its
// sentence the server and the key. It never repeats a value.
func ParseServers(file []byte) (servers []Server, warnings []string, err error) {
	if len(file) > MaxFile {
		return nil, nil, errs.New(errs.BodyTooLarge, "the file of upstreams is longer than %d bytes", MaxFile)
	}
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	if plain, err := hujson.Standardize(bytes.Clone(file)); err == nil { // with comments, as editors have it
		file = plain
	}
	var anything any
	if err := strictjson.Decode(file, &anything); err != nil {
		return nil, nil, err
	}
	p := &parser{file: file, lines: map[string]int{}}
	for _, top := range p.members(file, 0) {
		if top.name == "mcpServers" || top.name == "servers" {
			p.readServers(top)
		}
	}
	if !p.found && len(p.violations) == 0 {
		p.addViolation(member{}, "required", "there is no object mcpServers")
	}
	if err := p.violations.All(); err != nil {
		return nil, nil, err
	}
	return p.servers, p.warnings, nil
}

// member is a name and a value of an object.
type member struct {
	name string
	raw  jsontext.Value
	line int // of the name
	at   int // where raw begins in the file
	path string
}

func (m member) kind() jsontext.Kind { return m.raw.Kind() }

type parser struct {
	file       []byte
	servers    []Server
	lines      map[string]int // of the servers
	warnings   []string
	violations errs.Violations
	found      bool
}

// members returns the members of an object in a valid file, none for other values.
func (p *parser) members(object []byte, at int) []member {
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return nil
	}
	var all []member
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return all
		}
		m := member{name: name.String(), line: 1 + bytes.Count(p.file[:at+int(dec.InputOffset())], []byte("\n"))}
		raw, err := dec.ReadValue()
		if err != nil {
			return all
		}
		m.raw = slices.Clone(raw)
		m.at = at + int(dec.InputOffset()) - len(raw)
		all = append(all, m)
	}
	return all
}

// readServers reads the servers of one object.
func (p *parser) readServers(list member) {
	p.found = true
	list.path = "/" + list.name
	if list.kind() != '{' {
		p.addViolation(list, "type", "%s must be an object whose names are the servers' ids", list.name)
		return
	}
	for _, m := range p.members(list.raw, list.at) {
		m.path = list.path + "/" + m.name
		id := idFromName(m.name)
		if first, twice := p.lines[id]; twice {
			p.addViolation(m, "duplicate_key", "server %s is defined twice, on line %d and here", words.Quote(id), first)
			continue
		}
		p.lines[id] = m.line
		if id != m.name {
			p.warnings = append(p.warnings, fmt.Sprintf("server %s (line %d) has the id %s: ids have letters, digits and hyphens", words.Quote(m.name), m.line, id))
		}
		if len(p.servers) == MaxServers {
			p.addViolation(m, "max", "there are more than %d servers", MaxServers)
			return
		}
		p.readServer(m, id)
	}
}

// idFromName returns the id for the name of a server in a file. Clients accept any name, such as
// "My Server" or brave_search.
func idFromName(name string) string {
	other := regexp.MustCompile(`[^A-Za-z0-9-]+`)
	if id := strings.Trim(other.ReplaceAllString(name, "-"), "-"); id != "" && other.MatchString(name) {
		return id
	}
	return name
}

// readServer reads one server.
func (p *parser) readServer(m member, id string) {
	if m.kind() != '{' {
		p.addViolation(m, "type", "server %s must be an object", words.Quote(m.name))
		return
	}
	e := &entry{parser: p, server: Server{ID: id}, keys: map[string]member{}}
	before := len(p.violations)
	for _, key := range p.members(m.raw, m.at) {
		key.path = m.path + "/" + key.name
		e.keys[key.name] = key
		e.readKey(key)
	}
	if len(p.violations) > before {
		return
	}
	if b := e.server.check(); b != nil {
		at := m
		if key, ok := e.keys[b.key]; ok {
			at = key
		}
		p.addViolation(at, "rule", "server %s: %s %s", words.Quote(m.name), b.key, b.detail)
		return
	}
	p.servers = append(p.servers, e.server)
}

func (p *parser) addViolation(at member, rule, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if at.line > 0 {
		detail += fmt.Sprintf(" (line %d)", at.line)
	}
	p.violations = append(p.violations, errs.Violation{Code: errs.InvalidRequest, Field: errs.Field{
		Pointer: words.Pointer(at.path), Rule: rule, Detail: detail, Line: at.line,
	}})
}

// entry is one server of a file.
type entry struct {
	*parser
	server Server
	keys   map[string]member
}

// readKey reads one key of a server. Some clients have other names for the common keys.
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
		e.warnings = append(e.warnings, fmt.Sprintf("server %s: %s (line %d) is unknown and was ignored%s",
			words.Quote(s.ID), words.Quote(m.name), m.line, meant))
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s is unknown and was ignored%s", words.Quote(m.name), meant))
	}
}

// decode decodes m into v. The error names the expected type what and no value, because the value
// may be a secret.
func (e *entry) decode(m member, v any, what string) {
	if m.kind() == 'n' {
		return // the same as a missing key
	}
	if err := json.Unmarshal(m.raw, v); err != nil {
		e.addViolation(m, "type", "server %s: %s must be %s", words.Quote(e.server.ID), m.name, what)
	}
}

func (e *entry) readURL(m member) {
	if e.server.URL != "" {
		e.addViolation(m, "rule", "server %s: the address is given twice", words.Quote(e.server.ID))
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

// readCometSettings reads comet's own settings. Unknown ones are errors.
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
