package events

import (
	"context"
	"time"

	"comet/store"
)

// purgeBatch limits one purging transaction, so that other writers do not wait long.
const purgeBatch = 1000

// Purge returns a job that deletes numbered events older than retention. Positions are never
// reused; a subscriber that returns later than retention misses deleted events.
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
