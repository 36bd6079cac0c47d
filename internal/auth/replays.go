package auth

import (
	"context"
	"crypto/sha256"

	"comet/internal/errs"
	"comet/store"
)

// purgeBatch limits one purging transaction, so that other writers do not wait long.
const purgeBatch = 1000

// markLength is how many bytes of a digest are stored per signed message.
const markLength = 16

// TakeOnce records that a signed message of an agent is accepted. It returns errs.Conflict, and
// records nothing, if one of its marks was recorded within the window. The record is committed
// when it returns, so restarts and other replicas know it. A mark is any text that may not be
// repeated.
func (k *Keys) TakeOnce(ctx context.Context, agentID string, marks ...string) error {
	return k.store.Write(ctx, func(tx *store.Tx) error {
		for _, mark := range marks {
			sum := sha256.Sum256([]byte(mark))
			first, err := tx.RecordSignature(agentID, sum[:markLength], tx.Now().Add(-k.window))
			if err != nil {
				return err
			}
			if !first {
				return errs.New(errs.Conflict, "the line was taken before")
			}
		}
		return nil
	})
}

// Purge deletes the marks that are older than the window.
func (k *Keys) Purge(ctx context.Context) error {
	for {
		var n int64
		err := k.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeSignatures(tx.Now().Add(-k.window), purgeBatch)
			return err
		})
		if err != nil || n < purgeBatch {
			return err
		}
	}
}
