package httpkit_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/store/storetest"
)

// loginFixture is an authenticator that accepts logins.
type loginFixture struct {
	*authFixture
	db *storetest.DB
}

func withLogins(t *testing.T, fn func(t *testing.T, f *loginFixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := &loginFixture{&authFixture{tokens: auth.New(db.Store, &auth.Options{Clock: db.Now}), now: db.Now()}, db}
		f.Authenticator = httpkit.NewAuthenticator(f.tokens, &httpkit.AuthenticatorOptions{
			Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3, RateLimit: 3}), Logins: true,
			Clock: func() time.Time { return f.now }, OnFailure: func() { f.failures.Add(1) },
		})
		fn(t, f)
	})
}

// request returns a request to a URL with pairs of header names and values.
func request(t *testing.T, method, url, body string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.1:1000"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// logIn returns the cookie that a login over a URL sets.
func (f *loginFixture) logIn(t *testing.T, token, url string, header ...string) *http.Cookie {
	t.Helper()
	w := httptest.NewRecorder()
	require.NoError(t, f.LogIn(w, request(t, http.MethodPost, url, "{}", header...), token, ""))
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	return cookies[0]
}

func (f *loginFixture) authenticate(r *http.Request) (httpkit.Identity, error) {
	return f.Authenticate(httptest.NewRecorder(), r)
}

func TestLoginCookies(t *testing.T) {
	t.Parallel()
	forwarded := []string{"X-Forwarded-Proto", "https"}
	for _, of := range []struct {
		url    string
		header []string
		cookie string // its name and flags, "" for a refused login
	}{
		{"https://comet.example.org/ui/session", nil, "__Host-comet=%s; Path=/; HttpOnly; Secure; SameSite=Strict"},
		{"http://comet.example.org/ui/session", forwarded, "__Host-comet=%s; Path=/; HttpOnly; Secure; SameSite=Strict"},
		{"http://localhost:8080/ui/session", forwarded, "__Host-comet=%s; Path=/; HttpOnly; Secure; SameSite=Strict"},
		{"http://localhost:8080/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://LocalHost/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://127.0.0.1:8080/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://127.8.9.10/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://[::1]:8080/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://[::1]/ui/session", nil, "comet_session=%s; Path=/; HttpOnly; SameSite=Strict"},
		{"http://comet.example.org/ui/session", nil, ""},
		{"http://comet.example.org/ui/session", []string{"X-Forwarded-Proto", "http"}, ""},
		{"http://192.168.0.1:8080/ui/session", nil, ""},
		{"http://localhost.example.org/ui/session", nil, ""},
		{"http://127.0.0.1.example.org/ui/session", nil, ""},
		{"http://[::2]:8080/ui/session", nil, ""},
	} {
		t.Run(of.url+strings.Join(of.header, " "), func(t *testing.T) {
			t.Parallel()
			withLogins(t, func(t *testing.T, f *loginFixture) {
				token, w := f.issue(t).Secret, httptest.NewRecorder()
				err := f.LogIn(w, request(t, http.MethodPost, of.url, "{}", of.header...), token, "")
				if of.cookie == "" {
					require.True(t, errs.Is(err, errs.InsecureRequest), err)
					require.ErrorContains(t, err, "ssh -L")
					require.Empty(t, w.Header())
					return
				}
				require.NoError(t, err)
				cookie := w.Result().Cookies()[0]
				require.Equal(t, fmt.Sprintf(of.cookie, cookie.Value), w.Header().Get("Set-Cookie"))

				with := append([]string{"Cookie", cookie.Name + "=" + cookie.Value}, of.header...)
				from, err := f.authenticate(request(t, http.MethodGet, of.url, "", with...))
				require.NoError(t, err)
				require.NotEmpty(t, from.LoginID)
				require.Empty(t, from.Token)
				for _, other := range []string{"http://comet.example.org/", map[bool]string{true: "http://localhost/", false: "https://localhost/"}[cookie.Secure]} {
					_, err = f.authenticate(request(t, http.MethodGet, other, "", with[:2]...))
					require.True(t, errs.Is(err, errs.Unauthenticated), "the cookie is not read at %s", other)
				}

				w = httptest.NewRecorder()
				require.NoError(t, f.LogOut(w, request(t, http.MethodDelete, of.url, "", with...)))
				require.Equal(t, fmt.Sprintf(strings.Replace(of.cookie, "Path=/;", "Path=/; Max-Age=0;", 1), ""), w.Header().Get("Set-Cookie"))
				require.True(t, f.Ended(request(t, http.MethodGet, of.url, "", with...)))
			})
		})
	}
}

// TestCrossOrigin: which requests with the cookie of a login are accepted.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	json := []string{"Content-Type", "application/json"}
	for name, of := range map[string]struct {
		method, body string
		header       []string
		accepted     bool
	}{
		"a page of this server":                  {"GET", "", []string{"Sec-Fetch-Site", "same-origin"}, true},
		"an address that the user typed":         {"GET", "", []string{"Sec-Fetch-Site", "none"}, true},
		"a program":                              {"GET", "", nil, true},
		"a page of a subdomain":                  {"GET", "", []string{"Sec-Fetch-Site", "same-site"}, false},
		"a page of another site":                 {"GET", "", []string{"Sec-Fetch-Site", "cross-site"}, false},
		"HEAD of a page of another site":         {"HEAD", "", []string{"Sec-Fetch-Site", "cross-site"}, false},
		"two headers":                            {"GET", "", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Site", "cross-site"}, false},
		"the origin of this server":              {"GET", "", []string{"Origin", "https://comet.example.org:8443"}, true},
		"another port":                           {"GET", "", []string{"Origin", "https://comet.example.org"}, false},
		"another scheme":                         {"GET", "", []string{"Origin", "http://comet.example.org:8443"}, false},
		"another host":                           {"GET", "", []string{"Origin", "https://comet.example.com:8443"}, false},
		"no origin":                              {"GET", "", []string{"Origin", "null"}, false},
		"an origin that contradicts":             {"GET", "", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "same-origin"}, false},
		"a change":                               {"POST", "{}", append(json, "Sec-Fetch-Site", "same-origin", "Origin", "https://comet.example.org:8443"), true},
		"a change with parameters of JSON":       {"PATCH", "{}", []string{"Content-Type", "application/json; charset=utf-8"}, true},
		"a change of a program":                  {"POST", "{}", json, true},
		"a change without a body":                {"DELETE", "", []string{"Sec-Fetch-Site", "same-origin"}, true},
		"a change from another site":             {"POST", "{}", append(json, "Sec-Fetch-Site", "cross-site"), false},
		"a change from another origin":           {"POST", "{}", append(json, "Origin", "https://evil.example"), false},
		"DELETE from another site":               {"DELETE", "", []string{"Sec-Fetch-Site", "cross-site"}, false},
		"the change of a form":                   {"POST", "a=b", []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}, false},
		"plain text":                             {"POST", "{}", []string{"Content-Type", "text/plain"}, false},
		"a change without a type":                {"POST", "{}", nil, false},
		"an Authorization header has precedence": {"POST", "{}", []string{"Authorization", "Bearer wrong", "Content-Type", "application/json"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withLogins(t, func(t *testing.T, f *loginFixture) {
				const url = "https://comet.example.org:8443/api/v1/agents"
				cookie := f.logIn(t, f.issue(t).Secret, url)
				_, err := f.authenticate(request(t, of.method, url, of.body, append(of.header, "Cookie", cookie.Name+"="+cookie.Value)...))
				switch {
				case of.accepted:
					require.NoError(t, err)
				case of.header != nil && of.header[0] == "Authorization":
					require.True(t, errs.Is(err, errs.Unauthenticated), err)
				default:
					require.True(t, errs.Is(err, errs.InsecureRequest), err)
				}
			})
		})
	}
}

