package store

import (
	"bytes"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Idempotent runs do unless a request with the same key was answered before, and
// stores its answer in this transaction. Then once.Replay holds the earlier
// answer. It returns errs.IdempotencyKeyReused when the key came with another
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
	if _, err := tx.exec("DELETE FROM idempotency WHERE principal = ? AND key = ? AND created_at < ?",
		once.Principal, once.Key, micros(tx.now.Add(-models.IdempotencyRetention))); err != nil {
		return err
	}
	n, err := tx.exec("INSERT INTO idempotency (principal, key, request_hash, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
		once.Principal, once.Key, once.RequestHash[:], micros(tx.now))
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
	answer, err := once.Render(result)
	if err != nil {
		return err
	}
	header, err := json.Marshal(answer.Header)
	if err != nil {
		return err
	}
	_, err = tx.exec("UPDATE idempotency SET status = ?, header = ?, body = ? WHERE principal = ? AND key = ?",
		answer.Status, string(header), answer.Body, once.Principal, once.Key)
	return err
}

func (tx *Tx) replay(once *models.Idempotency) error {
	var hash []byte
	var header string
	var answer models.StoredResponse
	err := tx.queryRow("SELECT request_hash, status, header, body FROM idempotency WHERE principal = ? AND key = ?",
		[]any{once.Principal, once.Key}, &hash, &answer.Status, &header, &answer.Body)
	if err != nil {
		return err
	}
	if !bytes.Equal(hash, once.RequestHash[:]) {
		return errs.New(errs.IdempotencyKeyReused, "the Idempotency-Key %q was already used with another request", once.Key)
	}
	if err := json.Unmarshal([]byte(header), &answer.Header); err != nil {
		return err
	}
	once.Replay = &answer
	return nil
}

// PurgeStoredResponses deletes up to limit stored answers older than before and returns
// how many.
func (tx *Tx) PurgeStoredResponses(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM idempotency WHERE (principal, key) IN
		(SELECT principal, key FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)`, micros(before), limit)
}
