package store

import (
	"context"
	"database/sql"
	"encoding/json"

	"comet/internal/errs"
	"comet/models"
)

const upstreamColumns = "id, config, version, created_by, created_at, updated_at"

// SaveUpstream writes an upstream in the place of what was there, whose creation stays,
// and counts its version.
func (tx *Tx) SaveUpstream(u *models.Upstream) error {
	var version, created any
	err := tx.queryRow("INSERT INTO upstreams ("+upstreamColumns+`) VALUES (?, ?, 1, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET config = excluded.config, version = upstreams.version + 1, updated_at = excluded.updated_at
		RETURNING version, created_by, created_at`,
		[]any{u.ID, string(u.Config), u.CreatedBy, micros(tx.now), micros(tx.now)}, &version, &u.CreatedBy, &created)
	if err == nil {
		u.Version, u.CreatedAt, u.UpdatedAt = whole(version), fromMicros(whole(created)), tx.now
	}
	return err
}

// DeleteUpstream removes an upstream, or returns errs.NotFound.
func (tx *Tx) DeleteUpstream(id string) error {
	n, err := tx.exec("DELETE FROM upstreams WHERE id = ?", id)
	if err == nil && n == 0 {
		err = errs.New(errs.NotFound, "no upstream %q was added", id)
	}
	return err
}

// Upstreams returns the upstreams that were added, in the order of their ids.
func (s *Store) Upstreams(ctx context.Context) (out []models.Upstream, err error) {
	err = s.query(ctx, "SELECT "+upstreamColumns+" FROM upstreams ORDER BY id", nil, func(rows *sql.Rows) error {
		var u models.Upstream
		var config string
		err := rows.Scan(&u.ID, &config, &u.Version, &u.CreatedBy, scanMicros{&u.CreatedAt}, scanMicros{&u.UpdatedAt})
		u.Config = json.RawMessage(config)
		out = append(out, u)
		return err
	})
	return out, err
}

// SaveToolPolicy writes what the holder of a token may do with tools, in the place of what
// was there. It returns errs.Conflict for an unknown token.
func (tx *Tx) SaveToolPolicy(tokenID string, p models.ToolPolicy, by string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = tx.exec(`INSERT INTO tool_policies (token_id, policy, updated_at, updated_by) VALUES (?, ?, ?, ?)
		ON CONFLICT (token_id) DO UPDATE SET policy = excluded.policy, updated_at = excluded.updated_at, updated_by = excluded.updated_by`,
		tokenID, string(text), micros(tx.now), by)
	return err
}

// DeleteToolPolicy removes a token's policy.
func (tx *Tx) DeleteToolPolicy(tokenID string) error {
	_, err := tx.exec("DELETE FROM tool_policies WHERE token_id = ?", tokenID)
	return err
}

// ToolPolicy returns a token's policy, or errs.NotFound where it has none.
func (s *Store) ToolPolicy(ctx context.Context, tokenID string) (p models.ToolPolicy, err error) {
	var text string
	if err := s.pointRow(ctx, s.dialect.bind("SELECT policy FROM tool_policies WHERE token_id = ?"), []any{tokenID}, &text); err != nil {
		return p, err
	}
	return p, json.Unmarshal([]byte(text), &p)
}
