package jobs

import (
	"context"

	"comet/models"
	"comet/store"
)

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 1000

// PurgeStoredResponses returns the work of deleting the answers that are kept for
// Idempotency-Keys longer than models.OnceRetention, to be done again and again.
func PurgeStoredResponses(s *store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			var n int64
			err := s.Write(ctx, func(tx *store.Tx) (err error) {
				n, err = tx.PurgeStoredResponses(tx.Now().Add(-models.IdempotencyRetention), purgeBatch)
				return err
			})
			if err != nil || n < purgeBatch {
				return err
			}
		}
	}
}
