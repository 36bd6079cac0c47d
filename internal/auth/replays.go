package auth

import (
	"context"
	"crypto/sha256"

	"comet/internal/errs"
	"comet/store"
)

// markLength is how many bytes of a digest are stored per signed message.
const markLength = 16

// TakeOnce records that a signed message of an agent is accepted. It returns errs.Conflict, and
// records nothing, if one of its marks was recorded in the same scope within the window. The record
// is committed when it returns, so restarts and other replicas know it. A scope is the name of a
// protocol, and a mark is any text that may not be repeated.
func (k *Keys) TakeOnce(ctx context.Context, scope, agentID string, marks ...string) error {
	return k.store.Write(ctx, func(tx *store.Tx) error {
		for _, mark := range marks {
			sum := sha256.Sum256([]byte(mark))
			first, err := tx.Tokens().RecordSignature(scope, agentID, sum[:markLength], tx.Now().Add(-k.window))
			if err != nil {
				return err
			}
			if !first {
				return errs.New(errs.Conflict, "the message was received before")
			}
		}
		return nil
	})
}

// Purge deletes the marks that are older than the window.
func (k *Keys) Purge(ctx context.Context) error {
	_, err := k.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return tx.Tokens().PurgeSignatures(tx.Now().Add(-k.window), limit)
	})
	return err
}
