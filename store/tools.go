package store

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/models"
)

// SaveUpstream stores an upstream and sets its version and times. It replaces the upstream before,
// whose creation stays and whose version is counted up.
func (tx Tools) SaveUpstream(u *models.Upstream) error {
	u.Version, u.CreatedAt, u.UpdatedAt = 1, tx.now, tx.now
	update := append(clause.AssignmentColumns([]string{"config", "updated_at"}),
		clause.Assignment{Column: clause.Column{Name: "version"}, Value: gorm.Expr("upstreams.version + 1")})
	return tx.db().Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: update}, clause.Returning{}).Create(u).Error
}

// DeleteUpstream deletes an upstream, or returns errs.NotFound.
func (tx Tools) DeleteUpstream(id string) error {
	return deleteOne(tx.db().Delete(&models.Upstream{}, "id = ?", id), "no upstream %q was added", id)
}

// Upstreams returns the upstreams that were added, ordered by id.
func (r ToolReader) Upstreams() ([]models.Upstream, error) {
	upstreams := []models.Upstream{}
	return upstreams, r.db().Order("id").Find(&upstreams).Error
}

// toolPolicyRow is a token's policy as gorm stores it.
type toolPolicyRow struct {
	TokenID   string            `gorm:"primaryKey"`
	Policy    models.ToolPolicy `gorm:"serializer:json"`
	UpdatedAt time.Time
	UpdatedBy string
}

// SavePolicy stores which tools the holder of a token may call and replaces the policy before.
// It returns errs.Conflict for an unknown token.
func (tx Tools) SavePolicy(tokenID string, p models.ToolPolicy, by string) error {
	row := toolPolicyRow{TokenID: tokenID, Policy: p, UpdatedAt: tx.now, UpdatedBy: by}
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error
}

// DeletePolicy deletes a token's policy.
func (tx Tools) DeletePolicy(tokenID string) error {
	return tx.db().Delete(&toolPolicyRow{}, "token_id = ?", tokenID).Error
}

// Policy returns a token's policy, or errs.NotFound if it has none.
func (r ToolReader) Policy(tokenID string) (models.ToolPolicy, error) {
	var row toolPolicyRow
	err := r.db().Take(&row, "token_id = ?", tokenID).Error
	return row.Policy, err
}

// Definitions returns the definitions of the tools of a server ordered by name, or those of
// all servers for "".
func (r ToolReader) Definitions(server string) ([]models.ToolDefinition, error) {
	definitions := []models.ToolDefinition{}
	return definitions, r.db().Where("server = ? OR ? = ''", server, server).Order("server, name").Find(&definitions).Error
}

// LockDefinition returns the definition of a tool and locks it until the transaction ends, or
// errs.NotFound.
func (tx Tools) LockDefinition(server, name string) (d models.ToolDefinition, err error) {
	err = forUpdate(tx.db()).Take(&d, "server = ? AND name = ?", server, name).Error
	return d, orMissing(err, "the upstream %q has no tool %q", server, name)
}

// AddDefinitions stores the definitions of unknown tools; those of known tools stay.
func (tx Tools) AddDefinitions(list []models.ToolDefinition) error {
	return tx.writeDefinitions(list, clause.OnConflict{DoNothing: true})
}

// SaveDefinitions stores definitions and replaces those before, except SeenAt.
func (tx Tools) SaveDefinitions(list []models.ToolDefinition) error {
	return tx.writeDefinitions(list, clause.OnConflict{UpdateAll: true})
}

func (tx Tools) writeDefinitions(list []models.ToolDefinition, conflict clause.OnConflict) error {
	return tx.db().Clauses(conflict).CreateInBatches(list, maxRows).Error
}

// DeleteDefinitions deletes the definitions of the tools of a server.
func (tx Tools) DeleteDefinitions(server string) error {
	return tx.db().Delete(&models.ToolDefinition{}, "server = ?", server).Error
}

// BenchmarkToolCall in internal/bench measures the log of calls, which is written by hand.

// maxCallText is the maximum length of a stored text of a call, in bytes.
const maxCallText = 300

// AddCalls stores calls that have ended.
func (tx Tools) AddCalls(list []models.ToolCall) error {
	rows := slices.Clone(list)
	for i := range rows {
		// Names come from clients and may hold text that a database refuses.
		for _, text := range []*string{&rows[i].Actor, &rows[i].Server, &rows[i].Tool, &rows[i].TaskID, &rows[i].TraceID} {
			*text = StorableText(*text, maxCallText)
		}
	}
	return create(tx.reader, "ON CONFLICT DO NOTHING", rows...)
}

// Calls returns the calls that q selects, the newest first.
func (r ToolReader) Calls(q ToolCallQuery) ([]models.ToolCall, error) {
	var where filter
	where.equal("agent_id", q.AgentID)
	where.equal("token_id", q.TokenID)
	where.equal("server", q.Server)
	where.equal("tool", q.Tool)
	where.equal("task_id", q.TaskID)
	where.equal("parent_id", q.ParentID)
	where.equal("outcome", q.Outcome)
	if q.Before != "" {
		where.and("id < ?", q.Before)
	}
	return list[models.ToolCall](r.reader, selectRows[models.ToolCall](where.where())+" ORDER BY id DESC LIMIT ?", append(where.args, q.Limit)...)
}

// PurgeCalls deletes up to limit calls that began before a time, and returns how many.
func (tx Tools) PurgeCalls(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_calls WHERE id IN (SELECT id FROM tool_calls WHERE id < ? ORDER BY id LIMIT ?)", firstUUID7(before), limit)
}

// The usage graph and the vectors of the tool search are written in batches, by hand: gorm has no
// upsert that adds to a column of many rows in statements of few sizes.

