package upstream

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"comet/internal/errs"
	"comet/internal/strictjson"
	"comet/internal/words"
)

// MaxFile is the longest file of upstreams, in bytes.
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

// member is one name and value of an object.
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

// members takes an object apart; the file is known to be valid. What is no object has
// none.
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
			p.warnings = append(p.warnings, fmt.Sprintf("server %s (line %d) is called %s here: ids have letters, digits and hyphens", words.Quote(m.name), m.line, id))
		}
		if len(p.servers) == MaxServers {
			p.addViolation(m, "max", "there are more than %d servers", MaxServers)
			return
		}
		p.readServer(m, id)
	}
}

// idFromName is the id of a server for its name in a file: clients take any, as "My Server" or
// brave_search.
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
