package upstream

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"comet/internal/redact"
)

// clipBytes returns at most n bytes of s, whole characters of valid text.
func clipBytes(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// displayURL is an address without what may be secret in it: user, query and fragment.
func displayURL(raw string) string {
	if strings.Contains(raw, "${") { // a reference, which is none
		return strings.SplitN(raw, "?", 2)[0]
	}
	u, err := url.Parse(raw)
	if err != nil {
		return redact.Mask
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		shown.RawQuery = redact.Mask
	}
	return shown.String()
}