// TestLoginLimits: cookies count towards the rate limit of their token, and each wrong one once as a failure.
func TestLoginLimits(t *testing.T) {
	t.Parallel()
	const url = "https://comet.example.org/"
	with := func(t *testing.T, secret string) *http.Request {
		t.Helper()
		return request(t, http.MethodGet, url, "", "Cookie", "__Host-comet="+secret)
	}
	withLogins(t, func(t *testing.T, f *loginFixture) {
		issued := f.issue(t)
		secret := f.logIn(t, issued.Secret, url).Value // 1 of 3 requests
		require.Error(t, f.try(t, "192.0.2.2:1", secret), "a login is not a token")
		require.EqualValues(t, 1, f.failures.Load())
		_, err := f.authenticate(with(t, secret))
		require.NoError(t, err)
		require.NoError(t, f.try(t, "192.0.2.2:1", issued.Secret))
		_, err = f.authenticate(with(t, secret))
		require.True(t, errs.Is(err, errs.RateLimited), err)

		require.NoError(t, f.tokens.Logout(t.Context(), secret))
		for range 20 {
			_, err = f.authenticate(with(t, secret))
			require.True(t, errs.Is(err, errs.Unauthenticated) && !httpkit.IsThrottled(err), err)
		}
		require.EqualValues(t, 2, f.failures.Load(), "an ended login counts once")
		for i := range 2 {
			_, err = f.authenticate(with(t, fmt.Sprint("guess", i)))
			require.True(t, errs.Is(err, errs.Unauthenticated) && !httpkit.IsThrottled(err), err)
		}
		_, err = f.authenticate(with(t, "guess"))
		require.True(t, httpkit.IsThrottled(err), err)
		for _, code := range []string{"", "guess"} {
			err = f.LogIn(httptest.NewRecorder(), request(t, http.MethodPost, url, "{}"), map[bool]string{true: "guess"}[code == ""], code)
			require.True(t, httpkit.IsThrottled(err), err)
		}
		_, err = httpkit.NewAuthenticator(f.tokens, nil).Authenticate(httptest.NewRecorder(), with(t, f.logIn(t, f.issue(t).Secret, url).Value))
		require.True(t, errs.Is(err, errs.Unauthenticated), "other APIs do not accept cookies")
	})
}

