package journal

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

// TestWhileAnotherWrites: nobody waits for a writer longer than he wants to. The case is in
// the package because only here a writer can be held up on both databases.
func TestWhileAnotherWrites(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		j := New(db.Store, &Options{Patience: time.Millisecond})
		add := func(number int) {
			id, err := uuid.NewV7()
			require.NoError(t, err)
			j.Add(models.LoggedMessage{ID: id.String(), At: time.UnixMicro(1).UTC(), Peer: "W1", Context: 1, Task: 1, Number: number, From: "W1", To: "O1", Type: "U", Data: "-"})
		}
		add(1)
		require.NoError(t, j.Flush(t.Context()))
		add(2)
		j.writing <- struct{}{}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, j.Flush(ended), context.Canceled)
		_, err := j.ByNumber(t.Context(), 1, "W1", 1)
		require.NoError(t, err, "what was written before is read")
		_, err = j.ByNumber(t.Context(), 1, "W1", 2)
		require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		<-j.writing
		require.NoError(t, j.Flush(t.Context()))
		_, err = j.ByNumber(t.Context(), 1, "W1", 2)
		require.NoError(t, err)
	})
}
