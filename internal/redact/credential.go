package redact

import "regexp"

// credential is what secrets look like that say themselves what they are: the tokens of the
// services that give them a prefix, keys of the clouds, JSON Web Tokens, private keys,
// a bearer token, a password in a URL, and a value that is nothing but 32 or more hex digits, as
// comet's own are; a digest in the name of an image is none.
var credential = regexp.MustCompile(`(^|[^A-Za-z0-9])(` +
	`sk-[A-Za-z0-9_-]{16,}|(sk|rk|pk)_(live|test)_[A-Za-z0-9]{10,}|gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|` +
	`xox[abeoprs]-[A-Za-z0-9-]{10,}|(AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|npm_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}|` +
	`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.|-----BEGIN [A-Z ]*PRIVATE KEY|` +
	`[a-z][a-z0-9+.-]*://[^\s/?#@:]*:[^\s/?#@$]+@)|^(?i:bearer) +[A-Za-z0-9._~+/=-]{8,}$|(^|=)[0-9a-fA-F]{32,}$`)

// Credential reports whether a value is or holds a secret by its own look, whatever the name
// of what it stands in.
func Credential(value string) bool { return credential.MatchString(value) }
