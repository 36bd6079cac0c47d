package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestRecover(t *testing.T) {
	t.Parallel()
	routes := func(_ *responder, r chi.Router) {
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("secret of the server") })
		r.Get("/nil", func(http.ResponseWriter, *http.Request) { panic(nil) }) //nolint:govet // nilness: it is the panic to be tried
		r.Get("/error", func(http.ResponseWriter, *http.Request) { panic(errors.New("boom")) })
		r.Get("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		r.Get("/half", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Repeat("half", 1000)))
			_ = http.NewResponseController(w).Flush()
			panic("too late")
		})
		r.Get("/headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Type", "text/html")
			panic("headers set")
		})
	}

	t.Run("a panic is a 500 problem and its stack is logged", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/panic", "/nil", "/error", "/headers"} {
			for _, accept := range []string{"", "gzip"} {
				d := newTestServer(t, testServerOptions{routes: routes})
				a := d.do("GET", path, "", "Accept-Encoding", accept)
				a.problem(t, 500, errs.Internal)
				require.NotContains(t, a.body, "secret")
				lines := d.log.lines(t, "panic in a handler")
				require.Len(t, lines, 1)
				require.Contains(t, lines[0]["stack"], "middleware_test.go")
				require.Equal(t, a.Header.Get("X-Request-Id"), lines[0]["request_id"])
				require.InDelta(t, 500, d.log.lines(t, "request")[0]["status"], 0)
			}
		}
	})
	t.Run("the server continues", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{routes: routes})
		d.do("GET", "/panic", "")
		require.Equal(t, 200, d.do("GET", "/things/a", "").StatusCode)
	})
	for name, path := range map[string]string{"an aborted answer": "/abort", "a panic after half an answer": "/half"} {
		t.Run(name+" cuts the connection", func(t *testing.T) {
			t.Parallel()
			d := newTestServer(t, testServerOptions{routes: routes})
			req, err := http.NewRequestWithContext(t.Context(), "GET", d.url+path, nil)
			require.NoError(t, err)
			res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err == nil {
				defer res.Body.Close()
				_, err = res.Body.Read(make([]byte, 10_000))
				for err == nil {
					_, err = res.Body.Read(make([]byte, 10_000))
				}
			}
			require.ErrorContains(t, err, "EOF")
			require.NotEqual(t, "EOF", err.Error() == "EOF" && res != nil, "an ordinary end would hide that half is missing")
			require.Len(t, d.log.lines(t, "request"), 1, "the access log has it")
		})
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	wait := func(p *responder, r chi.Router) {
		h := p.handle(func(w http.ResponseWriter, r *http.Request) error {
			select {
			case <-r.Context().Done():
				return r.Context().Err()
			case <-time.After(time.Hour):
				w.WriteHeader(http.StatusNoContent)
				return nil
			}
		})
		r.Get("/wait", h)
		r.Get("/stream/x", h)
	}
	serve := func(t *testing.T, path, upgrade string, limit time.Duration) (*httptest.ResponseRecorder, time.Duration) {
		t.Helper()
		log, _ := newLog(t)
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
		r.Header.Set("Upgrade", upgrade)
		start := time.Now()
		newTestHandler(log, testServerOptions{timeout: limit, routes: wait}).ServeHTTP(w, r)
		return w, time.Since(start)
	}
	for name, c := range map[string]struct {
		path, upgrade string
		limit, took   time.Duration
		status        int
	}{
		"a request that takes too long is a timeout": {"/wait", "", defaultTimeout, defaultTimeout, 503},
		"a stream has no end":                        {"/stream/x", "", defaultTimeout, time.Hour, 204},
		"neither has a change of protocol":           {"/wait", "websocket", defaultTimeout, time.Hour, 204},
		"a limit of 0 is none":                       {"/wait", "", 0, time.Hour, 204},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, took := serve(t, c.path, c.upgrade, c.limit)
				require.Equal(t, c.status, w.Code)
				require.Equal(t, c.took, took)
				if c.status == 503 {
					require.Contains(t, w.Body.String(), `"code":"timeout"`)
					require.Equal(t, "1", w.Header().Get("Retry-After"))
				}
			})
		})
	}
}
