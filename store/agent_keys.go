package store

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// SaveAgentKey writes an agent's key in the place of the one before. It returns
// errs.Conflict for an unknown agent.
func (tx *Tx) SaveAgentKey(k models.AgentKey) error {
	_, err := tx.exec(`INSERT INTO agent_keys (agent_id, secret, required, created_at, created_by) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (agent_id) DO UPDATE SET secret = excluded.secret, required = excluded.required,
		created_at = excluded.created_at, created_by = excluded.created_by`,
		k.AgentID, k.Secret, k.Required, micros(k.CreatedAt), k.CreatedBy)
	return err
}

// selectAgentKey reads a key with the number of its agent, 0 for none.
const selectAgentKey = `SELECT k.agent_id, k.secret, k.required, k.created_at, k.created_by, COALESCE(n.number, 0) FROM agent_keys AS k
	LEFT JOIN agent_numbers AS n ON n.agent_id = k.agent_id WHERE k.agent_id = ?`

// keyRow is a row of selectAgentKey.
type keyRow struct {
	key                       models.AgentKey
	required, created, number any
}

func (r *keyRow) dest() []any {
	return []any{&r.key.AgentID, &r.key.Secret, &r.required, &r.created, &r.key.CreatedBy, &r.number}
}

func (r *keyRow) read(agentID string, err error) (models.AgentKey, error) {
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "the agent %q has no key", agentID)
	}
	if err != nil {
		return models.AgentKey{}, err
	}
	r.key.Required, r.key.CreatedAt, r.key.Number = truth(r.required), fromMicros(whole(r.created)), whole(r.number)
	return r.key, nil
}

// AgentKey returns an agent's key, or errs.NotFound. The fingerprint is for others to make.
func (tx *Tx) AgentKey(agentID string) (models.AgentKey, error) {
	var r keyRow
	err := tx.queryRow(selectAgentKey, []any{agentID}, r.dest()...)
	return r.read(agentID, err)
}

// DeleteAgentKey removes an agent's key.
func (tx *Tx) DeleteAgentKey(agentID string) error {
	_, err := tx.exec("DELETE FROM agent_keys WHERE agent_id = ?", agentID)
	return err
}

// RecordSignature keeps that a line of an agent was taken, and reports whether it is the first
// such line since. Two at the same moment wait for each other.
func (tx *Tx) RecordSignature(agentID string, mark []byte, since time.Time) (bool, error) {
	n, err := tx.exec(`INSERT INTO signed_lines (agent_id, mark, at) VALUES (?, ?, ?)
		ON CONFLICT (agent_id, mark) DO UPDATE SET at = excluded.at WHERE signed_lines.at < ?`, agentID, mark, micros(tx.now), micros(since))
	return n == 1, err
}

// PurgeSignatures forgets up to limit lines noted before, and returns how many.
func (tx *Tx) PurgeSignatures(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM signed_lines WHERE (agent_id, mark) IN
		(SELECT agent_id, mark FROM signed_lines WHERE at < ? ORDER BY at LIMIT ?)`, micros(before), limit)
}

// AgentKey returns an agent's key as Tx.AgentKey does.
func (s *Store) AgentKey(ctx context.Context, agentID string) (models.AgentKey, error) {
	var r keyRow
	err := s.queryRow(ctx, s.dialect.bind(selectAgentKey), []any{agentID}, r.dest()...)
	return r.read(agentID, err)
}
