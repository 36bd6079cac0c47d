package upstream

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"comet/internal/input"
	"comet/internal/redact"
)

// minSecret is the length of the shortest masked value in bytes; shorter ones occur in words.
const minSecret = 6

// secrets masks values in an upstream's output and errors, at least what looks like a secret.
type secrets struct {
	replacer    *strings.Replacer
	accessToken atomic.Value // a string, the latest token of OAuth
}

// newSecrets masks values, their lines and their words: the token of "Bearer x" also appears as x.
func newSecrets(values []string) *secrets {
	for _, value := range values {
		values = append(append(values, strings.Split(value, "\n")...), strings.Fields(value)...)
	}
	slices.SortFunc(values, func(a, b string) int { // a part must not be replaced before the whole
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	var pairs []string
	for _, v := range slices.Compact(values) {
		if len(v) >= minSecret {
			pairs = append(pairs, v, redact.Mask)
		}
	}
	return &secrets{replacer: strings.NewReplacer(pairs...)}
}

// mask returns text without the values and without other text that looks like a secret.
func (s *secrets) mask(text string) string {
	if token, _ := s.accessToken.Load().(string); token != "" {
		text = strings.ReplaceAll(text, token, redact.Mask)
	}
	return redact.Text(s.replacer.Replace(text))
}

// CheckFiles returns errs.InvalidRequest if a definition refers to a protected file. It opens no file.
func (m *Manager) CheckFiles(s Server) (err error) {
	_, _ = s.resolve(m.opts.LookupEnv, func(path string) bool {
		if m.opts.IsProtected(path) {
			err = violates(input.Quote(path), "is in comet's data directory; keep secrets elsewhere").invalid(s.ID)
		}
		return true
	})
	return err
}

// maxSecretFile is the size limit of a file that ${file:/path} reads, in bytes.
const maxSecretFile = 64 << 10

// resolver replaces the references in a definition by their values and collects these.
type resolver struct {
	lookupEnv   func(string) (string, bool)
	isProtected func(path string) bool
	values      []string
	err         error // the first one
}

// resolvedServer is a definition with resolved references, for one session and never shown.
type resolvedServer struct {
	Server
	secrets *secrets
}

func (s Server) resolve(lookup func(string) (string, bool), protected func(path string) bool) (*resolvedServer, error) {
	r := &resolver{lookupEnv: lookup, isProtected: protected}
	out := s
	out.Command, out.Dir, out.URL = r.expand("command", s.Command), r.expand("cwd", s.Dir), r.expand("url", s.URL)
	out.Args = make([]string, len(s.Args))
	for i, arg := range s.Args {
		out.Args[i] = r.expand(fmt.Sprintf("args[%d]", i), arg)
	}
	out.Env, out.Headers = r.expandAll("env", s.Env), r.expandAll("headers", s.Headers)
	out.Bearer = r.expand("comet.bearer", s.Bearer)
	out.OAuth.ClientID, out.OAuth.ClientSecret = r.expand("comet.oauth.client_id", s.OAuth.ClientID), r.expand("comet.oauth.client_secret", s.OAuth.ClientSecret)
	r.values = append(r.values, out.Bearer, out.OAuth.ClientSecret)
	if r.err != nil {
		return nil, r.err
	}
	if out.URL != "" {
		if b := checkURL(out.URL); b != nil {
			return nil, fmt.Errorf("%s %s", b.key, b.detail)
		}
	}
	return &resolvedServer{Server: out, secrets: newSecrets(r.values)}, nil
}

// expandAll resolves an object and treats all its values as secrets.
func (r *resolver) expandAll(key string, in map[string]string) map[string]string {
	out := make(map[string]string, len(in))
	for name, value := range in {
		out[name] = r.expand(key+"."+input.Clip(name), value)
		r.values = append(r.values, out[name])
	}
	return out
}

func (r *resolver) expand(key, in string) string {
	if !strings.Contains(in, "${") {
		return in
	}
	reference := regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`) // ${…}, and $${ which stands for a literal ${
	return reference.ReplaceAllStringFunc(in, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		value, err := r.resolveReference(ref)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("in %s, %w", key, err) // no "name: …", which redact would mask as a secret
		}
		return value
	})
}

func (r *resolver) resolveReference(ref string) (string, error) {
	inner, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
	if !closed {
		return "", fmt.Errorf("%s has no closing brace", input.Quote(ref))
	}
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		if r.isProtected(path) {
			return "", fmt.Errorf("the file %s is in comet's data directory; keep secrets elsewhere", input.Quote(path))
		}
		value, err := readSecret(path)
		r.values = append(r.values, value)
		return value, err
	}
	name, otherwise, hasOtherwise := strings.Cut(strings.TrimPrefix(inner, "env:"), ":-")
	if name == "" || strings.ContainsAny(name, ": ") {
		return "", fmt.Errorf("%s is not a reference to a variable or a file", input.Quote(ref))
	}
	value, set := r.lookupEnv(name)
	switch {
	case set && value != "":
		r.values = append(r.values, value)
		return value, nil
	case hasOtherwise:
		return otherwise, nil
	case set:
		return "", fmt.Errorf("the variable %s is empty", input.Clip(name))
	}
	return "", fmt.Errorf("the variable %s is not set", input.Clip(name))
}

// readSecret returns the content of a file without trailing line ends.
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
		return "", fmt.Errorf("the file %s is longer than %d bytes", input.Quote(path), maxSecretFile)
	case value == "":
		return "", fmt.Errorf("the file %s is empty", input.Quote(path))
	}
	return value, nil
}
