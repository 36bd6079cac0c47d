package upstream

import (
	"bytes"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"comet/internal/errs"
	"comet/internal/input"
)

// MaxFile is the size limit of a file of upstreams, in bytes.
const MaxFile = 4 << 20

// definition is a server in a file.
type definition struct {
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Dir      string            `json:"cwd"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	Type     Transport         `json:"type"`
	Disabled bool              `json:"disabled"`
	Comet    struct {
		Bearer   string   `json:"bearer"`
		Timeout  string   `json:"timeout"`
		Roots    []string `json:"roots"`
		Protocol string   `json:"protocol"`
		OAuth    OAuth    `json:"oauth"`
	} `json:"comet"`
}

// ParseServers reads the file that desktop clients keep their servers in: the objects
// "mcpServers" and "servers" of a JSON document, of which everything else is other
// programs'. The servers come in the order of the file. Keys of a server that mean
// nothing to comet are named in warnings; those under its "comet" key must be known.
//
// An error is an *errs.Error with a field for each mistake and its line. It never repeats a value.
func ParseServers(file []byte) (servers []Server, warnings []string, err error) {
	if len(file) > MaxFile {
		return nil, nil, errs.New(errs.BodyTooLarge, "the file of upstreams is longer than %d bytes", MaxFile)
	}
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	if plain, err := hujson.Standardize(bytes.Clone(file)); err == nil { // with comments, as editors have it
		file = plain
	}
	p := &parser{Document: input.Parse(file, input.JSON), lines: map[string]int{}}
	if err := p.Violations().Err(); err != nil {
		return nil, nil, err
	}
	if err := p.parse(); err != nil {
		return nil, nil, err
	}
	violations := p.Violations()
	for i := range violations {
		v := &violations[i]
		v.Detail, _, _ = strings.Cut(v.Detail, "; put ") // drops the value, which may be secret
		v.Detail += fmt.Sprintf(" (line %d)", v.Line)
	}
	if err := violations.All(); err != nil {
		return nil, nil, err
	}
	return p.servers, p.warnings, nil
}

type parser struct {
	*input.Document
	servers  []Server
	lines    map[string]int // of the servers
	warnings []string
}

func (p *parser) parse() error {
	p.Root.Members = slices.DeleteFunc(p.Root.Members, func(m input.Member) bool { return m.Name != "mcpServers" && m.Name != "servers" })
	if len(p.Root.Members) == 0 {
		p.Report(1, errs.InvalidRequest, "", "required", "there is no object mcpServers")
		return nil
	}
	unknown := map[string][]string{}
	for list, m := range p.members() {
		unknown[pointerOf(list, m)] = p.readKeys(list, m)
	}
	var lists map[string]map[string]definition
	if err := p.Decode(&lists); err != nil {
		return err
	}
	invalid := p.Violations()
	for list, m := range p.members() {
		at := pointerOf(list, m)
		if len(p.lines) == MaxServers {
			p.Report(m.Line, errs.InvalidRequest, at, "max", "there are more than %d servers", MaxServers)
			return nil
		}
		if !slices.ContainsFunc(invalid, func(v errs.Field) bool { return strings.HasPrefix(v.Pointer+"/", at+"/") }) {
			p.addServer(m, at, lists[list][m.Name], unknown[at])
		}
	}
	return nil
}

// members iterates over the servers and the names of their lists.
func (p *parser) members() iter.Seq2[string, *input.Member] {
	return func(yield func(string, *input.Member) bool) {
		for _, list := range p.Root.Members {
			for i := range list.Value.Members {
				if list.Value.Kind == input.Object && !yield(list.Name, &list.Value.Members[i]) {
					return
				}
			}
		}
	}
}

func pointerOf(list string, m *input.Member) string { return "/" + list + "/" + input.Escape(m.Name) }

// readKeys gives the keys of a server their common names and removes those that are null or that
// comet does not know. It returns a sentence for each of the latter.
func (p *parser) readKeys(list string, m *input.Member) (unknown []string) {
	names := map[string]string{"serverUrl": "url", "httpUrl": "url", "transport": "type"}
	known := []string{"command", "args", "env", "cwd", "url", "headers", "type", "disabled", "comet"}
	isNull := func(m input.Member) bool { return m.Value.Kind == input.Null }
	var kept []input.Member
	for _, key := range m.Value.Members {
		if name, ok := names[key.Name]; ok {
			key.Name = name
		}
		if key.Name == "comet" {
			key.Value.Members = slices.DeleteFunc(key.Value.Members, isNull)
		}
		before := len(kept)
		kept = slices.DeleteFunc(kept, func(other input.Member) bool { return other.Name == key.Name })
		switch {
		case !slices.Contains(known, key.Name):
			sentence := "is unknown and was ignored" + input.DidYouMean(key.Name, known)
			unknown = append(unknown, input.Quote(key.Name)+" "+sentence)
			p.warnings = append(p.warnings, fmt.Sprintf("server %s: %s (line %d) %s", input.Quote(idFromName(m.Name)), input.Quote(key.Name), key.Line, sentence))
		case isNull(key): // the same as a missing key
		case key.Name == "url" && len(kept) < before:
			p.Report(key.Line, errs.InvalidRequest, pointerOf(list, m)+"/url", "rule", "server %s: the address is given twice", input.Quote(m.Name))
		default:
			kept = append(kept, key)
		}
	}
	if m.Value.Kind == input.Object {
		m.Value.Members = kept
	}
	return unknown
}

// idFromName returns the id for a name, which clients choose freely: "My Server" or brave_search.
func idFromName(name string) string {
	other := regexp.MustCompile(`[^A-Za-z0-9-]+`)
	if id := strings.Trim(other.ReplaceAllString(name, "-"), "-"); id != "" && other.MatchString(name) {
		return id
	}
	return name
}

// addServer checks the definition of a server and adds it. unknown are the sentences of readKeys.
func (p *parser) addServer(m *input.Member, pointer string, d definition, unknown []string) {
	id := idFromName(m.Name)
	if first, twice := p.lines[id]; twice {
		p.Report(m.Line, errs.InvalidRequest, pointer, "duplicate_key", "server %s is defined twice, on line %d and here", input.Quote(id), first)
		return
	}
	p.lines[id] = m.Line
	if id != m.Name {
		p.warnings = append(p.warnings, fmt.Sprintf("server %s (line %d) has the id %s: ids have letters, digits and hyphens", input.Quote(m.Name), m.Line, id))
	}
	switch d.Type {
	case "streamable-http", "streamableHttp", "streamable_http":
		d.Type = HTTP
	case "local":
		d.Type = Stdio
	}
	s := Server{
		ID: id, Transport: d.Type, Command: d.Command, Args: d.Args, Env: d.Env, Dir: d.Dir, URL: d.URL, Headers: d.Headers,
		Bearer: d.Comet.Bearer, OAuth: d.Comet.OAuth, Roots: d.Comet.Roots, Protocol: d.Comet.Protocol, Warnings: unknown, Disabled: d.Disabled,
	}
	if d.Comet.Timeout != "" {
		timeout, err := time.ParseDuration(d.Comet.Timeout)
		if err != nil {
			at := pointer + "/comet/timeout"
			p.Report(p.Line(at), errs.InvalidRequest, at, "type", `server %s: timeout must be a duration such as "45s"`, input.Quote(m.Name))
			return
		}
		s.Timeout = timeout
	}
	if b := s.check(); b != nil {
		if m.Value.Member(b.key) != nil {
			pointer += "/" + b.key
		}
		p.Report(p.Line(pointer), errs.InvalidRequest, pointer, "rule", "server %s: %s %s", input.Quote(m.Name), b.key, b.detail)
		return
	}
	p.servers = append(p.servers, s)
}
