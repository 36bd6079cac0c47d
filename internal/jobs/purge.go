package jobs

import (
	"context"

	"comet/store"
)

// PurgeStoredResponses returns a job that deletes stored responses of Idempotency-Keys older than
// store.IdempotencyRetention.
func PurgeStoredResponses(s *store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
			return tx.PurgeStoredResponses(tx.Now().Add(-store.IdempotencyRetention), limit)
		})
		return err
	}
}
