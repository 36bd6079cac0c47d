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
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/requestid"
)

func TestRequestID(t *testing.T) {
	t.Parallel()
	d := newTestServer(t, testServerOptions{routes: func(p *responder, r chi.Router) {
		r.Get("/id", func(w http.ResponseWriter, r *http.Request) {
			p.log.InfoContext(r.Context(), "on the way")
			_, _ = w.Write([]byte(requestid.From(r.Context())))
		})
	}})

	t.Run("a plain one of the client is used", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"a", "Az09._-", strings.Repeat("x", 64), "4bf92f3577b34da6a3ce929d0e0e4736"} {
			a := d.do("GET", "/id", "", "X-Request-Id", id)
			require.Equal(t, id, a.Header.Get("X-Request-Id"))
			require.Equal(t, id, a.body)
			require.Contains(t, d.log.text(), `"request_id":"`+id+`"`, "the log and the answer are found together")
		}
	})
	t.Run("another one is replaced by a UUIDv7", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"", strings.Repeat("x", 65), "a b", "a\tb", `a"b`, "é", "a/b", "a=b"} {
			a := d.do("GET", "/id", "", "X-Request-Id", id)
			made, err := uuid.Parse(a.Header.Get("X-Request-Id"))
			require.NoError(t, err, id)
			require.Equal(t, uuid.Version(7), made.Version())
			require.Equal(t, a.Header.Get("X-Request-Id"), a.body)
		}
	})
}

func TestRecover(t *testing.T) {
	t.Parallel()
	routes := func(_ *responder, r chi.Router) {
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("secret of the house") })
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

	t.Run("a panic is a problem, and its stack is in the log", func(t *testing.T) {
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
	t.Run("the server goes on", func(t *testing.T) {
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

func TestAccessLog(t *testing.T) {
	t.Parallel()

	t.Run("a line has everything but secrets", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{})
		a := d.do("GET", "/things/a?token=s3cret&q=private", "", "Authorization", "Bearer t-1")
		line := d.log.lines(t, "request")[0]
		for key, want := range map[string]any{
			"level": "INFO", "method": "GET", "route": "/things/{id}", "path": "/things/a", "status": 200.0,
			"bytes": float64(len(a.body)), "request_id": a.Header.Get("X-Request-Id"), "token_id": "t-1",
		} {
			require.Equal(t, want, line[key], key)
		}
		require.Contains(t, line["remote"], "127.0.0.1:")
		require.Contains(t, line, "duration_ms")
		require.NotContains(t, d.log.text(), "s3cret")
		require.NotContains(t, d.log.text(), "private")
		require.NotContains(t, d.log.text(), "Bearer")
	})
	t.Run("an address without a route and a fault", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, failingRoute(errors.New("boom")))
		d.do("GET", "/nowhere", "")
		d.do("GET", "/fail", "")
		lines := d.log.lines(t, "request")
		require.InDelta(t, 404, lines[0]["status"], 0)
		require.Equal(t, "INFO", lines[0]["level"])
		require.NotContains(t, lines[0], "token_id")
		require.InDelta(t, 500, lines[1]["status"], 0)
		require.Equal(t, "WARN", lines[1]["level"])
	})
	t.Run("of the successes every n-th, of the rest all", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, testServerOptions{logEvery: 5})
		for range 20 {
			d.do("GET", "/things/a", "")
		}
		for range 3 {
			d.do("GET", "/nowhere", "")
		}
		require.Len(t, d.log.lines(t, "request"), 20/5+3)
	})
	t.Run("outside of it a token is noted nowhere", func(t *testing.T) {
		t.Parallel()
		recordTokenID(t.Context(), "t-1")
	})
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	type result struct {
		status                        int
		limit, remaining, reset, wait string
	}
	// ask sends a request through h and returns what the headers say.
	ask := func(t *testing.T, h http.Handler, token, remote string) result {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/things/a", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.RemoteAddr = remote
		h.ServeHTTP(w, r)
		head := w.Header()
		if w.Code == 429 {
			require.Contains(t, w.Body.String(), `"code":"rate-limited"`)
			require.Contains(t, w.Body.String(), `"retry_after":`+head.Get("Retry-After"))
		}
		return result{w.Code, head.Get("RateLimit-Limit"), head.Get("RateLimit-Remaining"), head.Get("RateLimit-Reset"), head.Get("Retry-After")}
	}
	open := func(t *testing.T, limit int) http.Handler {
		t.Helper()
		log, _ := newLog(t)
		return newTestHandler(log, testServerOptions{rateLimit: limit, window: time.Minute})
	}

	t.Run("counts down, refuses, and lets in again when it said", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := open(t, 3)
			time.Sleep(20 * time.Second) //nolint:forbidigo // it is the bubble's clock that moves
			require.Equal(t, result{200, "3", "2", "40", ""}, ask(t, h, "a", "192.0.2.1:1"))
			require.Equal(t, result{200, "3", "1", "40", ""}, ask(t, h, "a", "192.0.2.2:1"))
			require.Equal(t, result{200, "3", "0", "40", ""}, ask(t, h, "a", "192.0.2.1:2"))
			require.Equal(t, result{429, "3", "0", "40", "51"}, ask(t, h, "a", "192.0.2.1:1"))
			require.Equal(t, 200, ask(t, h, "b", "192.0.2.1:1").status, "another token has its own")
			time.Sleep(51 * time.Second) //nolint:forbidigo // it is the bubble's clock that moves
			require.Equal(t, 200, ask(t, h, "a", "192.0.2.1:1").status)
		})
	})
	t.Run("Retry-After is never too early", func(t *testing.T) {
		t.Parallel()
		for _, limit := range []int{1, 2, 7, 100} {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, limit)
				for i := range 5 * limit {
					r := ask(t, h, "a", "192.0.2.1:1")
					if r.status == 429 {
						wait, err := time.ParseDuration(r.wait + "s")
						require.NoError(t, err)
						time.Sleep(wait) //nolint:forbidigo // it is the bubble's clock that moves
						require.Equal(t, 200, ask(t, h, "a", "192.0.2.1:1").status, "limit %d, request %d", limit, i)
					}
					time.Sleep(time.Second) //nolint:forbidigo // it is the bubble's clock that moves
				}
			})
		}
	})
	t.Run("is off by default", func(t *testing.T) {
		t.Parallel()
		h := open(t, 0)
		for range 5 {
			require.Equal(t, result{status: 200}, ask(t, h, "a", "192.0.2.1:1"))
		}
	})
}
