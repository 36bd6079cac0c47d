package httpkit

import (
	"context"
	"crypto/sha256"
	"net/http"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// LogIn starts a login of the browser that sent a request, with the secret of a token or with a code, and
// sets its cookie. It replaces the login of the cookie that the request has. Wrong tokens and codes are
// throttled by address. The errors are those of Authenticate and of auth.Login, and
// errs.InsecureRequest for a connection on which a cookie is not safe.
func (a *Authenticator) LogIn(w http.ResponseWriter, r *http.Request, token, code string) error {
	switch {
	case cookieName(r) == "":
		return errs.New(errs.InsecureRequest, "browsers can log in over TLS only, because anyone on the network could read the cookie; set tls.cert_file and tls.key_file, use a proxy with TLS that sets X-Forwarded-Proto: https, or open the dashboard at http://localhost through a tunnel (ssh -L)")
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
