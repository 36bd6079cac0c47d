package webhooks_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAFewFailuresWithSilenceBetweenEndNoWebhook: five days are not five days of
// failure where next to nothing was sent.
func TestAFewFailuresWithSilenceBetweenEndNoWebhook(t *testing.T) {
	t.Parallel()

	rule(t, "AndTheTenthEndsIt", func(t *testing.T, h *fixture) {
		hook := h.hook(t, receive(t, always(http.StatusInternalServerError)).URL, nil)
		h.start(t)
		since := h.db.Now()
		for n := 1; n <= 10; n++ {
			h.emit(t, "a")
			h.await(t, hook.ID, attempted(n*(n+1)/2)) // every one before is due again
			got, err := h.db.Webhooks(t.Context()).Get(hook.ID)
			require.NoError(t, err)
			require.Equal(t, since, *got.FailingSince)
			if got.Failures < 10 {
				require.True(t, got.Enabled, "after %d failures", got.Failures)
			} else {
				require.False(t, got.Enabled)
				require.Equal(t, "no delivery succeeded for 5 days", got.DisabledReason)
				return
			}
			h.db.Clock.Advance(6 * 24 * time.Hour)
		}
		require.FailNow(t, "it was not ended")
	})

	rule(t, "AndASuccessResetsIt", func(t *testing.T, h *fixture) {
		var well atomic.Bool
		hook := h.hook(t, receive(t, func(request, http.Header) int { return statusOf(well.Load()) }).URL, nil)
		h.start(t)
		h.emit(t, make([]string, 12)...)
		h.await(t, hook.ID, attempted(12))
		got, err := h.db.Webhooks(t.Context()).Get(hook.ID)
		require.NoError(t, err)
		require.Equal(t, 10, got.Failures, "no more are counted than need be")
		well.Store(true)
		h.db.Clock.Advance(5 * time.Second)
		h.await(t, hook.ID, settled(12))
		well.Store(false)
		for _, n := range []int{1, 3} { // the first one is due again
			h.db.Clock.Advance(6 * 24 * time.Hour)
			h.emit(t, "a")
			h.await(t, hook.ID, attempted(24+n))
		}
		got, err = h.db.Webhooks(t.Context()).Get(hook.ID)
		require.NoError(t, err)
		require.True(t, got.Enabled)
		require.Equal(t, 3, got.Failures)
	})
}
