package httpkit

import (
	"context"
	"crypto/sha256"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// The cookie with the secret of a login. Browsers send the first one over TLS only, and no other host can
// set it. The second one is for this machine, without TLS.
const (
	secureCookie   = "__Host-comet"
	loopbackCookie = "comet_session"
)

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

// CheckSameOrigin returns errs.CrossOrigin for a request that a page of another origin sent with the
// browser's help. Requests of other clients, which say nothing about their origin, pass.
func CheckSameOrigin(r *http.Request) error {
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return errs.New(errs.CrossOrigin, "a page of another site sent this request (Sec-Fetch-Site: %s); log in and send it from a page of this server", input.Clip(site))
		}
	}
	for _, origin := range r.Header["Origin"] {
		if own := scheme(r) + "://" + r.Host; !strings.EqualFold(origin, own) {
			return errs.New(errs.CrossOrigin, "a page of the origin %s sent this request, and this server is %s; a proxy must pass on Host and X-Forwarded-Proto", input.Quote(origin), own)
		}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return errs.Wrap(errs.CrossOrigin, err, "a page of another site sent this request")
	}
	return nil
}

// authenticateLogin returns the identity of a request with the cookie of a login.
func (a *Authenticator) authenticateLogin(w http.ResponseWriter, r *http.Request, secret string) (Identity, error) {
	if err := CheckSameOrigin(r); err != nil {
		return Identity{}, err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.ContentLength != 0 {
		if sent, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || sent != "application/json" {
			return Identity{}, errs.New(errs.CrossOrigin, "the body of a request with the cookie of a login must be application/json")
		}
	}
	p, err := a.verifyLogin(r, secret)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Principal: p}, a.Admit(w, r, p)
}

// verifyLogin is VerifyToken for the secret of a login. A browser may send the cookie of a login that has
// ended for a long time, so its address is throttled by different cookies only: each counts once.
func (a *Authenticator) verifyLogin(r *http.Request, secret string) (models.Principal, error) {
	return a.verify(sha256.Sum256([]byte("login "+secret)), ClientPrefix(r), true, func() (models.Principal, error) {
		return a.tokens.VerifyLogin(r.Context(), secret)
	})
}

// LogIn starts a login of the browser that sent a request, with the secret of a token or with a code, and
// sets its cookie. It replaces the login of the cookie that the request has. Wrong tokens and codes are
// throttled by address. The errors are those of Authenticate and of auth.Login, errs.CrossOrigin, and
// errs.InsecureConnection for a connection on which a cookie is not safe.
func (a *Authenticator) LogIn(w http.ResponseWriter, r *http.Request, token, code string) error {
	switch {
	case cookieName(r) == "":
		return errs.New(errs.InsecureConnection, "browsers can log in over TLS only, because anyone on the network could read the cookie; set tls.cert_file and tls.key_file, use a proxy with TLS that sets X-Forwarded-Proto: https, or open the dashboard at http://localhost through a tunnel (ssh -L)")
	case token != "":
		p, err := a.VerifyToken(r.Context(), token, ClientPrefix(r))
		if err == nil {
			err = a.Admit(w, r, p)
		}
		if err != nil {
			return err
		}
	}
	d, secret := auth.LoginDraft{Token: token, Code: code, UserAgent: r.UserAgent(), Former: loginSecret(r)}, ""
	p, err := a.verify(sha256.Sum256([]byte(token+code)), ClientPrefix(r), false, func() (p models.Principal, err error) {
		secret, p, err = a.tokens.Login(r.Context(), d)
		return p, err
	})
	if err == nil {
		logToken(r.Context(), p.TokenID)
		setCookie(w, r, secret)
	}
	return err
}

// LogOut ends the login of a request's cookie, if it has one, and deletes the cookie.
func (a *Authenticator) LogOut(w http.ResponseWriter, r *http.Request) error {
	secret := loginSecret(r)
	if secret == "" {
		return nil
	}
	_, err := a.verifyLogin(r, secret)
	if err == nil {
		err = a.tokens.Logout(context.WithoutCancel(r.Context()), secret)
	}
	if err == nil || IsRejected(err) {
		setCookie(w, r, "")
		return nil
	}
	return err
}

// Ended reports whether the credentials of a request that Authenticate accepted are accepted no longer.
// Streams call it to end with their token or login. It is false if they cannot be verified at the moment.
func (a *Authenticator) Ended(r *http.Request) bool {
	if token, err := BearerToken(r.Header["Authorization"]); err == nil {
		return a.Revoked(r.Context(), token)
	}
	_, err := a.tokens.VerifyLogin(r.Context(), loginSecret(r))
	return IsRejected(err)
}
