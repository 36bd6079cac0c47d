package netguard_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/netguard"
)

// FuzzEveryFormOfARefusedAddressIsRefused takes an IPv4 address through the forms in
// which IPv6 carries one.
func FuzzEveryFormOfARefusedAddressIsRefused(f *testing.F) {
	for _, a := range []uint32{0x7f000001, 0x0a000001, 0xa9fea9fe, 0x08080808, 0, 0xffffffff, 0x64400000} {
		f.Add(a, uint64(a))
	}
	g := netguard.New(nil)
	f.Fuzz(func(t *testing.T, v4 uint32, rest uint64) {
		b := [4]byte{byte(v4 >> 24), byte(v4 >> 16), byte(v4 >> 8), byte(v4)}
		addr := netip.AddrFrom4(b)
		_, refused := g.Refused(addr)
		hex := fmt.Sprintf("%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])
		tail := fmt.Sprintf("%x:%x:%x:%x", rest>>48, rest>>32&0xffff, rest>>16&0xffff, rest&0xffff)

		same := map[string]string{"mapped": "::ffff:" + hex, "NAT64": "64:ff9b::" + hex}
		for form, text := range same {
			_, got := g.Refused(netip.MustParseAddr(text))
			require.Equal(t, refused, got, "%s form of %s", form, addr)
		}
		for form, text := range map[string]string{
			"6to4": "2002:" + hex + ":1:" + tail, "Teredo": "2001:0:" + hex + ":" + tail, "compatible": "::" + hex, "translated": "::ffff:0:" + hex,
			"local NAT64": "64:ff9b:1:" + fmt.Sprintf("%x", rest>>48) + "::" + hex,
		} {
			_, got := g.Refused(netip.MustParseAddr(text))
			require.True(t, got, "%s form of %s", form, addr)
		}
		if refused {
			require.Error(t, g.CheckHost(addr.String()))
			require.Error(t, g.CheckHost("::ffff:"+hex))
			require.Error(t, g.CheckHost(fmt.Sprint(v4)))
			require.Error(t, g.CheckHost(fmt.Sprintf("0x%x", v4)))
		}
	})
}

// FuzzOnlyGlobalUnicastIsPublic holds the guard against the standard library's own
// idea of an address, and against the one range of IPv6 that is public.
func FuzzOnlyGlobalUnicastIsPublic(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add(netip.MustParseAddr("2606:4700::1111").AsSlice())
	f.Add(netip.MustParseAddr("64:ff9b::8.8.8.8").AsSlice())
	g := netguard.New(nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		if _, refused := g.Refused(addr); refused {
			return
		}
		addr = addr.Unmap()
		require.True(t, addr.IsGlobalUnicast() && !addr.IsPrivate(), addr)
		if addr.Is6() {
			translated := netip.MustParsePrefix("64:ff9b::/96").Contains(addr)
			require.True(t, translated || netip.MustParsePrefix("2000::/3").Contains(addr), addr)
		}
	})
}
