package httpkit

import (
	"net/http"
	"net/netip"
	"strings"

	"comet/internal/errs"
	"comet/internal/input"
)

// The cookie with the secret of a login. Browsers send the first one over TLS only, and no other host can
// set it. The second one is for this machine, without TLS.
const (
	secureCookie   = "__Host-comet"
	loopbackCookie = "comet_session"
)

// Origin returns the scheme and the host of the server as the client of a request sees them.
func Origin(r *http.Request) string { return scheme(r) + "://" + r.Host }

// scheme returns the scheme that the client of a request used, also in front of a proxy.
func scheme(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https"
	}
	return "http"
}

// cookieName returns the name of the cookie of a request, "" if its connection is not private: neither over
// TLS nor on this machine.
func cookieName(r *http.Request) string {
	if scheme(r) == "https" {
		return secureCookie
	}
	host := r.Host
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		host = host[:at]
	}
	host = strings.Trim(host, "[]")
	if addr, err := netip.ParseAddr(host); strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback() {
		return loopbackCookie
	}
	return ""
}

// loginSecret returns the secret of a login in the cookie of a request, "" for none.
func loginSecret(r *http.Request) string {
	if len(r.Header["Cookie"]) == 0 {
		return ""
	}
	c, err := r.Cookie(cookieName(r)) // no cookie has the name ""
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets the cookie of a request with a secret; "" deletes it. It ends with the browser: the server
// knows when the login ends.
func setCookie(w http.ResponseWriter, r *http.Request, secret string) {
	c := http.Cookie{Name: cookieName(r), Value: secret, Path: "/", Secure: scheme(r) == "https", HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if secret == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, &c)
}

// CheckSameOrigin returns errs.InsecureRequest for a request that a page of another origin sent with the
// browser's help. Requests of other clients, which say nothing about their origin, pass.
func CheckSameOrigin(r *http.Request) error {
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return errs.New(errs.InsecureRequest, "a page of another site sent this request (Sec-Fetch-Site: %s); log in and send it from a page of this server", input.Clip(site))
		}
	}
	for _, origin := range r.Header["Origin"] {
		if own := Origin(r); !strings.EqualFold(origin, own) {
			return errs.New(errs.InsecureRequest, "a page of the origin %s sent this request, and this server is %s; a proxy must pass on Host and X-Forwarded-Proto", input.Quote(origin), own)
		}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return errs.Wrap(errs.InsecureRequest, err, "a page of another site sent this request")
	}
	return nil
}
