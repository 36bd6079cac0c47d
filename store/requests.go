package store

import (
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Idempotent runs do unless a request with the same key was answered before, and
// stores its response in this transaction. Otherwise once.Replay holds the stored
// response. It returns errs.IdempotencyKeyReused when the key came with another
// request, and the error of do or of once.Render as it is. A failed request
// stores nothing, so its key may be tried again. A nil once only runs do.
//
// It must be the transaction's first statement: on PostgreSQL a second request
// with the key waits here until the first has ended.
func (tx *Tx) Idempotent(once *models.Idempotency, do func() (any, error)) error {
	if once == nil {
		_, err := do()
		return err
	}
	once.Replay = nil
	if err := tx.run("DELETE FROM idempotency WHERE principal = ? AND key = ? AND created_at < ?",
		once.Principal, once.Key, tx.now.Add(-IdempotencyRetention)); err != nil {
		return err
	}
	n, err := tx.exec("INSERT INTO idempotency (principal, key, request_hash, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
		once.Principal, once.Key, once.RequestHash, tx.now)
	if err != nil {
		return err
	}
	if n == 0 {
		return tx.replay(once)
	}
	result, err := do()
	if err != nil {
		return err
	}
	response, err := once.Render(result)
	if err != nil {
		return err
	}
	header, err := json.Marshal(response.Header)
	if err != nil {
		return err
	}
	return tx.run("UPDATE idempotency SET status = ?, header = ?, body = ? WHERE principal = ? AND key = ?",
		response.Status, string(header), response.Body, once.Principal, once.Key)
}

// Once runs do in a transaction, unless a request with the same key was answered before: see
// Tx.Idempotent.
func (s *Store) Once(ctx context.Context, once *models.Idempotency, do func(*Tx) (any, error)) error {
	return s.Write(ctx, func(tx *Tx) error {
		return tx.Idempotent(once, func() (any, error) { return do(tx) })
	})
}

// Forget removes the key that Idempotent has recorded in this transaction, so that the transaction
// can continue after an error of do without a stored response.
func (tx *Tx) Forget(once *models.Idempotency) error {
	return tx.run("DELETE FROM idempotency WHERE principal = ? AND key = ?", once.Principal, once.Key)
}

func (tx *Tx) replay(once *models.Idempotency) error {
	type answered struct {
		RequestHash [32]byte
		Status      int
		Header      json.RawMessage
		Body        []byte
	}
	stored, err := one[answered](tx.reader, "SELECT request_hash, status, header, body FROM idempotency WHERE principal = ? AND key = ?", once.Principal, once.Key)
	if err != nil {
		return err
	}
	if stored.RequestHash != once.RequestHash {
		return errs.New(errs.IdempotencyKeyReused, "the Idempotency-Key %q was already used with another request", once.Key)
	}
	once.Replay = &models.StoredResponse{Status: stored.Status, Body: stored.Body}
	return json.Unmarshal(stored.Header, &once.Replay.Header)
}

// PurgeStoredResponses deletes up to limit stored responses older than before and returns how many.
func (tx *Tx) PurgeStoredResponses(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM idempotency WHERE (principal, key) IN
		(SELECT principal, key FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)`, before, limit)
}

// IdempotencyRetention is how long responses are stored for their Idempotency-Keys.
const IdempotencyRetention = 24 * time.Hour
