package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const definitionColumns = "server, name, state, digest, definition, pending_digest, pending, class, seen_at, changed_at, approved_at, approved_by"

// ToolDefinitions returns what is known about the tools of a server, in the order of their
// names; "" is for those of all, in the order of the servers.
func (s *Store) ToolDefinitions(ctx context.Context, server string) (out []models.ToolDefinition, err error) {
	const query = "SELECT " + definitionColumns + " FROM tool_definitions WHERE server = ? OR ? = '' ORDER BY server, name"
	err = s.query(ctx, s.dialect.bind(query), []any{server, server}, scanDefinitions(&out))
	return out, err
}

// LockToolDefinition returns what is known about a tool, which nobody else changes until the
// transaction ends, or errs.NotFound.
func (tx *Tx) LockToolDefinition(server, name string) (models.ToolDefinition, error) {
	var out []models.ToolDefinition
	err := tx.query("SELECT "+definitionColumns+" FROM tool_definitions WHERE server = ? AND name = ?"+tx.store.dialect.forUpdate,
		[]any{server, name}, scanDefinitions(&out))
	if err == nil && len(out) == 0 {
		return models.ToolDefinition{}, errs.New(errs.NotFound, "no tool %q of the upstream %q was ever seen", name, server)
	}
	if err != nil {
		return models.ToolDefinition{}, err
	}
	return out[0], nil
}

func scanDefinitions(out *[]models.ToolDefinition) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var d models.ToolDefinition
		var definition, pending string
		err := rows.Scan(&d.Server, &d.Name, &d.State, &d.Digest, &definition, &d.PendingDigest, &pending, &d.Class,
			scanMicros{&d.SeenAt}, scanMoment{&d.ChangedAt}, scanMoment{&d.ApprovedAt}, &d.ApprovedBy)
		d.Definition = json.RawMessage(definition)
		if pending != "" {
			d.Pending = json.RawMessage(pending)
		}
		*out = append(*out, d)
		return err
	}
}

// AddToolDefinitions keeps tools that are seen for the first time; those that are known
// already stay as they are.
func (tx *Tx) AddToolDefinitions(list []models.ToolDefinition) error {
	return tx.writeDefinitions(list, "ON CONFLICT DO NOTHING")
}

// SaveToolDefinitions writes what is known about tools.
func (tx *Tx) SaveToolDefinitions(list []models.ToolDefinition) error {
	return tx.writeDefinitions(list, `ON CONFLICT (server, name) DO UPDATE SET state = excluded.state, digest = excluded.digest,
		definition = excluded.definition, pending_digest = excluded.pending_digest, pending = excluded.pending, class = excluded.class,
		changed_at = excluded.changed_at, approved_at = excluded.approved_at, approved_by = excluded.approved_by`)
}

func (tx *Tx) writeDefinitions(list []models.ToolDefinition, tail string) error {
	const width = 12
	args := make([]any, 0, width*len(list))
	for _, d := range list {
		args = append(args, d.Server, d.Name, string(d.State), d.Digest, string(d.Definition), d.PendingDigest, string(d.Pending), string(d.Class),
			orNone(d.SeenAt), orNone(d.ChangedAt), orNone(d.ApprovedAt), d.ApprovedBy)
	}
	return tx.insertRows("INSERT INTO tool_definitions ("+definitionColumns+")", tail, width, args)
}

// DeleteToolDefinitions forgets the tools of a server.
func (tx *Tx) DeleteToolDefinitions(server string) error {
	_, err := tx.exec("DELETE FROM tool_definitions WHERE server = ?", server)
	return err
}

// scanMoment reads what orNone wrote.
type scanMoment struct{ into *time.Time }

// Scan implements sql.Scanner.
func (s scanMoment) Scan(v any) error {
	*s.into = orZero(v)
	return nil
}
