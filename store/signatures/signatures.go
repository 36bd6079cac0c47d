// Package signatures executes the statements on public keys of agents, on comet's own keys, and on the
// marks of signed messages that were accepted.
package signatures

import (
	"bytes"
	"time"

	"comet/models"
	"comet/store"
	"comet/store/columns"
)

// selectKeys selects keys of ed25519, which have no secret.
func selectKeys() string {
	return "SELECT " + columns.List[models.AgentKey]() + " FROM agent_keys WHERE algorithm = 'ed25519' AND "
}

// Live returns the public keys of an agent that are valid at a time, the newest first.
func Live(from store.Source, agentID string, at time.Time) ([]models.AgentKey, error) {
	return store.Rows[models.AgentKey](from, selectKeys()+"agent_id = ? AND revoked_at IS NULL AND (not_after IS NULL OR not_after > ?) ORDER BY created_at DESC, key_id", agentID, at)
}

// Keys returns up to limit public keys of an agent: those that are not revoked, then the others, the newest first.
func Keys(from store.Source, agentID string, limit int) ([]models.AgentKey, error) {
	return store.Rows[models.AgentKey](from, selectKeys()+"agent_id = ? ORDER BY revoked_at IS NOT NULL, created_at DESC, key_id LIMIT ?", agentID, limit)
}

// Key returns the public key of an agent with an id, or errs.NotFound.
func Key(from store.Source, agentID, keyID string) (models.AgentKey, error) {
	return store.Row[models.AgentKey](from, selectKeys()+"agent_id = ? AND key_id = ?", agentID, keyID)
}

// Public returns the key of any agent with a public key, or errs.NotFound.
func Public(from store.Source, publicKey string) (models.AgentKey, error) {
	return store.Row[models.AgentKey](from, selectKeys()+"public_key = ?", publicKey)
}

// ServiceKey is a row of service_keys. Its seed is sealed, and empty once the key is retired.
type ServiceKey struct {
	KeyID, PublicKey string
	Seed             []byte
	CreatedAt        time.Time
	RetiredAt        *time.Time
}

// TableName implements gorm's schema.Tabler.
func (ServiceKey) TableName() string { return "service_keys" }

// ServiceKeys returns the current key of comet, then those that were retired after a time, the newest first.
func ServiceKeys(from store.Source, after time.Time) ([]ServiceKey, error) {
	return store.Rows[ServiceKey](from, "SELECT "+columns.List[ServiceKey]()+` FROM service_keys
		WHERE retired_at IS NULL OR retired_at > ? ORDER BY retired_at IS NOT NULL, created_at DESC, key_id`, after)
}

// Retire retires the current key of comet, erases its seed, and deletes the keys that were retired before a time.
func Retire(tx *store.Tx, before time.Time) error {
	_, err := tx.Exec("UPDATE service_keys SET retired_at = ?, seed = ? WHERE retired_at IS NULL", tx.Now(), []byte{})
	if err == nil {
		err = tx.Run("DELETE FROM service_keys WHERE retired_at < ?", before)
	}
	return err
}

// AddServiceKey stores a key of comet unless there is a current one, even one of a concurrent transaction.
func AddServiceKey(tx *store.Tx, k ServiceKey) (added bool, err error) {
	n, err := tx.Exec("INSERT INTO service_keys (key_id, public_key, seed, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", k.KeyID, k.PublicKey, k.Seed, k.CreatedAt)
	return n == 1, err
}

// Record marks a signed message of an agent as accepted, with a digest of its content, and reports whether it had no
// mark since a time. Marks of different scopes are independent. Of two concurrent transactions the second waits for
// the first.
func Record(tx *store.Tx, scope, agentID string, mark, digest []byte, since time.Time) (bool, error) {
	n, err := tx.Exec(`INSERT INTO replay_marks (scope, agent_id, mark, digest, at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (scope, agent_id, mark) DO UPDATE SET at = excluded.at, digest = excluded.digest WHERE replay_marks.at < ?`,
		scope, agentID, mark, digest, tx.Now(), since)
	return n == 1, err
}

// Matches reports whether the message with a mark has a digest.
func Matches(from store.Source, scope, agentID string, mark, digest []byte) (bool, error) {
	stored, err := store.Row[[]byte](from, "SELECT digest FROM replay_marks WHERE scope = ? AND agent_id = ? AND mark = ?", scope, agentID, mark)
	return bytes.Equal(stored, digest), err
}

// Purge deletes up to limit marks older than before and returns how many.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM replay_marks WHERE (scope, agent_id, mark) IN
		(SELECT scope, agent_id, mark FROM replay_marks WHERE at < ? ORDER BY at LIMIT ?)`, before, limit)
}
