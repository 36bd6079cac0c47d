package config

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"comet/internal/nearest"
	"comet/internal/strictyaml"
)

const (
	envPrefix  = "COMET_"
	envConfig  = "COMET_CONFIG"
	flagConfig = "config"
	// envTest is the prefix of variables that only tests read.
	envTest = "COMET_TEST_"
)

// clientVariables are read by the client commands, not by the server.
func clientVariables() []string {
	return []string{"COMET_SERVER", "COMET_TOKEN", "COMET_OUTPUT", "COMET_CLIENT_CONFIG"}
}

// kubernetesNames matches the variables that Kubernetes gives a container for each Service in its
// namespace; those of a Service named comet, or comet-db, begin like ours.
var kubernetesNames = regexp.MustCompile(`^COMET_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$`)

// fromKubernetes reports whether a variable describes a Service. COMET_PORT contains a URL then;
// with a bare number it is probably a mistake.
func fromKubernetes(name, value string) bool {
	if strings.HasSuffix(name, "_PORT") && !strings.HasSuffix(name, "_SERVICE_PORT") {
		for _, scheme := range []string{"tcp://", "udp://", "sctp://"} {
			if strings.HasPrefix(value, scheme) {
				return true
			}
		}
	}
	return kubernetesNames.MatchString(name)
}

// layer holds the values of one source by key.
type layer map[string]sourced

type sourced struct {
	value  any
	origin string // e.g. "default", "env COMET_LISTEN", "comet.yaml:3"
}

func defaults() layer {
	l := layer{}
	for _, s := range settings() {
		l[s.key] = sourced{s.def, "default"}
	}
	return l
}

// Flags registers the flags of `comet serve` on fs.
func Flags(fs *pflag.FlagSet) {
	fs.String(flagConfig, "", "`file` (YAML) to read settings from; COMET_CONFIG")
	for _, s := range settings() {
		if s.flag == "" {
			continue
		}
		help := strings.ReplaceAll(s.help, "`", "")
		fs.String(s.flag, s.show(s.def), fmt.Sprintf("%s; %s", help, s.env()))
		if _, isSwitch := s.def.(bool); isSwitch {
			fs.Lookup(s.flag).NoOptDefVal = "true" // like every switch: --flag, or --flag=false
		}
	}
}

func configPath(src Sources) string {
	if src.Flags != nil {
		if f := src.Flags.Lookup(flagConfig); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	for _, v := range src.Environ {
		if path, ok := strings.CutPrefix(v, envConfig+"="); ok {
			return path
		}
	}
	return ""
}

func readFlags(fs *pflag.FlagSet) (layer, []string) {
	l := layer{}
	var problems []string
	if fs == nil {
		return l, nil
	}
	for _, s := range settings() {
		f := fs.Lookup(s.flag)
		if s.flag == "" || f == nil || !f.Changed {
			continue
		}
		origin := "flag --" + s.flag
		value, problem := s.parse(f.Value.String(), "--"+s.flag)
		if problem != "" {
			problems = append(problems, problem)
			continue
		}
		l[s.key] = sourced{value, origin}
	}
	return l, problems
}

func readEnviron(environ []string) (layer, []string) {
	table, known := map[string]setting{}, []string{envConfig}
	for _, s := range settings() {
		table[s.env()] = s
		known = append(known, s.env())
	}
	l := layer{}
	var problems []string
	environ = slices.Clone(environ)
	sort.Strings(environ)
	for _, v := range environ {
		name, text, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envConfig ||
			strings.HasPrefix(name, envTest) || slices.Contains(clientVariables(), name) {
			continue
		}
		s, ok := table[name]
		switch {
		case !ok && fromKubernetes(name, text):
			continue
		case !ok:
			problems = append(problems, unknown("The environment variable "+name, name, known))
			continue
		case text == "":
			continue
		}
		value, problem := s.parse(text, "environment variable "+name)
		if problem != "" {
			problems = append(problems, problem)
			continue
		}
		l[s.key] = sourced{value, "env " + name}
	}
	return l, problems
}

// parse parses a value given as text. The problem is a sentence that names the key and the
// value's source.
func (s setting) parse(text, from string) (any, string) {
	var value any
	var err error
	switch s.def.(type) {
	case bool:
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
		value = text == "true"
	case int:
		value, err = strconv.Atoi(text)
	case int64:
		value, err = strconv.ParseInt(text, 10, 64)
	case time.Duration:
		value, err = time.ParseDuration(text)
	case []string:
		value = list(text)
	default:
		value = text
	}
	if err != nil {
		return nil, s.problem(text, from, "must be "+s.typeName())
	}
	if s.check != nil {
		if wrong := s.check(value); wrong != "" {
			return nil, s.problem(text, from, wrong)
		}
	}
	return value, ""
}

// problem formats a problem without showing secrets.
func (s setting) problem(text, from, wrong string) string {
	if s.mask != nil {
		return fmt.Sprintf("%s (%s) %s.", s.key, from, wrong)
	}
	return fmt.Sprintf("%s (%s) is %q but %s.", s.key, from, text, wrong)
}

func unknown(what, name string, known []string) string {
	text := what + " is not a setting."
	if word, ok := nearest.Word(name, known); ok {
		text = strings.TrimSuffix(text, ".") + "; did you mean " + word + "?"
	}
	return text
}

// readFile reads the settings in a YAML document.
func readFile(path string, data []byte) (layer, []string) {
	r := fileReader{path: path, table: byKey(), layer: layer{}, sections: map[string]bool{}}
	for key := range r.table {
		r.known = append(r.known, key)
		for parts := strings.Split(key, "."); len(parts) > 1; {
			parts = parts[:len(parts)-1]
			r.sections[strings.Join(parts, ".")] = true
		}
	}
	sort.Strings(r.known)
	root, problems := strictyaml.Parse(data)
	for _, p := range problems {
		r.fail(p.Line, "%s", p.Detail)
	}
	switch {
	case len(problems) > 0 || root == nil:
	case root.Kind != yaml.MappingNode:
		r.fail(root.Line, "the file must hold settings of the form key: value")
	default:
		r.section(root, "")
	}
	return r.layer, r.problems
}

type fileReader struct {
	path     string
	table    map[string]setting
	known    []string
	sections map[string]bool
	layer    layer
	problems []string
}

func (r *fileReader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("%s:%d: %s.", r.path, line, fmt.Sprintf(format, args...)))
}

