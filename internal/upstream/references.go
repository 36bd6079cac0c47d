package upstream

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"comet/internal/words"
)

// maxSecretFile is the longest file that ${file:/path} reads, in bytes.
const maxSecretFile = 64 << 10

// resolver replaces the references in a definition by what they mean and remembers what
// that was, to hide it.
type resolver struct {
	lookupEnv   func(string) (string, bool)
	isProtected func(path string) bool
	secrets     *secrets
	err         error // the first
}

// resolvedServer is a definition whose references are resolved. It is kept for one start only
// and never shown.
type resolvedServer struct {
	Server
	secrets *secrets
}

// resolve looks everything up that s refers to.
func (s Server) resolve(lookup func(string) (string, bool), protected func(path string) bool) (*resolvedServer, error) {
	r := &resolver{lookupEnv: lookup, isProtected: protected, secrets: &secrets{}}
	out := s
	out.Command, out.Dir, out.URL = r.expand("command", s.Command), r.expand("cwd", s.Dir), r.expand("url", s.URL)
	out.Args = make([]string, len(s.Args))
	for i, arg := range s.Args {
		out.Args[i] = r.expand(fmt.Sprintf("args[%d]", i), arg)
	}
	out.Env, out.Headers = r.expandAll("env", s.Env), r.expandAll("headers", s.Headers)
	if out.Bearer = r.expand("comet.bearer", s.Bearer); out.Bearer != "" {
		r.secrets.add(out.Bearer)
	}
	if r.err != nil {
		return nil, r.err
	}
	if out.URL != "" {
		if b := checkURL(out.URL); b != nil {
			return nil, fmt.Errorf("%s %s", b.key, b.detail)
		}
	}
	r.secrets.build()
	return &resolvedServer{Server: out, secrets: r.secrets}, nil
}

// expandAll resolves an object whose values are all taken for secrets.
func (r *resolver) expandAll(key string, in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for name, value := range in {
		out[name] = r.expand(key+"."+words.Clip(name), value)
		r.secrets.add(out[name])
	}
	return out
}

// referencePattern is ${…}, and $${ which stands for ${ itself.
func referencePattern() *regexp.Regexp { return regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`) }

func (r *resolver) expand(key, in string) string {
	if !strings.Contains(in, "${") {
		return in
	}
	return referencePattern().ReplaceAllStringFunc(in, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		value, err := r.resolveReference(ref)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("in %s, %w", key, err) // no "name: …", which would be taken for a secret
		}
		return value
	})
}

// resolveReference resolves one reference.
func (r *resolver) resolveReference(ref string) (string, error) {
	inner, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
	if !closed {
		return "", fmt.Errorf("%s has no closing brace", words.Quote(ref))
	}
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		if r.isProtected(path) {
			return "", fmt.Errorf("the file %s is in comet's data directory; keep secrets elsewhere", words.Quote(path))
		}
		value, err := readSecret(path)
		r.secrets.add(value)
		return value, err
	}
	name, otherwise, hasOtherwise := strings.Cut(strings.TrimPrefix(inner, "env:"), ":-")
	if name == "" || strings.ContainsAny(name, ": ") {
		return "", fmt.Errorf("%s is no reference to a variable or a file", words.Quote(ref))
	}
	value, set := r.lookupEnv(name)
	switch {
	case set && value != "":
		r.secrets.add(value)
		return value, nil
	case hasOtherwise:
		return otherwise, nil
	case set:
		return "", fmt.Errorf("the variable %s is empty", words.Clip(name))
	}
	return "", fmt.Errorf("the variable %s is not set", words.Clip(name))
}

// readSecret returns the content of a file without the line end at its end.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(data), "\r\n")
	switch {
	case len(data) > maxSecretFile:
		return "", fmt.Errorf("the file %s is longer than %d bytes", words.Quote(path), maxSecretFile)
	case value == "":
		return "", fmt.Errorf("the file %s is empty", words.Quote(path))
	}
	return value, nil
}
