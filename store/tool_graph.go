package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"comet/models"
)

// maxToolID is the longest id of a tool that is kept, in bytes.
const maxToolID = 256

// AddToolEdges adds runs to edges, and returns what each of them has then, sorted. Several
// replicas may add to the same ones at the same time.
func (tx *Tx) AddToolEdges(edges []models.ToolEdge) ([]models.ToolEdge, error) {
	out := slices.Clone(edges)
	// All who add take the rows in one order, so that none waits for the other.
	slices.SortFunc(out, func(a, b models.ToolEdge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for i := range out {
		e := &out[i]
		e.From, e.To = storable(e.From, maxToolID), storable(e.To, maxToolID)
		err := tx.queryRow(`INSERT INTO tool_edges (from_tool, to_tool, runs, last_used) VALUES (?, ?, ?, ?)
			ON CONFLICT (from_tool, to_tool) DO UPDATE SET runs = tool_edges.runs + excluded.runs, last_used = excluded.last_used RETURNING runs, last_used`,
			[]any{e.From, e.To, e.Runs, micros(tx.now)}, &e.Runs, scanMicros{&e.LastUsed})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// AddToolRuns adds runs and failures to tools.
func (tx *Tx) AddToolRuns(nodes []models.ToolNode) error {
	const width = 4
	all := slices.Clone(nodes)
	slices.SortFunc(all, func(a, b models.ToolNode) int { return cmp.Compare(a.Tool, b.Tool) })
	args := make([]any, 0, width*len(all))
	for _, n := range all {
		args = append(args, storable(n.Tool, maxToolID), n.Runs, n.Failed, micros(tx.now))
	}
	return tx.insertRows("INSERT INTO tool_nodes (tool, runs, failed, last_used)", `ON CONFLICT (tool) DO UPDATE SET
		runs = tool_nodes.runs + excluded.runs, failed = tool_nodes.failed + excluded.failed, last_used = excluded.last_used`, width, args)
}

// SetToolRanks keeps the ranks and communities of tools that are known.
func (tx *Tx) SetToolRanks(nodes []models.ToolNode) error {
	all := slices.Clone(nodes)
	slices.SortFunc(all, func(a, b models.ToolNode) int { return cmp.Compare(a.Tool, b.Tool) })
	for _, n := range all {
		if _, err := tx.exec("UPDATE tool_nodes SET rank = ?, community = ? WHERE tool = ?", n.Rank, n.Community, n.Tool); err != nil {
			return err
		}
	}
	return nil
}

// ToolEdges returns up to limit edges, those that were used last first.
func (s *Store) ToolEdges(ctx context.Context, limit int) (out []models.ToolEdge, err error) {
	const query = "SELECT from_tool, to_tool, runs, last_used FROM tool_edges ORDER BY last_used DESC, from_tool, to_tool LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{limit}, func(rows *sql.Rows) error {
		var e models.ToolEdge
		err := rows.Scan(&e.From, &e.To, &e.Runs, scanMicros{&e.LastUsed})
		out = append(out, e)
		return err
	})
	return out, err
}

// ToolNodes returns up to limit tools that were used, the last ones first.
func (s *Store) ToolNodes(ctx context.Context, limit int) (out []models.ToolNode, err error) {
	const query = "SELECT tool, runs, failed, last_used, rank, community FROM tool_nodes ORDER BY last_used DESC, tool LIMIT ?"
	err = s.query(ctx, s.dialect.bind(query), []any{limit}, func(rows *sql.Rows) error {
		var n models.ToolNode
		err := rows.Scan(&n.Tool, &n.Runs, &n.Failed, scanMicros{&n.LastUsed}, &n.Rank, &n.Community)
		out = append(out, n)
		return err
	})
	return out, err
}

// PurgeToolEdges deletes up to limit edges that were not used since before, and returns how
// many.
func (tx *Tx) PurgeToolEdges(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges WHERE last_used < ? ORDER BY last_used LIMIT ?)`, micros(before), limit)
}

// TrimToolEdges deletes all but the newest edges, and at most limit, and returns how many.
func (tx *Tx) TrimToolEdges(newest, limit int) (int64, error) {
	var n int64
	if err := tx.queryRow("SELECT count(*) FROM tool_edges", nil, &n); err != nil {
		return 0, err
	}
	if n <= int64(newest) {
		return 0, nil
	}
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges ORDER BY last_used, from_tool, to_tool LIMIT ?)`, min(n-int64(newest), int64(limit)))
}

// PurgeToolNodes deletes up to limit tools that were not used since before, and returns how
// many.
func (tx *Tx) PurgeToolNodes(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_nodes WHERE tool IN (SELECT tool FROM tool_nodes WHERE last_used < ? ORDER BY last_used LIMIT ?)", micros(before), limit)
}

// ToolVectors returns those of the vectors that are kept.
func (s *Store) ToolVectors(ctx context.Context, digests []string) (out []models.ToolVector, err error) {
	err = eachKeys(anys(digests), 1, func(list string, args []any) error {
		return s.query(ctx, s.dialect.bind("SELECT digest, vector FROM tool_vectors WHERE digest IN "+list), args, func(rows *sql.Rows) error {
			var v models.ToolVector
			var raw []byte
			err := rows.Scan(&v.Digest, &raw)
			v.Vector = floats(raw)
			out = append(out, v)
			return err
		})
	})
	return out, err
}

// SaveToolVectors keeps vectors, in the place of those before.
func (tx *Tx) SaveToolVectors(vectors []models.ToolVector) error {
	for _, v := range vectors {
		raw := make([]byte, 0, 4*len(v.Vector))
		for _, f := range v.Vector {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
		}
		if _, err := tx.exec("INSERT INTO tool_vectors (digest, vector, last_used) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET vector = excluded.vector",
			v.Digest, raw, micros(tx.now)); err != nil {
			return err
		}
	}
	return nil
}

// UseToolVectors says that vectors are in use, so that they are not purged.
func (tx *Tx) UseToolVectors(digests []string) error {
	all := slices.Sorted(slices.Values(digests))
	return eachKeys(anys(all), 1, func(list string, args []any) error {
		_, err := tx.exec("UPDATE tool_vectors SET last_used = ? WHERE digest IN "+list, append([]any{micros(tx.now)}, args...)...)
		return err
	})
}

// PurgeToolVectors deletes up to limit vectors that were not used since before, and returns
// how many.
func (tx *Tx) PurgeToolVectors(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_vectors WHERE digest IN (SELECT digest FROM tool_vectors WHERE last_used < ? ORDER BY last_used LIMIT ?)",
		micros(before), limit)
}

func floats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
