package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"comet/models"
)

const callColumns = "id, at, door, token_id, actor, agent_id, server, tool, class, digest, outcome, error, duration, tokens, parent_id, task_id, trace_id"

// maxCallText is the longest text of a call that is kept, in bytes.
const maxCallText = 300

// AddToolCalls keeps calls that have ended.
func (tx *Tx) AddToolCalls(list []models.ToolCall) error {
	const width = 17
	args := make([]any, 0, width*len(list))
	for _, c := range list {
		// Names are what somebody sent: no database may stumble over them.
		args = append(args, c.ID, micros(c.At), c.Door, c.TokenID, storable(c.Actor, maxCallText), c.AgentID, storable(c.Server, maxCallText),
			storable(c.Tool, maxCallText), string(c.Class), c.Digest, string(c.Outcome), c.Error, c.Duration.Microseconds(), c.Tokens,
			c.ParentID, storable(c.TaskID, maxCallText), storable(c.TraceID, maxCallText))
	}
	return tx.insertRows("INSERT INTO tool_calls ("+callColumns+")", "ON CONFLICT DO NOTHING", width, args)
}

// ToolCalls returns the calls that q selects, the newest first.
func (s *Store) ToolCalls(ctx context.Context, q models.ToolCallQuery) (out []models.ToolCall, err error) {
	where, args := "", []any{}
	for _, f := range []struct{ column, value string }{
		{"agent_id", q.AgentID}, {"token_id", q.TokenID}, {"server", q.Server}, {"tool", q.Tool},
		{"task_id", q.TaskID}, {"parent_id", q.ParentID}, {"outcome", string(q.Outcome)},
	} {
		if f.value != "" {
			where, args = where+" AND "+f.column+" = ?", append(args, f.value)
		}
	}
	if q.Before != "" {
		where, args = where+" AND id < ?", append(args, q.Before)
	}
	query := "SELECT " + callColumns + " FROM tool_calls WHERE 1 = 1" + where + " ORDER BY id DESC LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), append(args, q.Limit), func(rows *sql.Rows) error {
		var c models.ToolCall
		var took int64
		err := rows.Scan(&c.ID, scanMicros{&c.At}, &c.Door, &c.TokenID, &c.Actor, &c.AgentID, &c.Server, &c.Tool, &c.Class, &c.Digest,
			&c.Outcome, &c.Error, &took, &c.Tokens, &c.ParentID, &c.TaskID, &c.TraceID)
		c.Duration = time.Duration(took) * time.Microsecond
		out = append(out, c)
		return err
	})
	return out, err
}

// PurgeToolCalls deletes up to limit calls that began before, and returns how many.
func (tx *Tx) PurgeToolCalls(before time.Time, limit int) (int64, error) {
	// A UUIDv7 begins with its milliseconds.
	ms := max(before.UnixMilli(), 0)
	return tx.exec("DELETE FROM tool_calls WHERE id IN (SELECT id FROM tool_calls WHERE id < ? ORDER BY id LIMIT ?)",
		fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff), limit)
}
