package messagelog

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store/storetest"
)

// TestBlockedWriter proves that neither Flush nor a read waits for a blocked writer longer than
// allowed. The test is inside the package because only here it can block the writer on both
// databases.
func TestBlockedWriter(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		l := New(db.Store, &Options{ReadTimeout: time.Millisecond})
		add := func(number int) {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			l.Add(models.LoggedMessage{ID: id.String(), At: time.UnixMicro(1).UTC(), Peer: "W1", Context: 1, Task: 1, Number: number, From: "W1", To: "O1", Type: "U", Data: "-"})
		}
		add(1)
		require.NoError(t, l.Flush(t.Context()))
		add(2)
		l.writing <- struct{}{}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Flush(ended), context.Canceled)
		_, err := l.ByNumber(t.Context(), 1, "W1", 1)
		require.NoError(t, err, "a read finds the messages that were written before")
		_, err = l.ByNumber(t.Context(), 1, "W1", 2)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		<-l.writing
		require.NoError(t, l.Flush(t.Context()))
		_, err = l.ByNumber(t.Context(), 1, "W1", 2)
		require.NoError(t, err)
	})
}
