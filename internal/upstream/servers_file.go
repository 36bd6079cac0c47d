package upstream

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"

	"comet/internal/errs"
	"comet/internal/input"
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
	doc := input.Parse(file, input.JSON)
	if err := doc.Violations().Err(); err != nil {
		return nil, nil, err
	}
	p := &parser{lines: map[string]int{}}
	for _, top := range doc.Root.Members {
		if top.Name == "mcpServers" || top.Name == "servers" {
			p.readServers(member{top, "/" + top.Name})
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

// member is a member of an object and its JSON pointer.
type member struct {
	input.Member
	path string
}

type parser struct {
	servers    []Server
	lines      map[string]int // of the servers
	warnings   []string
	violations errs.Violations
	found      bool
}

// members returns the members of an object, none for other values.
func (m member) members() []member {
	if m.Value.Kind != input.Object {
		return nil
	}
	all := make([]member, len(m.Value.Members))
	for i, inner := range m.Value.Members {
		all[i] = member{inner, m.path + "/" + input.Escape(inner.Name)}
	}
	return all
}

func (p *parser) readServers(list member) {
	p.found = true
	if list.Value.Kind != input.Object {
		p.addViolation(list, "type", "%s must be an object whose names are the servers' ids", list.Name)
		return
	}
	for _, m := range list.members() {
		id := idFromName(m.Name)
		if first, twice := p.lines[id]; twice {
			p.addViolation(m, "duplicate_key", "server %s is defined twice, on line %d and here", input.Quote(id), first)
			continue
		}
		p.lines[id] = m.Line
		if id != m.Name {
			p.warnings = append(p.warnings, fmt.Sprintf("server %s (line %d) has the id %s: ids have letters, digits and hyphens", input.Quote(m.Name), m.Line, id))
		}
		if len(p.servers) == MaxServers {
			p.addViolation(m, "max", "there are more than %d servers", MaxServers)
			return
		}
		p.readServer(m, id)
	}
}

// idFromName returns the id for a name, which clients choose freely: "My Server" or brave_search.
func idFromName(name string) string {
	other := regexp.MustCompile(`[^A-Za-z0-9-]+`)
	if id := strings.Trim(other.ReplaceAllString(name, "-"), "-"); id != "" && other.MatchString(name) {
		return id
	}
	return name
}

func (p *parser) readServer(m member, id string) {
	if m.Value.Kind != input.Object {
		p.addViolation(m, "type", "server %s must be an object", input.Quote(m.Name))
		return
	}
	e := &entry{parser: p, server: Server{ID: id}, keys: map[string]member{}}
	before := len(p.violations)
	for _, key := range m.members() {
		e.keys[key.Name] = key
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
		p.addViolation(at, "rule", "server %s: %s %s", input.Quote(m.Name), b.key, b.detail)
		return
	}
	p.servers = append(p.servers, e.server)
}

func (p *parser) addViolation(at member, rule, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if at.Line > 0 {
		detail += fmt.Sprintf(" (line %d)", at.Line)
	}
	p.violations = append(p.violations, errs.Field{
		Code: errs.InvalidRequest, Pointer: input.Pointer(at.path), Rule: rule, Detail: detail, Line: at.Line,
	})
}

type entry struct {
	*parser
	server Server
	keys   map[string]member
}

// readKey reads one key of a server. Some clients have other names for the common keys.
func (e *entry) readKey(m member) {
	s := &e.server
	switch m.Name {
	case "command":
		e.decode(m, &s.Command, "a string")
	case "args":
		e.decode(m, &s.Args, "a list of strings")
	case "env":
		e.decode(m, &s.Env, "an object of strings")
	case "cwd":
		e.decode(m, &s.Dir, "a string")
	case "url", "serverUrl", "httpUrl":
		if s.URL != "" {
			e.addViolation(m, "rule", "server %s: the address is given twice", input.Quote(s.ID))
			return
		}
		e.decode(m, &s.URL, "a string")
	case "headers":
		e.decode(m, &s.Headers, "an object of strings")
	case "type", "transport":
		e.readTransport(m)
	case "disabled":
		e.decode(m, &s.Disabled, "true or false")
	case "comet":
		e.readCometSettings(m)
	default:
		meant := input.DidYouMean(m.Name, []string{"command", "args", "env", "cwd", "url", "headers", "type", "disabled", "comet"})
		e.warnings = append(e.warnings, fmt.Sprintf("server %s: %s (line %d) is unknown and was ignored%s",
			input.Quote(s.ID), input.Quote(m.Name), m.Line, meant))
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s is unknown and was ignored%s", input.Quote(m.Name), meant))
	}
}

// decode decodes m into v. The error names the expected type and no value, which may be secret.
func (e *entry) decode(m member, v any, what string) {
	if m.Value.Kind == input.Null {
		return // the same as a missing key
	}
	if err := json.Unmarshal(m.Value.JSON(), v); err != nil {
		e.addViolation(m, "type", "server %s: %s must be %s", input.Quote(e.server.ID), m.Name, what)
	}
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
	if m.Value.Kind != input.Object {
		e.addViolation(m, "type", "server %s: comet must be an object", input.Quote(e.server.ID))
		return
	}
	s := &e.server
	for _, key := range m.members() {
		switch key.Name {
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
				input.Quote(s.ID), input.Quote(key.Name))
		}
	}
}

func (e *entry) readTimeout(m member) {
	var text string
	e.decode(m, &text, `a duration such as "45s"`)
	d, err := time.ParseDuration(text)
	if err != nil {
		e.addViolation(m, "type", `server %s: timeout must be a duration such as "45s"`, input.Quote(e.server.ID))
		return
	}
	e.server.Timeout = d
}