// TestWrongCookiesDisplaceNoToken checks that invalid cookies do not evict accepted tokens, which a throttled address may
// still use.
func TestWrongCookiesDisplaceNoToken(t *testing.T) {
	t.Parallel()
	f := &loginFixture{authFixture: &authFixture{now: time.Now()}, db: storetest.Open(t, "sqlite")}
	f.tokens = auth.New(f.db.Store, &auth.Options{Clock: f.db.Now})
	f.Authenticator = httpkit.NewAuthenticator(f.tokens, &httpkit.AuthenticatorOptions{
		Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3}), Logins: true, Clock: func() time.Time { return f.now },
	})
	send := func(address, secret string) error {
		r := request(t, http.MethodGet, "https://comet.example.org/", "", "Cookie", "__Host-comet="+secret)
		r.RemoteAddr = address + ":1000"
		_, err := f.authenticate(r)
		return err
	}
	secret := f.logIn(t, f.issue(t).Secret, "https://comet.example.org/").Value
	require.NoError(t, send("192.0.2.1", secret))
	for i := range 10_100 {
		require.Error(t, send(fmt.Sprintf("10.0.%d.%d", i/250, i%250), fmt.Sprint("guess", i)))
	}
	for i := range 30 { // throttled, and without further attempts
		require.Error(t, send("192.0.2.1", fmt.Sprint("other guess", i)))
	}
	require.True(t, httpkit.IsThrottled(send("192.0.2.1", "one more guess")))
	require.NoError(t, send("192.0.2.1", secret))
}

// TestRequestsOverTLS: a connection with TLS needs no header of a proxy.
func TestRequestsOverTLS(t *testing.T) {
	t.Parallel()
	withLogins(t, func(t *testing.T, f *loginFixture) {
		r, w := request(t, http.MethodPost, "/ui/session", "{}"), httptest.NewRecorder()
		r.Host, r.TLS = "comet.example.org", &tls.ConnectionState{}
		require.NoError(t, f.LogIn(w, r, f.issue(t).Secret, ""))
		require.True(t, strings.HasPrefix(w.Header().Get("Set-Cookie"), "__Host-comet="))
	})
}
