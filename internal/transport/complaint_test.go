package transport_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/transport"
	"comet/store/storetest"
)

// TestAnInboxThatCannotBeReadIsSaidOnceAMinute: an operator sees a database that does not
// answer, and still has a log that can be read.
func TestAnInboxThatCannotBeReadIsSaidOnceAMinute(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const line = "inboxes cannot be read"
		var log logBuffer
		h := openFixture(t, newBackend(t, db), &transport.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		ada, bob := h.connect(t, h.agent(t, "ada"), ""), h.connect(t, h.agent(t, "bob"), "")
		require.Empty(t, ada.barrier("a"))
		require.Empty(t, bob.barrier("b"))
		require.NoError(t, db.Close())

		h.OnWake(orchestrator.WakeInbox, "ada")
		require.Eventually(t, func() bool { return strings.Count(log.String(), line) == 1 }, time.Minute, time.Millisecond)
		h.OnWake(orchestrator.WakeInbox, "bob")
		db.Clock.Advance(time.Minute)
		require.Eventually(t, func() bool {
			h.OnWake(orchestrator.WakeInbox, "bob")
			return strings.Count(log.String(), line) == 2
		}, time.Minute, time.Millisecond)
		for range 100 {
			h.OnWake(orchestrator.WakeInbox, "bob")
		}
		require.Equal(t, 2, strings.Count(log.String(), line))
	})
}
