package events

import (
	"context"
	"time"

	"comet/store"
)

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 1000

// Purge returns the work of deleting numbered events older than retention, to be
// done again and again. Positions are never given out again; a subscriber that
// comes back later than retention misses what was deleted.
func Purge(s *store.Store, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			var n int64
			err := s.Write(ctx, func(tx *store.Tx) (err error) {
				n, err = tx.PurgeEvents(tx.Now().Add(-retention), purgeBatch)
				return err
			})
			if err != nil || n < purgeBatch {
				return err
			}
		}
	}
}
