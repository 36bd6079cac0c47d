package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"comet/internal/input"
	"comet/models"
)

// MinAdminTokenLength is the fewest characters a configured admin token may have.
const MinAdminTokenLength = 32

// checks returns the checks that a check tag can name.
func checks() map[string]func(any) string {
	return map[string]func(any) string{
		"notEmpty": notEmpty, "address": address, "optionalAddress": optional(address), "socketAddress": optional(socketAddress), "httpURL": optional(httpURL),
		"postgresURL": optional(postgresURL), "natsURL": optional(natsURL), "adminToken": optional(adminToken),
		"logFormat": oneOf(logFormats()...), "networks": networks,
		"issuer": optional(issuer), "scopes": scopes,
	}
}

// optional returns a check that also accepts an empty text.
func optional(check func(any) string) func(any) string {
	return func(value any) string {
		if value.(string) == "" {
			return ""
		}
		return check(value)
	}
}

// between checks a number or a duration against its bounds, both included. text is low..high.
func between(low, high any, text string) func(any) string {
	least, most := reflect.ValueOf(low).Int(), reflect.ValueOf(high).Int()
	return func(value any) string {
		if v := reflect.ValueOf(value).Int(); v < least || v > most {
			return "must be between " + strings.Replace(text, "..", " and ", 1)
		}
		return ""
	}
}

func oneOf(words ...string) func(any) string {
	return func(value any) string {
		if slices.Contains(words, value.(string)) {
			return ""
		}
		last := len(words) - 1
		return fmt.Sprintf("must be %s or %s", strings.Join(words[:last], ", "), words[last]) + input.DidYouMean(value.(string), words)
	}
}

func notEmpty(value any) string {
	if text := value.(string); text == "" || strings.ContainsRune(text, 0) {
		return "must not be empty"
	}
	return ""
}

func address(value any) string {
	_, port, err := net.SplitHostPort(value.(string))
	if err != nil {
		return "must be host:port, for example 127.0.0.1:8080"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "must end in a port from 0 to 65535"
	}
	return ""
}

func socketAddress(value any) string {
	path, isSocket := strings.CutPrefix(value.(string), "unix:")
	switch {
	case !isSocket:
		return address(value)
	case !filepath.IsAbs(path):
		return "must have an absolute path, for example unix:/run/comet/agents.sock"
	}
	return ""
}

func httpURL(value any) string {
	if u, err := url.Parse(value.(string)); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return "must be a URL of the form http://host:4318"
	}
	return ""
}

func issuer(value any) string {
	u, err := url.Parse(value.(string))
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback()) {
		return "must be a URL of the form https://login.example.com, or http://127.0.0.1:8081 on this machine"
	}
	return ""
}

func scopes(value any) string {
	for _, entry := range value.([]string) {
		if scope, _, _ := strings.Cut(entry, "="); !slices.Contains(models.Scopes(), models.Scope(scope)) {
			return "must hold entries such as agents:read or agents:read=staff; " + input.Quote(scope) + " is not a scope"
		}
	}
	return ""
}

func postgresURL(value any) string {
	if u, err := url.Parse(value.(string)); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "must be a URL of the form postgres://user:password@host:5432/database"
	}
	return ""
}

func natsURL(value any) string {
	for one := range strings.SplitSeq(value.(string), ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Host == "" {
			return "must be URLs of the form nats://host:4222, separated by commas"
		}
	}
	return ""
}

func adminToken(value any) string {
	text := value.(string)
	for _, r := range text {
		if r <= ' ' || r > '~' {
			return "must be printable ASCII without spaces"
		}
	}
	switch {
	case len(text) < MinAdminTokenLength:
		return fmt.Sprintf("must have at least %d characters", MinAdminTokenLength)
	case len(text) > input.MaxTokenLength: // no API accepts it
		return fmt.Sprintf("must have at most %d characters", input.MaxTokenLength)
	}
	return ""
}

// list splits a text at its commas. An empty text is an empty list.
func list(text string) []string {
	entries := []string{}
	if strings.TrimSpace(text) == "" {
		return entries
	}
	for entry := range strings.SplitSeq(text, ",") {
		entries = append(entries, strings.TrimSpace(entry))
	}
	return entries
}

// Networks returns AllowNetworks; a single address is a range of one.
func (w Webhooks) Networks() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range w.AllowNetworks {
		if p, wrong := network(text); wrong == "" {
			all = append(all, p)
		}
	}
	return all
}

// networks validates a list of addresses and ranges.
func networks(value any) string {
	var bad []string
	for _, text := range value.([]string) {
		if _, wrong := network(text); wrong != "" {
			bad = append(bad, wrong)
		}
	}
	if len(bad) == 0 {
		return ""
	}
	return "must hold addresses and ranges such as 127.0.0.1 or 10.0.0.0/8: " + strings.Join(bad, "; ")
}

// network parses an address or a range; wrong describes an invalid one.
func network(text string) (p netip.Prefix, wrong string) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), ""
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, input.Quote(text) + " is none"
	case p != p.Masked(): // ambiguous: the range, or the one address?
		return p, fmt.Sprintf("%s has more than its first %d bits set, write %s or %s", input.Quote(text), p.Bits(), p.Masked(), p.Addr())
	}
	return p, ""
}
