package api_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

// TestWaitersPerTokenAreLimited: as many requests with one token wait for tasks as may.
func TestWaitersPerTokenAreLimited(t *testing.T) {
	t.Parallel()
	const tasks = "/api/v1/tasks"

	runStreamTest(t, "AndRejectedWith503", fixtureOptions{maxWaiters: 1}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		h.joinWorker(t, "reader", 4)
		var task struct{ ID string }
		h.do(t, "POST", tasks, `{"capabilities":["custom:read"]}`).decode(t, http.StatusAccepted, &task)
		_, err := h.orchestrator.Clarify(t.Context(), "reader", task.ID, orchestrator.Question{Text: "?"})
		require.NoError(t, err)
		at := tasks + "/" + task.ID

		ctx, cancel := context.WithCancel(t.Context())
		var waiter sync.WaitGroup
		waiter.Go(func() {
			for ctx.Err() == nil { // the requests below may be faster
				_, _ = h.doContext(ctx, "GET", at+"?wait=60", "")
			}
		})
		t.Cleanup(waiter.Wait)
		t.Cleanup(cancel)
		var refused response
		require.Eventually(t, func() bool {
			refused = h.do(t, "GET", at+"?wait=1", "")
			return refused.status != http.StatusOK
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Contains(t, string(refused.body), string(errs.Busy))
		require.NotEmpty(t, refused.header.Get("Retry-After"))
		require.Equal(t, http.StatusOK, h.do(t, "GET", at, "").status, "who does not wait needs no place")

		asked := h.do(t, "POST", tasks, `{"capabilities":["custom:read"]}`, "Prefer", "wait=20")
		require.Equal(t, http.StatusAccepted, asked.status, "the task is taken on all the same")
		require.Empty(t, asked.header.Values("Preference-Applied"))
		require.Equal(t, http.StatusOK, h.do(t, "GET", at+"?wait=1", "", "Authorization", "Bearer "+h.token(t, models.ScopeTasksRead)).status, "another token has its own")
	})
}