func (r *fileReader) section(n *yaml.Node, prefix string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := prefix + name.Value
		s, isSetting := r.table[key]
		switch {
		case isSetting:
			r.setting(s, value)
		case !r.sections[key]:
			r.problems = append(r.problems, fmt.Sprintf("%s:%d: %s", r.path, name.Line, unknown(key, key, r.known)))
		case value.Kind != yaml.MappingNode:
			r.fail(name.Line, "%s must hold settings of its own", key)
		default:
			r.section(value, key+".")
		}
	}
}

func (r *fileReader) setting(s setting, n *yaml.Node) {
	if _, isList := s.def.([]string); isList && n.Kind == yaml.SequenceNode {
		r.list(s, n)
		return
	}
	if n.Kind != yaml.ScalarNode {
		r.fail(n.Line, "%s must be %s", s.key, s.typeName())
		return
	}
	tag := n.ShortTag()
	if tag == "!!null" {
		r.fail(n.Line, "%s has no value; leave the line out to use the default", s.key)
		return
	}
	quotable := false
	ok := false
	switch s.def.(type) {
	case bool:
		ok = tag == "!!bool"
	case int, int64:
		ok = tag == "!!int"
	case string, []string:
		// A plain date is text here, whatever YAML makes of it.
		ok = tag == "!!str" || tag == "!!timestamp"
		quotable = !ok
	default:
		ok = tag == "!!str"
	}
	if !ok {
		wrong := "must be " + s.typeName()
		if quotable {
			wrong += "; put it in quotes"
		}
		r.problems = append(r.problems, s.problem(n.Value, r.origin(n), wrong))
		return
	}
	value, problem := s.parse(n.Value, r.origin(n))
	if problem != "" {
		r.problems = append(r.problems, problem)
		return
	}
	r.layer[s.key] = sourced{value, r.origin(n)}
}

// list reads a sequence of texts; problems of an element are reported with its line.
func (r *fileReader) list(s setting, n *yaml.Node) {
	entries, wrong := make([]string, 0, len(n.Content)), false
	for _, item := range n.Content {
		problem := ""
		switch {
		case item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str":
			problem = s.problem(item.Value, r.origin(item), "must be text; put it in quotes")
		case s.check != nil:
			if bad := s.check([]string{item.Value}); bad != "" {
				problem = s.problem(item.Value, r.origin(item), bad)
			}
		}
		if problem != "" {
			r.problems, wrong = append(r.problems, problem), true
		}
		entries = append(entries, item.Value)
	}
	if !wrong {
		r.layer[s.key] = sourced{entries, r.origin(n)}
	}
}

func (r *fileReader) origin(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.path, n.Line) }
