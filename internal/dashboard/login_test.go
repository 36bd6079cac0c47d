package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/dashboard"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/models"
	"comet/store/storetest"
)

// server serves logins, and keeps the last error.
type server struct {
	chi.Router
	err *errs.Error
}

func (s *server) do(t *testing.T, method, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost/ui/session", strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.err = nil
	s.ServeHTTP(w, r)
	return w
}

func TestLoginRequests(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		tokens := auth.New(db.Store, nil)
		issued, err := tokens.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("t"), Scopes: []models.Scope{models.ScopeAgentsRead}}, nil)
		require.NoError(t, err)
		s := &server{Router: chi.NewRouter()}
		dashboard.Logins{
			Authenticator: httpkit.NewAuthenticator(tokens, nil),
			WriteError: func(w http.ResponseWriter, _ *http.Request, err error) {
				s.err = errs.From(err)
				w.WriteHeader(http.StatusTeapot)
			},
		}.Mount(s)
		json := []string{"Content-Type", "application/json"}

		for body, want := range map[string]struct {
			code    errs.Code
			pointer []string
		}{
			`{"token":"wrong"}`:            {errs.Unauthenticated, nil},
			`{"code":"wrong"}`:             {errs.Unauthenticated, nil},
			`{}`:                           {errs.InvalidRequest, []string{"/token", "/code"}},
			`{"token":"a","code":"b"}`:     {errs.InvalidRequest, []string{"/token", "/code"}},
			`{"token":null}`:               {errs.InvalidRequest, []string{"/token", "/code"}},
			`{"token":""}`:                 {errs.InvalidRequest, []string{"/token"}},
			`{"code":""}`:                  {errs.InvalidRequest, []string{"/code"}},
			`{"code":1}`:                   {errs.InvalidRequest, []string{"/code"}},
			`{"token":"a","password":"b"}`: {errs.InvalidRequest, []string{"/password"}},
			`{"token":"a","token":"b"}`:    {errs.MalformedJSON, nil},
			`token=a`:                      {errs.MalformedJSON, nil},
			`{"token":"` + strings.Repeat("a", 4096) + `"}`: {errs.BodyTooLarge, nil},
			`{"code":"` + strings.Repeat("a", 65) + `"}`:    {errs.InvalidRequest, []string{"/code"}},
		} {
			w := s.do(t, http.MethodPost, body, json...)
			require.Equal(t, http.StatusTeapot, w.Code, body)
			require.Equal(t, want.code, s.err.Code, "%s: %v", body, s.err)
			var pointers []string
			for _, f := range s.err.Fields {
				pointers = append(pointers, f.Pointer)
			}
			if want.pointer != nil {
				require.ElementsMatch(t, want.pointer, pointers, body)
			}
			require.Empty(t, w.Header().Values("Set-Cookie"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		}

		good := `{"token":"` + issued.Secret + `"}`
		s.do(t, http.MethodPost, good, "Content-Type", "text/plain")
		require.Equal(t, errs.UnsupportedMediaType, s.err.Code)
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://evil.example"}, {"Origin", "null"}} {
			for _, method := range []string{http.MethodPost, http.MethodDelete} {
				s.do(t, method, good, append(header, json...)...)
				require.Equal(t, errs.InsecureRequest, s.err.Code, "%s from a page of another site", method)
			}
		}

		w := s.do(t, http.MethodPost, good, json...)
		require.Equal(t, http.StatusNoContent, w.Code)
		cookie := w.Result().Cookies()[0]
		_, err = tokens.VerifyLogin(t.Context(), cookie.Value)
		require.NoError(t, err)
		w = s.do(t, http.MethodDelete, "", "Cookie", cookie.Name+"="+cookie.Value)
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Negative(t, w.Result().Cookies()[0].MaxAge)
		_, err = tokens.VerifyLogin(t.Context(), cookie.Value)
		require.True(t, errs.Is(err, errs.Unauthenticated))
		for _, header := range [][]string{nil, {"Cookie", cookie.Name + "=" + cookie.Value}} {
			require.Equal(t, http.StatusNoContent, s.do(t, http.MethodDelete, "", header...).Code, "logging out twice changes nothing")
		}
	})
}
