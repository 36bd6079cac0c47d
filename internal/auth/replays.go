package auth

import (
	"context"
	"crypto/sha256"

	"comet/internal/errs"
	"comet/store"
)

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 1000

// markLength is how many bytes of a digest are kept of a signed line.
const markLength = 16

// TakeOnce notes that a signed line of an agent is taken, and is errs.Conflict, and notes
// nothing, where one of its marks was noted before within the window. It is committed when
// it returns, in the database, so that restarts and other replicas know it. A mark is what
// may not come again, of any length.
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

// Purge forgets the signed lines that may come again.
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
