package transport

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAckBatcherAtItsLimit adds acknowledgements from several goroutines while too many are pending.
func TestAckBatcherAtItsLimit(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	b := &ackBatcher{acknowledge: func(ids []string) { written.Add(int64(len(ids))) }}
	many := make([]string, maxPendingAcks)
	var adding sync.WaitGroup
	for range 16 {
		adding.Go(func() {
			for range 20 {
				b.add(many)
			}
		})
	}
	adding.Wait()
	b.running.Wait()
	require.EqualValues(t, 16*20*maxPendingAcks, written.Load())
}
