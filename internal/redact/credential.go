package redact

import "regexp"

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
