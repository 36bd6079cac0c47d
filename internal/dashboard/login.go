package dashboard

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
)

// maxLogin is the largest body of a login in bytes.
const maxLogin = 4 << 10

// Logins serves the logins of browsers.
type Logins struct {
	// Authenticator verifies tokens and codes.
	Authenticator *httpkit.Authenticator
	// WriteError writes an error as a problem document.
	WriteError func(http.ResponseWriter, *http.Request, error)
}

// Mount adds the routes of the page and of its login.
func (l Logins) Mount(r chi.Router) {
	mountAssets(r)
	r.Post("/ui/session", l.handle(l.logIn))
	r.Delete("/ui/session", l.handle(l.logOut))
}

// handle adapts a handler for requests from pages of the same origin; it responds 204.
func (l Logins) handle(do func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		err := httpkit.CheckSameOrigin(r)
		if err == nil {
			err = do(w, r)
		}
		if err != nil {
			l.WriteError(w, r, httpkit.AsRateLimited(err))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// loginRequest is the body of a login.
type loginRequest struct {
	Token *string `json:"token" validate:"omitnil,min=1"`       // The secret of a token.
	Code  *string `json:"code" validate:"omitnil,min=1,max=64"` // A code of POST /api/v1/logins/codes.
}

func (l Logins) logIn(w http.ResponseWriter, r *http.Request) error {
	body, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: maxLogin, MediaTypes: []string{"application/json"}})
	if err != nil {
		return err
	}
	var d loginRequest
	if err := input.DecodeJSON(body, &d); err != nil {
		return err
	}
	v := input.Validate(d)
	if (d.Token == nil) == (d.Code == nil) {
		for _, pointer := range []string{"/token", "/code"} {
			v.Add(errs.InvalidRequest, pointer, "one_of", "give either token or code")
		}
	}
	if err := v.Err(); err != nil {
		return err
	}
	var token, code string
	if d.Token != nil {
		token = *d.Token
	} else {
		code = *d.Code
	}
	return l.Authenticator.LogIn(w, r, token, code)
}

func (l Logins) logOut(w http.ResponseWriter, r *http.Request) error {
	return l.Authenticator.LogOut(w, r)
}
