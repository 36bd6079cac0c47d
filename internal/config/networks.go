package config

import (
	"fmt"
	"net/netip"
	"strings"

	"comet/internal/input"
)

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

// network parses an address or a range, or returns what is wrong with it.
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
