package netguard_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/netguard"
)

func allow(ranges ...string) *netguard.Guard {
	var all []netip.Prefix
	for _, r := range ranges {
		all = append(all, netip.MustParsePrefix(r))
	}
	return netguard.New(all)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	g := allow()
	for kind, addresses := range map[string][]string{
		"an unspecified address":                     {"0.0.0.0", "::", "::ffff:0.0.0.0"},
		"an address of this network":                 {"0.0.0.1", "0.255.255.255"},
		"a loopback address":                         {"127.0.0.1", "127.0.0.0", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::1%lo"},
		"a private address":                          {"10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255", "fc00::", "fdff:ffff::1", "::ffff:10.0.0.1"},
		"a link-local address":                       {"169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::", "fe80::1%eth0", "::ffff:169.254.1.1"},
		"a site-local address":                       {"fec0::", "feff:ffff::1"},
		"a cloud metadata address":                   {"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254"},
		"a carrier-grade NAT address":                {"100.64.0.0", "100.127.255.255"},
		"a benchmarking address":                     {"198.18.0.0", "198.19.255.255", "2001:2::1"},
		"a documentation address":                    {"192.0.2.0", "192.0.2.255", "198.51.100.7", "203.0.113.255", "2001:db8::", "2001:db8:ffff::1", "3fff::", "3fff:fff::1"},
		"a multicast address":                        {"224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ff0e::1"},
		"a broadcast address":                        {"255.255.255.255"},
		"a reserved address":                         {"240.0.0.0", "255.255.255.254", "192.0.0.1", "192.0.0.255", "100::1", "5f00::1", "1fff::1", "4000::", "fe00::1", "::ffff:0:127.0.0.1", "2001:1ff::1", "64:ff9b:2::1", "64:ff9a::1"},
		"a 6to4 address":                             {"2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "192.88.99.1"},
		"a Teredo address":                           {"2001::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"},
		"a local NAT64 address":                      {"64:ff9b:1::", "64:ff9b:1::8.8.8.8", "64:ff9b:1:ffff::1"},
		"an IPv4-compatible address":                 {"::2", "::127.0.0.1", "::8.8.8.8"},
		"the NAT64 form of a loopback address":       {"64:ff9b::127.0.0.1", "64:ff9b::7f00:1"},
		"the NAT64 form of a private address":        {"64:ff9b::10.0.0.1", "64:ff9b::c0a8:101"},
		"the NAT64 form of a cloud metadata address": {"64:ff9b::169.254.169.254"},
		"an address of one interface":                {"2606:4700::1111%eth0"},
	} {
		for _, text := range addresses {
			t.Run(text, func(t *testing.T) {
				t.Parallel()
				reason, refused := g.Refused(netip.MustParseAddr(text))
				require.True(t, refused)
				require.Equal(t, kind, reason)
			})
		}
	}

	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		"2000::1", "2001:200::1", "2001:4860:4860::8888", "2001:db7::1", "2001:db9::1", "2003::1", "2606:4700::1111", "3ffe::1", "3fff:1000::1",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
	} {
		t.Run(text+" is public", func(t *testing.T) {
			t.Parallel()
			reason, refused := g.Refused(netip.MustParseAddr(text))
			require.False(t, refused, reason)
		})
	}

	t.Run("no address is refused", func(t *testing.T) {
		t.Parallel()
		reason, refused := g.Refused(netip.Addr{})
		require.True(t, refused)
		require.Equal(t, "no address", reason)
	})
}

func TestAllow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard            *netguard.Guard
		allowed, refused []string
	}{
		"a range allows what is in it and no more":            {allow("10.1.0.0/16"), []string{"10.1.2.3"}, []string{"10.2.0.1", "127.0.0.1"}},
		"the bits behind its length say nothing":              {allow("10.1.2.3/16"), []string{"10.1.0.1"}, []string{"10.2.0.1"}},
		"an IPv4 range allows its mapped form":                {allow("127.0.0.0/8"), []string{"127.0.0.1", "::ffff:127.0.0.1"}, []string{"::1"}},
		"a mapped range allows its IPv4 form":                 {allow("::ffff:10.0.0.0/104"), []string{"10.9.9.9", "::ffff:10.9.9.9"}, []string{"192.168.0.1", "127.0.0.1"}},
		"an IPv4 range allows no form that is translated":     {allow("127.0.0.0/8", "10.0.0.0/8"), nil, []string{"::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "2002:7f00:1::"}},
		"a translated form is allowed by its own range":       {allow("64:ff9b::/96"), []string{"64:ff9b::10.0.0.1"}, []string{"10.0.0.1"}},
		"a link-local range allows addresses with a zone":     {allow("fe80::/10"), []string{"fe80::1%eth0", "fe80::1"}, []string{"2606:4700::1%eth0"}},
		"all of IPv4 is no IPv6":                              {allow("0.0.0.0/0"), []string{"169.254.169.254", "::ffff:127.0.0.1"}, []string{"::1"}},
		"all of IPv6 is no IPv4, in whatever form it is said": {allow("::/0"), []string{"::1", "fd00::1"}, []string{"127.0.0.1", "::ffff:127.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, text := range c.allowed {
				reason, refused := c.guard.Refused(netip.MustParseAddr(text))
				require.False(t, refused, "%s is %s", text, reason)
			}
			for _, text := range c.refused {
				_, refused := c.guard.Refused(netip.MustParseAddr(text))
				require.True(t, refused, text)
			}
		})
	}
}

func TestTheErrorNamesTheAddressItsKindAndTheSetting(t *testing.T) {
	t.Parallel()
	err := allow().Check(netip.MustParseAddr("169.254.169.254"))
	require.Equal(t, errs.AddressRefused, errs.CodeOf(err))
	require.EqualError(t, err,
		"address-refused: 169.254.169.254 is a cloud metadata address; comet connects to it only if webhooks.allow_networks permits it")
	require.NoError(t, allow("169.254.0.0/16").Check(netip.MustParseAddr("169.254.169.254")))
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1", "127.0.0.1.", "::1", "::ffff:127.0.0.1", "fe80::1%eth0", "169.254.169.254", "localhost", "localhost.", "LocalHost", "a.localhost",
		"127.1", "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "1.2.3.4.5", "example.0x", "256.256.256.256", "08.8.8.8",
	} {
		t.Run(host+" is refused", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, errs.AddressRefused, errs.CodeOf(allow().CheckHost(host)))
		})
	}
	for _, host := range []string{"example.com", "example.com.", "8.8.8.8", "2606:4700::1111", "xn--fiqs8s", "a.0xyz", "1.example", "localhost.example"} {
		t.Run(host+" passes", func(t *testing.T) {
			t.Parallel()
			require.NoError(t, allow().CheckHost(host))
		})
	}
	t.Run("localhost passes where one of its addresses is allowed", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, allow("127.0.0.0/8").CheckHost("localhost"))
		require.NoError(t, allow("::1/128").CheckHost("localhost."))
	})
}
