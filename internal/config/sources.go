package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"comet/internal/input"
)

// Sources are the inputs of a configuration.
type Sources struct {
	// Flags are the command's, as registered by Flags; nil for none. Only flags that were set count.
	Flags *pflag.FlagSet
	// Environ is the environment as "NAME=value", as os.Environ returns it.
	// An empty variable counts as not set.
	Environ []string
}

// Load reads the configuration. A flag overrides the environment, which overrides the file named by
// --config or COMET_CONFIG, which overrides the default. The error is an *Error that lists every
// problem of every source.
func Load(src Sources) (Config, error) {
	c := Default()
	c.file = configPath(src)
	var data []byte
	if c.file != "" {
		var err error
		if data, err = os.ReadFile(c.file); err != nil {
			return Config{}, &Error{Problems: []string{fmt.Sprintf("The configuration file cannot be read: %v.", err)}}
		}
	}
	env, flags, file := readEnviron(src.Environ), readFlags(src.Flags), readFile(c.file, data)
	if problems := slices.Concat(env.problems, flags.problems, file.problems); len(problems) > 0 {
		return Config{}, &Error{Problems: problems}
	}
	maps.Copy(file.values, env.values)
	maps.Copy(file.values, flags.values)
	for _, s := range settings() {
		if v, ok := file.values[s.key]; ok {
			s.set(&c, v.value)
			c.origins[s.key] = v.origin
		}
	}
	if c.OIDC.Issuer != "" && c.OIDC.Audience == "" {
		return Config{}, &Error{Problems: []string{"oidc.issuer needs oidc.audience: tokens of the issuer for other servers must not be accepted."}}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return Config{}, &Error{Problems: []string{"tls.cert_file and tls.key_file (--tls-cert and --tls-key) belong together: set both or neither."}}
	}
	return c, nil
}

// Default returns the configuration of a server without any settings.
func Default() Config {
	c := Config{origins: map[string]string{}}
	for _, s := range settings() {
		s.set(&c, s.def)
		c.origins[s.key] = "default"
	}
	return c
}

// Error lists the problems of a configuration, one sentence each.
type Error struct{ Problems []string }

// Error implements error.
func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

const (
	envPrefix  = "COMET_"
	envConfig  = "COMET_CONFIG"
	flagConfig = "config"
	// envTest is the prefix of variables that only tests read.
	envTest = "COMET_TEST_"
	envFile = "_FILE" // ends the name of a variable that names a file with a secret
	// maxSecretBytes limits such a file.
	maxSecretBytes = 64 << 10
)

// clientVariables are read by the client commands, not by the server.
func clientVariables() []string {
	return []string{"COMET_SERVER", "COMET_TOKEN", "COMET_OUTPUT", "COMET_CLIENT_CONFIG", "COMET_PROFILE"}
}

// kubernetesVariable matches the variables that Kubernetes gives a container for each Service in its
// namespace; those of a Service named comet, or comet-db, begin like ours. COMET_PORT contains a URL
// then; with a bare number it is probably a mistake.
var kubernetesVariable = regexp.MustCompile(`^COMET_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST=|SERVICE_PORT(?:_[A-Z0-9_]+)?=|PORT=(?:tcp|udp|sctp)://|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?=)`)

// layer holds the values of one source by key, and its problems.
type layer struct {
	values   map[string]sourced
	problems []string
}

type sourced struct {
	value  any
	origin string // e.g. "default", "env COMET_LISTEN", "comet.yaml:3"
}

// parse adds a value given as text; from names the source in error texts.
func (l *layer) parse(s setting, text, from, origin string) {
	value, problem := s.parse(text, from)
	if problem != "" {
		l.problems = append(l.problems, problem)
		return
	}
	l.values[s.key] = sourced{value, origin}
}

// Flags registers the flags of `comet serve` on fs.
func Flags(fs *pflag.FlagSet) {
	fs.String(flagConfig, "", "`file` (YAML) to read settings from; COMET_CONFIG")
	for _, s := range settings() {
		if s.flag == "" {
			continue
		}
		help := strings.NewReplacer("“", "", "”", "").Replace(s.help)
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

func readFlags(fs *pflag.FlagSet) *layer {
	l := &layer{values: map[string]sourced{}}
	if fs == nil {
		return l
	}
	for _, s := range settings() {
		if f := fs.Lookup(s.flag); s.flag != "" && f != nil && f.Changed {
			l.parse(s, f.Value.String(), "--"+s.flag, "flag --"+s.flag)
		}
	}
	return l
}

func readEnviron(environ []string) *layer {
	table := map[string]setting{}
	for _, s := range settings() {
		table[s.env()] = s
		if s.mask != nil {
			table[s.env()+envFile] = s
		}
	}
	known := append(slices.Sorted(maps.Keys(table)), envConfig)
	l := &layer{values: map[string]sourced{}}
	for _, v := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, envPrefix) || name == envConfig ||
			strings.HasPrefix(name, envTest) || slices.Contains(clientVariables(), name) {
			continue
		}
		s, ok := table[name]
		switch {
		case !ok && kubernetesVariable.MatchString(v):
		case !ok:
			l.problems = append(l.problems, unknown("The environment variable "+name, name, known))
		case text != "" && name != s.env():
			l.parseFile(s, text, name)
		case text != "":
			l.parse(s, text, "environment variable "+name, "env "+name)
		}
	}
	return l
}

