package messagelog

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store/storetest"
)

// TestBlockedWriter proves that neither Flush nor a read waits for a blocked writer longer than
// allowed. The test is inside the package because only here it can block the writer.
func TestBlockedWriter(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		l := New(db.Store, &Options{ReadTimeout: time.Millisecond})
		working := l.Batcher
		blocked := background.NewBatcher(background.BatcherOptions{MaxBatch: 1, MaxPending: 1}, func(ctx context.Context, _ []Message) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		add := func(number int) {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			l.Add(Message{ID: id.String(), At: time.UnixMicro(1).UTC(), Peer: "W1", Context: 1, Task: 1, Number: number, From: "W1", To: "O1", Type: "U", Data: "-"})
		}
		add(1)
		require.NoError(t, l.Flush(t.Context()))
		l.Batcher = blocked
		add(2)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Flush(ended), context.Canceled)
		_, err := l.ByNumber(t.Context(), 1, "W1", 1)
		require.NoError(t, err, "a read finds the messages that were written before")
		_, err = l.ByNumber(t.Context(), 1, "W1", 2)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		l.Batcher = working
		add(2)
		require.NoError(t, l.Flush(t.Context()))
		_, err = l.ByNumber(t.Context(), 1, "W1", 2)
		require.NoError(t, err)
	})
}
