// Package redact masks secrets in text for users and logs. The configuration printer and
// the log handler share it, so that both mask the same values.
package redact

import (
	"net/url"
	"regexp"
	"strings"
)

// Mask replaces a secret.
const Mask = "********"

// patterns match secrets in free text: 32 or more consecutive hexadecimal digits
// (comet's tokens and their hashes), bearer and basic credentials, user information in
// URLs, and name=value or "name":"value" with a name that Key accepts.
// Read-only.
var patterns = []struct {
	find    *regexp.Regexp
	replace string
}{
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"',;]+`), "${1} " + Mask},
	{regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)([^\s/?#@:"']*):([^\s/?#"']*)@`), "${1}${2}:" + Mask + "@"},
	{regexp.MustCompile(`(?i)((?:token|secret|password|passwd|authorization)\\?["']?\s*[=:]\s*\\?["']?)[^\s"'&,;\\}]+`), "${1}" + Mask},
	{regexp.MustCompile(`[0-9a-fA-F]{32,}`), Mask},
}

// Text returns s with everything that looks like a secret masked.
func Text(s string) string {
	if !suspicious(s) {
		return s
	}
	for _, p := range patterns {
		s = p.find.ReplaceAllString(s, p.replace)
	}
	return s
}

// Key reports whether a field of this name holds a secret: its last word is
// authorization, cookie, password, secret or token, in any case and with any
// separator. Names that only begin with one (token_budget, token_id) do not.
func Key(name string) bool {
	start := len(name)
	for start > 0 && isLetter(name[start-1]) {
		start--
		if isUpper(name[start]) && start+1 < len(name) && !isUpper(name[start+1]) {
			break // the hump in adminToken
		}
	}
	switch strings.ToLower(name[start:]) {
	case "authorization", "cookie", "password", "passwd", "secret", "token":
		return true
	}
	return false
}

// ID reports whether a field of this name holds an id of comet's, or one that a
// client chose to find its requests again. It is never a secret, although a trace
// id looks like one.
func ID(name string) bool {
	return strings.HasSuffix(name, "request_id") || name == "token_id" || name == "trace_id" || name == "message_id"
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

func isLetter(c byte) bool { return isUpper(c) || c >= 'a' && c <= 'z' }

// URL returns a connection address without its credentials: the password, the
// lone user name of a URL like nats://token@host, and the values of query
// parameters that contain a secret. The URLs of a comma-separated list are processed
// one by one. Text that is not a URL is masked completely.
func URL(raw string) string {
	if raw == "" {
		return ""
	}
	if strings.Contains(raw, ",") && strings.Count(raw, "://") > 1 {
		parts := strings.Split(raw, ",")
		for i, p := range parts {
			parts[i] = URL(strings.TrimSpace(p))
		}
		return strings.Join(parts, ",")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return Mask
	}
	u.RawQuery = maskQuery(u.RawQuery)
	user := u.User
	u.User = nil
	text := u.String()
	if user == nil {
		return text
	}
	shown := url.User(user.Username()).String()
	if _, hasPassword := user.Password(); hasPassword {
		shown += ":" + Mask
	} else if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		shown = Mask
	}
	return strings.Replace(text, "://", "://"+shown+"@", 1)
}

func maskQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, p := range parts {
		name, _, found := strings.Cut(p, "=")
		if found && (Key(name) || strings.HasSuffix(name, "password")) {
			parts[i] = name + "=" + Mask
		}
	}
	return strings.Join(parts, "&")
}

// suspicious is a cheap check of every logged string: it reports whether any pattern could
// match.
func suspicious(s string) bool {
	run := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
			if run++; run >= 32 {
				return true
			}
			continue
		}
		run = 0
		switch c {
		case '@':
			if strings.Contains(s[:i], "://") {
				return true
			}
		case '=', ':', ' ', '\t':
			if endsInSecretWord(s[:i]) {
				return true
			}
		}
	}
	return false
}

// endsInSecretWord reports whether the text before a separator ends in a word that
// introduces a secret.
func endsInSecretWord(before string) bool {
	before = strings.TrimRight(before, "\"'\\ ")
	for _, word := range []string{"bearer", "basic", "token", "secret", "password", "passwd", "authorization"} {
		if len(before) >= len(word) && strings.EqualFold(before[len(before)-len(word):], word) {
			return true
		}
	}
	return false
}

// credential matches secrets with a recognisable format: tokens of services that use a prefix,
// cloud keys, JSON Web Tokens, private keys, bearer tokens, passwords in URLs, and values that
// consist of 32 or more hexadecimal digits, such as comet's own tokens. The digest in the name of a
// container image does not match.
var credential = regexp.MustCompile(`(^|[^A-Za-z0-9])(` +
	`sk-[A-Za-z0-9_-]{16,}|(sk|rk|pk)_(live|test)_[A-Za-z0-9]{10,}|gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|` +
	`xox[abeoprs]-[A-Za-z0-9-]{10,}|(AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|npm_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}|` +
	`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.|-----BEGIN [A-Z ]*PRIVATE KEY|` +
	`[a-z][a-z0-9+.-]*://[^\s/?#@:]*:[^\s/?#@$]+@)|^(?i:bearer) +[A-Za-z0-9._~+/=-]{8,}$|(^|=)[0-9a-fA-F]{32,}$`)

// Credential reports whether a value is or contains a secret, judged by its format alone and not by
// the name of its field.
func Credential(value string) bool { return credential.MatchString(value) }