// parseFile adds the secret in a file, without the newline at its end. The environment variable name
// gives its path; a variable with the secret itself was parsed before.
func (l *layer) parseFile(s setting, path, name string) {
	data, err := os.ReadFile(path)
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if _, isSet := l.values[s.key]; isSet {
		err = fmt.Errorf("%s is also set; set one of them", s.env())
	} else if err == nil && (text == "" || len(text) > maxSecretBytes) {
		err = fmt.Errorf("%s contains %d bytes instead of 1 to %d", path, len(text), maxSecretBytes)
	}
	if err != nil {
		l.problems = append(l.problems, fmt.Sprintf("%s (environment variable %s) cannot be read: %v.", s.key, name, err))
		return
	}
	l.parse(s, text, "file of environment variable "+name, "env "+name)
}

func unknown(what, name string, known []string) string {
	return what + " is not a setting" + cmp.Or(input.DidYouMean(name, known), ".")
}

// readFile reads the settings in a YAML document.
func readFile(path string, data []byte) *layer {
	r := fileReader{path: path, table: map[string]setting{}, layer: layer{values: map[string]sourced{}}, sections: map[string]bool{}}
	for _, s := range settings() {
		r.table[s.key] = s
		r.known = append(r.known, s.key)
		for parts := strings.Split(s.key, "."); len(parts) > 1; {
			parts = parts[:len(parts)-1]
			r.sections[strings.Join(parts, ".")] = true
		}
	}
	doc := input.Parse(data, input.YAML)
	for _, v := range doc.Violations() {
		r.fail(v.Line, "%s", v.Detail)
	}
	switch {
	case len(r.problems) > 0 || doc.Root == nil:
	case doc.Root.Kind != input.Object:
		r.fail(doc.Root.Line, "the file must contain settings of the form key: value")
	default:
		r.section(doc.Root, "")
	}
	return &r.layer
}

type fileReader struct {
	layer
	path     string
	table    map[string]setting
	known    []string
	sections map[string]bool
}

func (r *fileReader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("%s:%d: %s.", r.path, line, fmt.Sprintf(format, args...)))
}

func (r *fileReader) section(n *input.Node, prefix string) {
	for i := range n.Members {
		m := &n.Members[i]
		key := prefix + m.Name
		s, isSetting := r.table[key]
		switch {
		case isSetting:
			r.setting(s, &m.Value)
		case !r.sections[key]:
			r.problems = append(r.problems, fmt.Sprintf("%s:%d: %s", r.path, m.Line, unknown(key, key, r.known)))
		case m.Value.Kind != input.Object:
			r.fail(m.Line, "%s must contain settings of its own", key)
		default:
			r.section(&m.Value, key+".")
		}
	}
}

func (r *fileReader) setting(s setting, n *input.Node) {
	_, isList := s.def.([]string)
	switch {
	case isList && n.Kind == input.Array:
		r.list(s, n)
		return
	case n.Kind == input.Object || n.Kind == input.Array:
		r.fail(n.Line, "%s must be %s", s.key, s.typeName())
		return
	case n.Kind == input.Null:
		r.fail(n.Line, "%s has no value; leave the line out to use the default", s.key)
		return
	}
	want, quotable := input.String, false
	switch s.def.(type) {
	case bool:
		want = input.Boolean
	case int, int64:
		want = input.Number
	case string, []string:
		quotable = true
	}
	if n.Kind != want {
		wrong := "must be " + s.typeName()
		if quotable {
			wrong += "; put it in quotes"
		}
		r.problems = append(r.problems, s.problem(n.Text, r.origin(n), wrong))
		return
	}
	r.parse(s, n.Text, r.origin(n), r.origin(n))
}

// list reads a list of strings; problems of an item are reported with its line.
func (r *fileReader) list(s setting, n *input.Node) {
	entries, before := make([]string, 0, len(n.Members)), len(r.problems)
	for i := range n.Members {
		item := &n.Members[i].Value
		wrong := ""
		switch {
		case item.Kind != input.String:
			wrong = "must be text; put it in quotes"
		case s.check != nil:
			wrong = s.check([]string{item.Text})
		}
		if wrong != "" {
			r.problems = append(r.problems, s.problem(item.Text, r.origin(item), wrong))
		}
		entries = append(entries, item.Text)
	}
	if len(r.problems) == before {
		r.values[s.key] = sourced{entries, r.origin(n)}
	}
}

func (r *fileReader) origin(n *input.Node) string { return fmt.Sprintf("%s:%d", r.path, n.Line) }
