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

// TestRefusedBudgets checks that a client which obeys Retry-After repeats only requests that can
// succeed before the budget is renewed.
func TestRefusedBudgets(t *testing.T) {
	t.Parallel()
	refuse := func(e *errs.Error) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		w.Header().Set("Retry-After", "9") // as of a rate limit
		newResponder(slog.New(slog.DiscardHandler)).writeError(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), e)
		require.Contains(t, w.Body.String(), `"reset_at":"2026-01-11T00:00:00Z"`)
		return w
	}
	e := errs.New(errs.BudgetExceeded, "x").With("reset_at", time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC))
	used := refuse(e)
	require.Equal(t, http.StatusForbidden, used.Code)
	require.NotContains(t, used.Header(), "Retry-After")
	require.Contains(t, used.Body.String(), `"code":"budget-exceeded"`)

	held := refuse(e.With("retry_after", 5))
	require.Equal(t, http.StatusTooManyRequests, held.Code)
	require.Equal(t, "5", held.Header().Get("Retry-After"))
	require.Contains(t, held.Body.String(), `"type":"/problems/budget-reserved"`)
}
