package webhooks

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestLittleIsReadOfAWebhookThatHangs, which may be a thousand at the same time.
func TestLittleIsReadOfAWebhookThatHangs(t *testing.T) {
	t.Parallel()
	k := &worker{Webhooks: &Webhooks{opts: Options{Concurrency: 16}, work: context.Background()}}
	for width, want := range map[int]int{1: 4, 2: 8, 8: 32, 16: 256} {
		k.maxAttempts = width
		require.Equal(t, want, k.pageSize(), width)
	}
	k.page = make([]models.Delivery, 256)
	k.collectResult(result{attemptResult: attemptResult{succeeded: true}})
	require.Len(t, k.page, 256)
	k.collectResult(result{})
	require.Empty(t, k.page)
	require.True(t, k.more, "it is read again")
	k.page = make([]models.Delivery, 4)
	k.collectResult(result{})
	require.Len(t, k.page, 4)
}

// TestABodyThatNeverEndsDelaysNoOtherDelivery for as long as an attempt may take, whatever the
// status was.
func TestABodyThatNeverEndsDelaysNoOtherDelivery(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		s := newSender((&Options{Timeout: time.Hour, Guard: loopback()}).orDefaults())
		t.Cleanup(s.close)
		server := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte("beginning"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		out := s.send(t.Context(), hookTo(server.URL), delivery(), sentAt)
		require.Equal(t, status == http.StatusOK, out.succeeded)
		require.Equal(t, status, out.attempt.Status)
		require.Equal(t, "beginning", out.attempt.ResponseExcerpt)
	}
}
