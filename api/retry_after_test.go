package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

// TestPermanentErrorsHaveNoRetryAfter: a client that obeys Retry-After does not repeat a request
// that fails at any later time.
func TestPermanentErrorsHaveNoRetryAfter(t *testing.T) {
	t.Parallel()
	p := newResponder(slog.New(slog.DiscardHandler))
	e := errs.New(errs.BudgetExceeded, "x").With("reset_at", time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC))
	e.Permanent = true
	w := httptest.NewRecorder()
	p.writeError(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), e)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.NotContains(t, w.Header(), "Retry-After")
	require.Contains(t, w.Body.String(), `"reset_at":"2026-01-11T00:00:00Z"`)
}

// TestRetryAfterCountsToTheReset checks that a client that waits for Retry-After retries on the
// new day.
func TestRetryAfterCountsToTheReset(t *testing.T) {
	t.Parallel()
	midnight := time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		before time.Duration
		want   string
	}{
		"hours":                  {8*time.Hour + 30*time.Minute, "30600"},
		"a second":               {time.Second, "1"},
		"parts count as a whole": {1500 * time.Millisecond, "2"},
		"a microsecond":          {time.Microsecond, "1"},
		"no time at all":         {0, "1"},
		"a clock that is ahead":  {-time.Minute, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newResponder(slog.New(slog.DiscardHandler))
			p.now = func() time.Time { return midnight.Add(-c.before) }
			w := httptest.NewRecorder()
			p.writeError(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil),
				errs.New(errs.BudgetExceeded, "x").With("reset_at", midnight))
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.Equal(t, c.want, w.Header().Get("Retry-After"))
			require.Contains(t, w.Body.String(), `"reset_at":"2026-01-11T00:00:00Z"`)
		})
	}
}
