package webhooks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store/storetest"
)

// TestAttemptsAreBoundedTogether: however many webhooks hang, no more attempts are
// made at the same time, and all of them get their turns.
func TestAttemptsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const most, hooks = 2, 6
	opts := options()
	opts.MaxAttempts, opts.Timeout = most, time.Hour
	h := newFixture(t, storetest.Open(t, "sqlite"), opts)
	var now, largest atomic.Int64
	arrived, gate := make(chan struct{}, 100), make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(gate) }) }
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for old := largest.Load(); n > old && !largest.CompareAndSwap(old, n); old = largest.Load() {
		}
		arrived <- struct{}{}
		<-gate
		now.Add(-1)
	}))
	t.Cleanup(func() { release(); server.Close() })
	var all []models.Webhook
	for range hooks {
		all = append(all, h.hook(t, server.URL, nil))
	}
	h.start(t)
	h.emit(t, "a", "b", "c")
	for range most {
		take(t, arrived)
	}
	tested := make(chan error, 1)
	go func() {
		_, _, err := h.Test(t.Context(), ops(), all[0].ID)
		tested <- err
	}()
	require.Empty(t, arrived)
	release()
	require.NoError(t, take(t, tested))
	for i, hook := range all {
		deliveries := 3
		if i == 0 {
			deliveries++ // the test
		}
		for _, d := range h.await(t, hook.ID, settled(deliveries)) {
			require.Equal(t, models.DeliverySucceeded, d.State)
		}
	}
	require.Equal(t, int64(most), largest.Load())
}

func TestATestThatCannotBeginIsRefused(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.MaxAttempts, opts.Timeout = 1, time.Millisecond
	h := newFixture(t, storetest.Open(t, "sqlite"), opts)
	hook := h.hook(t, receive(t, nil).URL, nil)
	require.True(t, h.TakeSlot(t.Context()))
	_, _, err := h.Test(t.Context(), ops(), hook.ID)
	require.Equal(t, errs.Busy, errs.CodeOf(err))
	require.Empty(t, h.deliveries(t, hook.ID))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, h.TakeSlot(ctx), "a wait ends with its context")
}
