package jobs

import (
	"context"

	"comet/models"
	"comet/store"
)

// purgeBatch limits one purging transaction, so that other writers do not wait long.
const purgeBatch = 1000

// PurgeStoredResponses returns a job that deletes stored responses of Idempotency-Keys older than
// models.IdempotencyRetention.
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