// maxToolID is the maximum length of a stored id of a tool, in bytes.
const maxToolID = 256

// AddEdges adds runs to edges and returns their sums, ordered by tools.
func (tx Tools) AddEdges(edges []models.ToolEdge) ([]models.ToolEdge, error) {
	out := slices.Clone(edges)
	// All transactions lock the rows in one order, so that they do not deadlock.
	slices.SortFunc(out, func(a, b models.ToolEdge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for i := range out {
		e := &out[i]
		e.From, e.To = StorableText(e.From, maxToolID), StorableText(e.To, maxToolID)
		saved, err := one[models.ToolEdge](tx.reader, `INSERT INTO tool_edges (from_tool, to_tool, runs, last_used) VALUES (?, ?, ?, ?)
			ON CONFLICT (from_tool, to_tool) DO UPDATE SET runs = tool_edges.runs + excluded.runs, last_used = excluded.last_used
			RETURNING from_tool, to_tool, runs, last_used`, e.From, e.To, e.Runs, tx.now)
		if err != nil {
			return nil, err
		}
		*e = saved
	}
	return out, nil
}

func byTool(a, b models.ToolNode) int { return cmp.Compare(a.Tool, b.Tool) }

// AddRuns adds runs and failures to tools.
func (tx Tools) AddRuns(nodes []models.ToolNode) error {
	const width = 4
	args := make([]any, 0, width*len(nodes))
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		args = append(args, StorableText(n.Tool, maxToolID), n.Runs, n.Failed, tx.now)
	}
	return tx.insertRows("INSERT INTO tool_nodes (tool, runs, failed, last_used)", `ON CONFLICT (tool) DO UPDATE SET
		runs = tool_nodes.runs + excluded.runs, failed = tool_nodes.failed + excluded.failed, last_used = excluded.last_used`, width, args)
}

// SetRanks stores the ranks and communities of known tools.
func (tx Tools) SetRanks(nodes []models.ToolNode) error {
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		if err := tx.run("UPDATE tool_nodes SET rank = ?, community = ? WHERE tool = ?", n.Rank, n.Community, n.Tool); err != nil {
			return err
		}
	}
	return nil
}

// Edges returns up to limit edges, the last used ones first.
func (r ToolReader) Edges(limit int) ([]models.ToolEdge, error) {
	return list[models.ToolEdge](r.reader, selectRows[models.ToolEdge]("ORDER BY last_used DESC, from_tool, to_tool LIMIT ?"), limit)
}

// Nodes returns up to limit used tools, the last used ones first.
func (r ToolReader) Nodes(limit int) ([]models.ToolNode, error) {
	return list[models.ToolNode](r.reader, selectRows[models.ToolNode]("ORDER BY last_used DESC, tool LIMIT ?"), limit)
}

// PurgeEdges deletes up to limit edges that were not used since before and returns how
// many.
func (tx Tools) PurgeEdges(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges WHERE last_used < ? ORDER BY last_used LIMIT ?)`, before, limit)
}

// TrimEdges deletes all but the newest edges, and at most limit, and returns how many.
func (tx Tools) TrimEdges(newest, limit int) (int64, error) {
	n, err := one[int64](tx.reader, "SELECT count(*) FROM tool_edges")
	if err != nil || n <= int64(newest) {
		return 0, err
	}
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges ORDER BY last_used, from_tool, to_tool LIMIT ?)`, min(n-int64(newest), int64(limit)))
}

// PurgeNodes deletes up to limit tools that were not used since before and returns how
// many.
func (tx Tools) PurgeNodes(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_nodes WHERE tool IN (SELECT tool FROM tool_nodes WHERE last_used < ? ORDER BY last_used LIMIT ?)", before, limit)
}

// Vectors returns the stored vectors among those with the digests.
func (r ToolReader) Vectors(digests []string) ([]models.ToolVector, error) {
	rows, err := list[toolVectorRow](r.reader, "SELECT digest, vector FROM tool_vectors WHERE digest "+r.engine.in, digests)
	return convert(rows, toolVectorRow.vector), err
}

// SaveVectors stores vectors and replaces those before.
func (tx Tools) SaveVectors(vectors []models.ToolVector) error {
	for _, v := range vectors {
		raw := make([]byte, 0, 4*len(v.Vector))
		for _, f := range v.Vector {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
		}
		if err := tx.run("INSERT INTO tool_vectors (digest, vector, last_used) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET vector = excluded.vector",
			v.Digest, raw, tx.now); err != nil {
			return err
		}
	}
	return nil
}

// UseVectors marks vectors as used, so that they are not purged.
func (tx Tools) UseVectors(digests []string) error {
	return tx.run("UPDATE tool_vectors SET last_used = ? WHERE digest "+tx.engine.in, tx.now, slices.Sorted(slices.Values(digests)))
}

// PurgeVectors deletes up to limit vectors that were not used since before and returns
// how many.
func (tx Tools) PurgeVectors(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_vectors WHERE digest IN (SELECT digest FROM tool_vectors WHERE last_used < ? ORDER BY last_used LIMIT ?)",
		before, limit)
}

// toolVectorRow is a vector as 32-bit floats.
type toolVectorRow struct {
	Digest string
	Vector []byte
}

func (r toolVectorRow) vector() models.ToolVector {
	v := models.ToolVector{Digest: r.Digest, Vector: make([]float32, len(r.Vector)/4)}
	for i := range v.Vector {
		v.Vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.Vector[4*i:]))
	}
	return v
}

// ToolCallQuery selects a page of tool calls, newest first. Zero fields do not filter.
type ToolCallQuery struct {
	AgentID, TokenID, Server, Tool, TaskID, ParentID string
	Outcome                                          string
	Before                                           string // an id; "" for the newest
	Limit                                            int
}
