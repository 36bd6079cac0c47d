package auth

import (
	"context"
	"crypto/sha256"
	"time"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/store"
	"comet/store/signatures"
)

// markLength is the number of bytes of a digest that are stored per signed message.
const markLength = 16

// TakeOnce records that a signed message of an agent is accepted. It returns errs.Conflict, and
// records nothing, if one of its marks was recorded in the same scope within the window. The record
// is committed when it returns, so restarts and other replicas know it. A scope is the name of a
// protocol, and a mark is any text that may not be repeated.
func (k *Keys) TakeOnce(ctx context.Context, scope, agentID string, marks ...string) error {
	return k.store.Write(ctx, func(tx *store.Tx) error {
		for _, mark := range marks {
			sum := sha256.Sum256([]byte(mark))
			first, err := signatures.Record(tx, scope, agentID, sum[:markLength], []byte{}, tx.Now().Add(-k.window))
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

// messageWindow is the shortest time for which TakeMessage remembers a message: twice the five minutes by which the
// timestamp of a message may differ from comet's time, and five minutes for the time until the commit and the
// difference between the clocks of replicas.
const messageWindow = 15 * time.Minute

// TakeMessage records in a transaction that a signed message of an agent with an id is accepted, and takes effect with
// it. repeated reports that the same content was accepted under the id before, within the window or at least 15
// minutes, so that the caller can answer as it did then. Other content under such an id is errs.Conflict, and
// nothing is recorded. A scope is the name of a protocol. Restarts and other replicas know the record.
func (k *Keys) TakeMessage(tx *store.Tx, scope, agentID, id string, content []byte) (repeated bool, err error) {
	mark, digest := sha256.Sum256([]byte(id)), sha256.Sum256(content)
	first, err := signatures.Record(tx, scope, agentID, mark[:markLength], digest[:], tx.Now().Add(-max(k.window, messageWindow)))
	if err != nil || first {
		return false, err
	}
	same, err := signatures.Matches(tx, scope, agentID, mark[:markLength], digest[:])
	if err == nil && !same {
		err = errs.New(errs.Conflict, "another message of %q with the id %s was received before; give each message an id of its own", agentID, input.Quote(id))
	}
	return same, err
}

// Purge deletes the marks that are older than both windows.
func (k *Keys) Purge(ctx context.Context) error {
	return k.store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return signatures.Purge(tx, tx.Now().Add(-max(k.window, messageWindow)), limit)
	})
}
