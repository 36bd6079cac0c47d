package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// failingRoute returns an API with one route that fails with err.
func failingRoute(err error) testServerOptions {
	return testServerOptions{routes: func(p *responder, r chi.Router) {
		r.Get("/fail", p.handle(func(http.ResponseWriter, *http.Request) error { return err }))
	}}
}

func TestProblemTypes(t *testing.T) {
	t.Parallel()
	want := map[errs.Code]int{
		errs.Internal: 500, errs.InvalidRequest: 400, errs.MalformedJSON: 400, errs.InvalidParameter: 400, errs.InvalidHeader: 400,
		errs.InvalidFrequency: 400, errs.ParentNotFound: 400, errs.InvalidParentLevel: 400, errs.ImmutableField: 400,
		errs.Unauthenticated: 401, errs.MissingScope: 403, errs.AgentInactive: 403, errs.NotFound: 404, errs.MethodNotAllowed: 405,
		errs.NotAcceptable: 406, errs.AgentExists: 409, errs.IdempotencyKeyReused: 409, errs.PreconditionFailed: 412,
		errs.BodyTooLarge: 413, errs.UnsupportedMediaType: 415, errs.BudgetExceedsMaximum: 422, errs.RateLimited: 429,
		errs.Timeout: 503, errs.Unavailable: 503, errs.Busy: 503,
	}
	d := newTestServer(t, testServerOptions{})
	for _, code := range errs.Internal.All() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			status, named := want[code]
			require.Equal(t, code == errs.Internal, statusOf(code) == http.StatusInternalServerError, "%s has no status", code)
			if named {
				require.Equal(t, status, statusOf(code))
			}
			page := d.do("GET", "/problems/"+string(code), "")
			require.Equal(t, http.StatusOK, page.StatusCode)
			var doc ProblemType
			require.NoError(t, json.Unmarshal([]byte(page.body), &doc))
			require.NotEmpty(t, doc.Meaning)
			require.NotEmpty(t, doc.Action)
			require.Equal(t, ProblemType{
				Type: "/problems/" + string(code), Code: code, Title: code.Title(), Status: statusOf(code), Meaning: doc.Meaning, Action: doc.Action,
			}, doc)
		})
	}
	d.do("GET", "/problems/no-such-code", "").problem(t, 404, errs.NotFound)
}

func TestProblemDocument(t *testing.T) {
	t.Parallel()

	t.Run("has all members and headers", func(t *testing.T) {
		t.Parallel()
		err := errs.New(errs.BudgetExceedsMaximum, "token_budget is 60000, L3 allows 50000").With("maximum", 50000).With("status", "mine")
		err.Fields = []errs.Field{{Pointer: "/token_budget", Rule: "max", Detail: "token_budget is 60000, L3 allows 50000"}}
		a := newTestServer(t, failingRoute(fmt.Errorf("create: %w", err))).do("GET", "/fail?q=secret", "", "X-Request-Id", "req-1")
		require.JSONEq(t, `{"type":"/problems/token-budget-exceeds-maximum","title":"Token budget exceeds maximum","status":422,
			"detail":"token_budget is 60000, L3 allows 50000","instance":"/fail","code":"token-budget-exceeds-maximum","request_id":"req-1",
			"errors":[{"pointer":"/token_budget","rule":"max","detail":"token_budget is 60000, L3 allows 50000"}],"maximum":50000}`, a.body)
		a.problem(t, 422, errs.BudgetExceedsMaximum)
	})

	t.Run("hides the cause of an internal error and logs it with the request id", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{errors.New("dial db:5432"), errs.Wrap(errs.Internal, errors.New("dial db:5432"), "select agents")} {
			d := newTestServer(t, failingRoute(err))
			a := d.do("GET", "/fail", "")
			a.problem(t, 500, errs.Internal)
			require.NotContains(t, a.body, "5432")
			require.NotContains(t, a.body, "select agents")
			lines := d.log.lines(t, "request failed")
			require.Len(t, lines, 1)
			require.Contains(t, lines[0]["error"], "dial db:5432")
			require.Equal(t, a.Header.Get("X-Request-Id"), lines[0]["request_id"])
		}
	})

	t.Run("hides the cause of an outage, too", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, failingRoute(errs.Wrap(errs.Unavailable, errors.New("dial db:5432"), "the database does not answer")))
		a := d.do("GET", "/fail", "")
		require.Equal(t, "the database does not answer", a.problem(t, 503, errs.Unavailable).Detail)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		require.Contains(t, d.log.text(), "dial db:5432")
	})

	t.Run("a client's error is not logged as an error", func(t *testing.T) {
		t.Parallel()
		d := newTestServer(t, failingRoute(errs.New(errs.NotFound, "no agent x")))
		d.do("GET", "/fail", "").problem(t, 404, errs.NotFound)
		require.Empty(t, d.log.lines(t, "request failed"))
	})

	t.Run("tolerates invalid UTF-8 and members that cannot be encoded", func(t *testing.T) {
		t.Parallel()
		newTestServer(t, failingRoute(errs.New(errs.NotFound, "no agent \xff"))).do("GET", "/fail", "").problem(t, 404, errs.NotFound)
		d := newTestServer(t, failingRoute(errs.New(errs.NotFound, "x").With("bad", func() {})))
		a := d.do("GET", "/fail", "")
		require.Equal(t, 404, a.StatusCode)
		require.Len(t, d.log.lines(t, "encode problem"), 1)
	})
}

