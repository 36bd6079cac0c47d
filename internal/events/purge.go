package events

import (
	"context"
	"time"

	"comet/store"
)

// Purge returns a job that deletes numbered events older than retention. Positions are never
// reused; a subscriber that returns later than retention misses deleted events.
func Purge(s *store.Store, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
			return tx.Events().Purge(tx.Now().Add(-retention), limit)
		})
		return err
	}
}
