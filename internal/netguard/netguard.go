// Package netguard prevents server-side request forgery: clients choose the URLs of deliveries, and
// a host name can resolve to any address, including addresses that only comet's machine and network
// may reach. It checks the address of each connection after name resolution and before the first
// packet, so that neither an unusual notation nor a changed DNS record bypasses the check.
package netguard

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"comet/internal/errs"
	"comet/internal/input"
)

// setting is the setting that permits a range; error messages name it.
const setting = "webhooks.allow_networks"

const (
	// keepAlive is how often an idle connection is probed.
	keepAlive = 30 * time.Second
	// idleTimeout is how long an HTTP transport keeps an unused connection, idlePerHost and allIdle
	// how many it keeps for one host and in total.
	idleTimeout = 90 * time.Second
	idlePerHost = 64
	allIdle     = 1024
	// maxHeaderBytes limits the headers of a response.
	maxHeaderBytes = 64 << 10
)

// Guard decides which addresses comet may connect to. It is safe for concurrent use.
type Guard struct {
	allow   []netip.Prefix
	refused []block
	dialer  net.Dialer
}

// New returns a guard that allows public addresses and those in allow. An IPv4 range
// also allows its IPv4-mapped form, and vice versa, but no translated addresses such as
// NAT64, which belong to another network.
func New(allow []netip.Prefix) *Guard {
	g := &Guard{refused: blocks()}
	for _, p := range allow {
		g.allow = append(g.allow, unmapped(p).Masked())
	}
	g.dialer = net.Dialer{KeepAlive: keepAlive, ControlContext: g.control}
	return g
}

// unmapped returns ::ffff:10.0.0.0/104 as 10.0.0.0/8.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// Refused reports whether comet rejects connections to addr, and the kind of a rejected
// address, such as "a loopback address".
func (g *Guard) Refused(addr netip.Addr) (reason string, refused bool) {
	zone := addr.Zone() != ""
	addr = addr.WithZone("").Unmap()
	for _, p := range g.allow {
		if p.Contains(addr) {
			return "", false
		}
	}
	if reason := g.kind(addr); reason != "" {
		return reason, true
	}
	if zone {
		return "an address of one interface", true
	}
	return "", false
}

// Check returns errs.AddressRefused if Refused reports true. The message names the address,
// its kind and the setting that permits it.
func (g *Guard) Check(addr netip.Addr) error { return g.check(addr.String()+" is", addr) }

// check is Check with an error message that begins with subject, such as "10.0.0.1 is".
func (g *Guard) check(subject string, addr netip.Addr) error {
	reason, refused := g.Refused(addr)
	if !refused {
		return nil
	}
	return errs.New(errs.AddressRefused, "%s %s; comet connects to it only if %s permits it", subject, reason, setting)
}

// CheckURL checks an http or https URL of at most limit bytes as far as possible without name
// resolution. It returns the name of the broken rule with its error, errs.InvalidRequest or
// errs.AddressRefused. Path and query may contain a secret, so no message repeats them.
func (g *Guard) CheckURL(text string, limit int, httpsOnly bool) (rule string, err error) {
	invalid := func(rule, format string, args ...any) (string, error) {
		return rule, errs.New(errs.InvalidRequest, format, args...)
	}
	if len(text) > limit {
		return invalid("max", "url must have at most %d bytes, not %d", limit, len(text))
	}
	u, err := url.Parse(text)
	switch {
	case strings.ContainsFunc(text, unicode.IsSpace):
		return invalid("url", "url must not contain spaces or line breaks; write a space in a path or query as %%20")
	case err != nil:
		return invalid("url", "url cannot be read as a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("url", "url must be absolute and begin with https:// or http://")
	case u.Hostname() == "":
		return invalid("url", "url must name a host")
	case !isPort(u.Port()):
		return invalid("url", "url must have a port of 1 to 65535, or none")
	case u.User != nil:
		return invalid("credentials", "url must not contain a user name or a password")
	case strings.Contains(text, "#"):
		return invalid("fragment", "url must not have a fragment, which is never sent")
	case httpsOnly && u.Scheme != "https":
		return invalid("https", "url must begin with https://; this server permits no other scheme")
	}
	return "address", g.CheckHost(u.Hostname())
}

// isPort reports whether text is a port, or empty.
func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}

// CheckHost checks the host of a URL without name resolution, so that a literal address that
// comet would reject later is rejected at registration. Names are accepted: their addresses
// are checked at every connection. The errors are errs.AddressRefused.
func (g *Guard) CheckHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(name); err == nil {
		return g.Check(addr)
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 §6.3
		return g.checkLocalhost()
	}
	if endsInNumber(name) {
		return errs.New(errs.AddressRefused, "%s is a number in an ambiguous form; write an IPv4 address as four decimal numbers",
			input.Quote(host))
	}
	return nil
}

// checkLocalhost refuses unless one of the two addresses of the name is allowed.
func (g *Guard) checkLocalhost() error {
	err := g.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	if err != nil && g.Check(netip.IPv6Loopback()) == nil {
		return nil
	}
	return err
}

// endsInNumber reports whether some parsers interpret the name as an IPv4 address, such
// as 127.1, 2130706433 or 0x7f.0.0.1; no top-level domain is a number.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// DialContext connects to an address of the form host:port over TCP, as net.Dialer
// does, to the first of the host's addresses that responds and is not rejected. The error is,
// or wraps, errs.AddressRefused if an address was rejected. If the host is a name, the message
// omits its address: a client that may create a webhook must not be able to resolve names of
// comet's internal network.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6":
		if host, _, err := net.SplitHostPort(address); err == nil && isName(host) {
			ctx = context.WithValue(ctx, nameKey{}, host)
		}
		return g.dialer.DialContext(ctx, network, address)
	}
	return nil, errs.New(errs.AddressRefused, "comet makes TCP connections only, not %s", input.Quote(network))
}

// Transport returns an HTTP transport that connects with DialContext. timeout limits connecting, the
// TLS handshake, and the response to a ping. It uses no proxy, which would make the connections
// that the guard must check.
func (g *Guard) Transport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			// The transport continues to connect after the request has ended.
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return g.DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout:    timeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: timeout, PingTimeout: timeout}, // otherwise a dead connection is reused
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxIdleConns:           allIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// control is called with the address of each connection before it is made.
func (g *Guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errs.Wrap(errs.AddressRefused, err, "%s is not the address of a TCP connection", input.Quote(address))
	}
	if name, ok := ctx.Value(nameKey{}).(string); ok {
		return g.check(input.Quote(name)+" resolves to", to.Addr())
	}
	return g.Check(to.Addr())
}

// nameKey is the key of the name that is dialled.
type nameKey struct{}

func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return host != "" && err != nil
}
