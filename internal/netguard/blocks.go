package netguard

import "net/netip"

// block is a range of addresses that are not public.
type block struct {
	prefix netip.Prefix
	kind   string // as in "… is <kind>"
}

// blocks returns the rejected ranges, narrower ranges before wider ones. The sources are
// IANA's registries of special-purpose addresses (RFC 6890), and the addresses of the
// metadata services of clouds.
func blocks() []block {
	var all []block
	for _, group := range []struct {
		kind   string
		ranges []string
	}{
		{"a cloud metadata address", []string{
			"169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", // most clouds, and their containers
			"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // Alibaba, Azure (public, but never routed), Oracle
			"fd00:ec2::/32", "fd20:ce::254/128",
		}},
		{"an unspecified address", []string{"0.0.0.0/32", "::/128"}},
		{"a loopback address", []string{"127.0.0.0/8", "::1/128"}},
		{"an address of this network", []string{"0.0.0.0/8"}},
		{"a private address", []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"}},
		{"a link-local address", []string{"169.254.0.0/16", "fe80::/10"}},
		{"a site-local address", []string{"fec0::/10"}},
		{"a carrier-grade NAT address", []string{"100.64.0.0/10"}},
		{"a benchmarking address", []string{"198.18.0.0/15", "2001:2::/48"}},
		{"a documentation address", []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"}},
		{"a broadcast address", []string{"255.255.255.255/32"}},
		{"a multicast address", []string{"224.0.0.0/4", "ff00::/8"}},
		// Tunnels and translators forward to an IPv4 address that is not visible here and
		// depends on their operator. The first two are obsolete.
		{"a 6to4 address", []string{"192.88.99.0/24", "2002::/16"}},
		{"a Teredo address", []string{"2001::/32"}},
		{"a local NAT64 address", []string{"64:ff9b:1::/48"}},
		{"an IPv4-compatible address", []string{"::/96"}},
		{"a reserved address", []string{"192.0.0.0/24", "240.0.0.0/4", "2001::/23"}},
	} {
		for _, text := range group.ranges {
			all = append(all, block{netip.MustParsePrefix(text), group.kind})
		}
	}
	return all
}

// kind returns the kind of an address, "" for a public one. addr is not IPv4-mapped.
func (g *Guard) kind(addr netip.Addr) string {
	if !addr.IsValid() {
		return "no address"
	}
	if v4, ok := translated(addr); ok {
		if kind := g.kind(v4); kind != "" {
			return "the NAT64 form of " + kind
		}
		return ""
	}
	for _, b := range g.refused {
		if b.prefix.Contains(addr) {
			return b.kind
		}
	}
	if addr.Is6() && addr.As16()[0]>>5 != 1 { // not in 2000::/3, the only part that is allocated for public addresses
		return "a reserved address"
	}
	return ""
}

// translated returns the IPv4 address in an address of 64:ff9b::/96, the prefix by which
// networks without IPv4 reach public servers that have only IPv4 (RFC 6052).
func translated(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	if !addr.Is6() || b != [16]byte{0, 0x64, 0xff, 0x9b, 12: b[12], 13: b[13], 14: b[14], 15: b[15]} {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}
