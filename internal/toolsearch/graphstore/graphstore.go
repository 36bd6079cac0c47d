// Package graphstore stores what the tool search has learned: the graph of tools that are used
// together, and the vectors of their texts. Both are derived and expire.
package graphstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"comet/store"
	"comet/store/columns"
)

// Edge records that From was used before To in a run. A tool is named serverId:toolName.
type Edge struct {
	From string `gorm:"column:from_tool"`
	To   string `gorm:"column:to_tool"`
	// Runs is the number of successful runs with this edge.
	Runs     int64
	LastUsed time.Time
}

// Node is the recorded use of a tool.
type Node struct {
	Tool string
	// Runs is the number of successful runs that used the tool.
	Runs     int64
	LastUsed time.Time
	// Rank is its PageRank, 0 until it is computed. Community is the number of its group of tools
	// that are used together, -1 until it is computed.
	Rank      float64
	Community int
}

// Vector is a model's embedding of the text of a tool.
type Vector struct {
	// Digest is the SHA-256 of the model's name and the text, in hexadecimal digits.
	Digest string
	Vector []float32
}

// TableName implements gorm's schema.Tabler.
func (Edge) TableName() string { return "tool_edges" }

// TableName implements gorm's schema.Tabler.
func (Node) TableName() string { return "tool_nodes" }

// maxToolID is the maximum length of a stored id of a tool, in bytes.
const maxToolID = 256

// AddEdges adds runs to edges and returns their sums, ordered by tools.
func AddEdges(tx *store.Tx, edges []Edge) ([]Edge, error) {
	out := slices.Clone(edges)
	// All transactions lock the rows in one order, so that they do not deadlock.
	slices.SortFunc(out, func(a, b Edge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for i := range out {
		e := &out[i]
		e.From, e.To = columns.Text(e.From, maxToolID), columns.Text(e.To, maxToolID)
		saved, err := store.Row[Edge](tx, `INSERT INTO tool_edges (from_tool, to_tool, runs, last_used) VALUES (?, ?, ?, ?)
			ON CONFLICT (from_tool, to_tool) DO UPDATE SET runs = tool_edges.runs + excluded.runs, last_used = excluded.last_used
			RETURNING from_tool, to_tool, runs, last_used`, e.From, e.To, e.Runs, tx.Now())
		if err != nil {
			return nil, err
		}
		*e = saved
	}
	return out, nil
}

func byTool(a, b Node) int { return cmp.Compare(a.Tool, b.Tool) }

// AddRuns adds runs and failures to tools.
func AddRuns(tx *store.Tx, nodes []Node) error {
	const width = 3
	args := make([]any, 0, width*len(nodes))
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		args = append(args, columns.Text(n.Tool, maxToolID), n.Runs, tx.Now())
	}
	return tx.InsertRows("INSERT INTO tool_nodes (tool, runs, last_used)", `ON CONFLICT (tool) DO UPDATE SET
		runs = tool_nodes.runs + excluded.runs, last_used = excluded.last_used`, width, args)
}

// SetRanks stores the ranks and communities of known tools.
func SetRanks(tx *store.Tx, nodes []Node) error {
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		if err := tx.Run("UPDATE tool_nodes SET rank = ?, community = ? WHERE tool = ?", n.Rank, n.Community, n.Tool); err != nil {
			return err
		}
	}
	return nil
}

// Edges returns up to limit edges, the last used ones first.
func Edges(ctx context.Context, s *store.Store, limit int) ([]Edge, error) {
	return store.Rows[Edge](s.Reads(ctx), "SELECT "+columns.List[Edge]()+" FROM tool_edges ORDER BY last_used DESC, from_tool, to_tool LIMIT ?", limit)
}

// Nodes returns up to limit used tools, the last used ones first.
func Nodes(ctx context.Context, s *store.Store, limit int) ([]Node, error) {
	return store.Rows[Node](s.Reads(ctx), "SELECT "+columns.List[Node]()+" FROM tool_nodes ORDER BY last_used DESC, tool LIMIT ?", limit)
}

// PurgeEdges deletes up to limit edges that were last used before a time, and counts them.
func PurgeEdges(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges WHERE last_used < ? ORDER BY last_used LIMIT ?)`, before, limit)
}

// TrimEdges keeps the newest edges, deletes at most limit of the others, and returns how many.
func TrimEdges(tx *store.Tx, newest, limit int) (int64, error) {
	n, err := store.Row[int64](tx, "SELECT count(*) FROM tool_edges")
	if err != nil || n <= int64(newest) {
		return 0, err
	}
	return tx.Exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges ORDER BY last_used, from_tool, to_tool LIMIT ?)`, min(n-int64(newest), int64(limit)))
}

// PurgeNodes deletes up to limit tools that were last used before a time, and counts them.
func PurgeNodes(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM tool_nodes WHERE tool IN (SELECT tool FROM tool_nodes WHERE last_used < ? ORDER BY last_used LIMIT ?)", before, limit)
}

// Vectors returns the stored vectors among those with the digests.
func Vectors(ctx context.Context, s *store.Store, digests []string) ([]Vector, error) {
	from := s.Reads(ctx)
	rows, err := store.Rows[vectorRow](from, "SELECT digest, vector FROM tool_vectors WHERE digest "+store.In(from), store.Keys(digests))
	vectors := make([]Vector, len(rows))
	for i, row := range rows {
		vectors[i] = Vector{Digest: row.Digest, Vector: make([]float32, len(row.Vector)/4)}
		_, _ = binary.Decode(row.Vector, binary.LittleEndian, vectors[i].Vector) // of the same size
	}
	return vectors, err
}

// SaveVectors stores vectors and replaces existing ones.
func SaveVectors(tx *store.Tx, vectors []Vector) error {
	for _, v := range vectors {
		raw, _ := binary.Append(nil, binary.LittleEndian, v.Vector) // numbers cannot fail
		if err := tx.Run("INSERT INTO tool_vectors (digest, vector, last_used) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET vector = excluded.vector",
			v.Digest, raw, tx.Now()); err != nil {
			return err
		}
	}
	return nil
}

// UseVectors marks vectors as used, so that they are not purged.
func UseVectors(tx *store.Tx, digests []string) error {
	return tx.Run("UPDATE tool_vectors SET last_used = ? WHERE digest "+store.In(tx), tx.Now(), store.Keys(slices.Sorted(slices.Values(digests))))
}

// PurgeVectors deletes up to limit vectors that were last used before a time, and counts them.
func PurgeVectors(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec("DELETE FROM tool_vectors WHERE digest IN (SELECT digest FROM tool_vectors WHERE last_used < ? ORDER BY last_used LIMIT ?)",
		before, limit)
}

// vectorRow is a vector as 32-bit floats.
type vectorRow struct {
	Digest string
	Vector []byte
}