// TestFailuresAreCounted: each error response is counted by its code, a success is not.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	var counted []errs.Code
	s := New(Services{}, &Options{OnFailure: func(code errs.Code) { counted = append(counted, code) }})
	for _, path := range []string{"/healthz", "/unknown", "/api/v1/agents", "/problems/unknown"} {
		s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	}
	require.Equal(t, []errs.Code{errs.NotFound, errs.Unauthenticated, errs.NotFound}, counted)
}

func TestErrorHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err          *errs.Error
		token        string
		header, want string
	}{
		"401 without a token":        {errs.New(errs.Unauthenticated, "x"), "", "WWW-Authenticate", `Bearer realm="comet"`},
		"401 with a token":           {errs.New(errs.Unauthenticated, "x"), "Bearer y", "WWW-Authenticate", `Bearer realm="comet", error="invalid_token", error_description="x"`},
		"403 names the scope":        {errs.New(errs.MissingScope, "x").With("scope", "agents:write"), "", "WWW-Authenticate", `Bearer realm="comet", error="insufficient_scope", scope="agents:write"`},
		"403 of another kind":        {errs.New(errs.AgentInactive, "x"), "", "WWW-Authenticate", ""},
		"503 says when":              {errs.New(errs.Busy, "x"), "", "Retry-After", "1"},
		"503 with a time of its own": {errs.New(errs.Busy, "x").With("retry_after", 7), "", "Retry-After", "7"},
		"429 says when":              {errs.New(errs.RateLimited, "x").With("retry_after", 30), "", "Retry-After", "30"},
		"409 does not":               {errs.New(errs.Conflict, "x"), "", "Retry-After", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newTestServer(t, failingRoute(c.err)).do("GET", "/fail", "", "Authorization", c.token)
			require.Equal(t, c.want, a.Header.Get(c.header))
		})
	}
}

func TestContextErrors(t *testing.T) {
	t.Parallel()
	serve := func(t *testing.T, ctx context.Context, err error) (*httptest.ResponseRecorder, *logBuffer) {
		t.Helper()
		log, buf := newLog(t)
		w := httptest.NewRecorder()
		newTestHandler(log, failingRoute(err)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/fail", nil))
		return w, buf
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithTimeout(t.Context(), 0)
	defer cancelLate()

	t.Run("a passed deadline is a timeout", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{context.DeadlineExceeded, fmt.Errorf("query: %w", context.DeadlineExceeded), errors.New("interrupted (9)")} {
			w, _ := serve(t, late, err)
			require.Equal(t, 503, w.Code)
			require.Contains(t, w.Body.String(), `"code":"timeout"`)
			require.Equal(t, "1", w.Header().Get("Retry-After"))
		}
	})
	t.Run("an error with a code keeps its code", func(t *testing.T) {
		t.Parallel()
		w, _ := serve(t, late, errs.New(errs.AgentExists, "x"))
		require.Equal(t, 409, w.Code)
		w, _ = serve(t, gone, errs.New(errs.AgentExists, "x"))
		require.Equal(t, 409, w.Code)
	})
	t.Run("a client's disconnect is logged at debug level only", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{context.Canceled, errs.Wrap(errs.Unavailable, context.Canceled, "x"), errors.New("interrupted (9)")} {
			w, log := serve(t, gone, err)
			require.Equal(t, statusClientClosed, w.Code)
			require.Empty(t, w.Body.String())
			require.Equal(t, "DEBUG", log.lines(t, "the client disconnected")[0]["level"])
			require.Empty(t, log.lines(t, "request failed"))
			require.InDelta(t, statusClientClosed, log.lines(t, "request")[0]["status"], 0)
		}
	})
	t.Run("a cancellation by the server is an internal error", func(t *testing.T) {
		t.Parallel()
		w, _ := serve(t, t.Context(), context.Canceled)
		require.Equal(t, 500, w.Code)
	})
}
