package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/models"
)

// ToolReader reads tools, their upstreams, calls and usage graph, on the read pool or in a transaction.
type ToolReader struct{ from reader }

// Tools holds the operations of a transaction on tools, their upstreams, calls and usage graph.
type Tools struct {
	ToolReader
	*transaction
}

// Tools returns the operations on tools, their upstreams, calls and usage graph.
func (tx *Tx) Tools() Tools { return Tools{ToolReader{tx.reader}, &tx.transaction} }

// Tools returns the reads of tools, their upstreams, calls and usage graph.
func (s *Store) Tools(ctx context.Context) ToolReader { return ToolReader{s.on(ctx)} }

// upstreamRow is models.Upstream as gorm stores it.
type upstreamRow struct {
	ID        string
	Config    json.RawMessage `gorm:"serializer:stored"`
	Version   int64
	CreatedBy string
	CreatedAt time.Time `gorm:"serializer:stored"`
	UpdatedAt time.Time `gorm:"serializer:stored"`
}

// TableName implements gorm's schema.Tabler.
func (upstreamRow) TableName() string { return "upstreams" }

// SaveUpstream stores an upstream and sets its version and times. It replaces the upstream before,
// whose creation stays and whose version is counted up.
func (tx Tools) SaveUpstream(u *models.Upstream) error {
	u.Version, u.CreatedAt, u.UpdatedAt = 1, tx.now, tx.now
	update := append(clause.AssignmentColumns([]string{"config", "updated_at"}),
		clause.Assignment{Column: clause.Column{Name: "version"}, Value: gorm.Expr("upstreams.version + 1")})
	return tx.db().Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: update}, clause.Returning{}).Create((*upstreamRow)(u)).Error
}

// DeleteUpstream deletes an upstream, or returns errs.NotFound.
func (tx Tools) DeleteUpstream(id string) error {
	return deleteOne(tx.db().Delete(&upstreamRow{}, "id = ?", id), "no upstream %q was added", id)
}

// Upstreams returns the upstreams that were added, ordered by id.
func (r ToolReader) Upstreams() ([]models.Upstream, error) {
	var rows []upstreamRow
	err := r.from.db().Order("id").Find(&rows).Error
	return convert(rows, func(r upstreamRow) models.Upstream { return models.Upstream(r) }), err
}

// toolPolicyRow is a token's policy as gorm stores it.
type toolPolicyRow struct {
	TokenID   string            `gorm:"primaryKey"`
	Policy    models.ToolPolicy `gorm:"serializer:stored"`
	UpdatedAt time.Time         `gorm:"serializer:stored;autoUpdateTime:false"`
	UpdatedBy string
}

// TableName implements gorm's schema.Tabler.
func (toolPolicyRow) TableName() string { return "tool_policies" }

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
	err := r.from.db().Take(&row, "token_id = ?", tokenID).Error
	return row.Policy, err
}

// toolDefinitionRow is models.ToolDefinition as gorm stores it.
type toolDefinitionRow struct {
	Server        string `gorm:"primaryKey"`
	Name          string `gorm:"primaryKey"`
	State         string
	Digest        string
	Definition    json.RawMessage `gorm:"serializer:stored"`
	PendingDigest string
	Pending       json.RawMessage `gorm:"serializer:stored"`
	Class         models.ToolClass
	SeenAt        time.Time `gorm:"serializer:stored;<-:create"`
	ChangedAt     time.Time `gorm:"serializer:stored"`
	ApprovedAt    time.Time `gorm:"serializer:stored"`
	ApprovedBy    string
}

// TableName implements gorm's schema.Tabler.
func (toolDefinitionRow) TableName() string { return "tool_definitions" }

// Definitions returns the definitions of the tools of a server ordered by name, or those of
// all servers for "".
func (r ToolReader) Definitions(server string) ([]models.ToolDefinition, error) {
	var rows []toolDefinitionRow
	err := r.from.db().Where("server = ? OR ? = ''", server, server).Order("server, name").Find(&rows).Error
	return convert(rows, func(r toolDefinitionRow) models.ToolDefinition { return models.ToolDefinition(r) }), err
}

// LockDefinition returns the definition of a tool and locks it until the transaction ends, or
// errs.NotFound.
func (tx Tools) LockDefinition(server, name string) (d models.ToolDefinition, err error) {
	err = forUpdate(tx.db()).Take((*toolDefinitionRow)(&d), "server = ? AND name = ?", server, name).Error
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
	rows := convert(list, func(d models.ToolDefinition) toolDefinitionRow { return toolDefinitionRow(d) })
	return tx.db().Clauses(conflict).CreateInBatches(rows, maxRows).Error
}

// DeleteDefinitions deletes the definitions of the tools of a server.
func (tx Tools) DeleteDefinitions(server string) error {
	return tx.db().Delete(&toolDefinitionRow{}, "server = ?", server).Error
}

// BenchmarkToolCall in internal/bench measures the log of calls, which is written by hand.

const callColumns = "id, at, source, token_id, actor, agent_id, server, tool, class, digest, outcome, error, duration, tokens, parent_id, task_id, trace_id"

// maxCallText is the maximum length of a stored text of a call, in bytes.
const maxCallText = 300

// AddCalls stores calls that have ended.
func (tx Tools) AddCalls(list []models.ToolCall) error {
	const width = 17
	args := make([]any, 0, width*len(list))
	for _, c := range list {
		// Names come from clients and may hold text that a database refuses.
		args = append(args, c.ID, Micros(c.At), c.Source, c.TokenID, StorableText(c.Actor, maxCallText), c.AgentID, StorableText(c.Server, maxCallText),
			StorableText(c.Tool, maxCallText), string(c.Class), c.Digest, c.Outcome, c.Error, c.Duration.Microseconds(), c.Tokens,
			c.ParentID, StorableText(c.TaskID, maxCallText), StorableText(c.TraceID, maxCallText))
	}
	return tx.insertRows("INSERT INTO tool_calls ("+callColumns+")", "ON CONFLICT DO NOTHING", width, args)
}

// Calls returns the calls that q selects, the newest first.
func (r ToolReader) Calls(q ToolCallQuery) ([]models.ToolCall, error) {
	where, args := "", []any{}
	for _, f := range []struct{ column, value string }{
		{"agent_id", q.AgentID}, {"token_id", q.TokenID}, {"server", q.Server}, {"tool", q.Tool},
		{"task_id", q.TaskID}, {"parent_id", q.ParentID}, {"outcome", q.Outcome},
	} {
		if f.value != "" {
			where, args = where+" AND "+f.column+" = ?", append(args, f.value)
		}
	}
	if q.Before != "" {
		where, args = where+" AND id < ?", append(args, q.Before)
	}
	query := "SELECT " + callColumns + " FROM tool_calls WHERE 1 = 1" + where + " ORDER BY id DESC LIMIT ?"
	calls, err := list(r.from, query, append(args, q.Limit), func(c *models.ToolCall) []any {
		return []any{
			&c.ID, ScanTime{&c.At}, &c.Source, &c.TokenID, &c.Actor, &c.AgentID, &c.Server, &c.Tool, &c.Class, &c.Digest,
			&c.Outcome, &c.Error, intInto(&c.Duration), &c.Tokens, &c.ParentID, &c.TaskID, &c.TraceID,
		}
	})
	for i := range calls {
		calls[i].Duration *= time.Microsecond //nolint:durationcheck // the column holds microseconds
	}
	return calls, err
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
		err := tx.queryRow(`INSERT INTO tool_edges (from_tool, to_tool, runs, last_used) VALUES (?, ?, ?, ?)
			ON CONFLICT (from_tool, to_tool) DO UPDATE SET runs = tool_edges.runs + excluded.runs, last_used = excluded.last_used RETURNING runs, last_used`,
			[]any{e.From, e.To, e.Runs, Micros(tx.now)}, &e.Runs, ScanTime{&e.LastUsed})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func byTool(a, b models.ToolNode) int { return cmp.Compare(a.Tool, b.Tool) }

// AddRuns adds runs and failures to tools.
func (tx Tools) AddRuns(nodes []models.ToolNode) error {
	const width = 4
	args := make([]any, 0, width*len(nodes))
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		args = append(args, StorableText(n.Tool, maxToolID), n.Runs, n.Failed, Micros(tx.now))
	}
	return tx.insertRows("INSERT INTO tool_nodes (tool, runs, failed, last_used)", `ON CONFLICT (tool) DO UPDATE SET
		runs = tool_nodes.runs + excluded.runs, failed = tool_nodes.failed + excluded.failed, last_used = excluded.last_used`, width, args)
}

// SetRanks stores the ranks and communities of known tools.
func (tx Tools) SetRanks(nodes []models.ToolNode) error {
	for _, n := range slices.SortedFunc(slices.Values(nodes), byTool) {
		if err := tx.each("UPDATE tool_nodes SET rank = ?, community = ? WHERE tool = ?", n.Rank, n.Community, n.Tool); err != nil {
			return err
		}
	}
	return nil
}

// Edges returns up to limit edges, the last used ones first.
func (r ToolReader) Edges(limit int) ([]models.ToolEdge, error) {
	const query = "SELECT from_tool, to_tool, runs, last_used FROM tool_edges ORDER BY last_used DESC, from_tool, to_tool LIMIT ?"
	return list(r.from, query, []any{limit}, func(e *models.ToolEdge) []any {
		return []any{&e.From, &e.To, &e.Runs, ScanTime{&e.LastUsed}}
	})
}

// Nodes returns up to limit used tools, the last used ones first.
func (r ToolReader) Nodes(limit int) ([]models.ToolNode, error) {
	const query = "SELECT tool, runs, failed, last_used, rank, community FROM tool_nodes ORDER BY last_used DESC, tool LIMIT ?"
	return list(r.from, query, []any{limit}, func(n *models.ToolNode) []any {
		return []any{&n.Tool, &n.Runs, &n.Failed, ScanTime{&n.LastUsed}, &n.Rank, intInto(&n.Community)}
	})
}

// PurgeEdges deletes up to limit edges that were not used since before and returns how
// many.
func (tx Tools) PurgeEdges(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges WHERE last_used < ? ORDER BY last_used LIMIT ?)`, Micros(before), limit)
}

// TrimEdges deletes all but the newest edges, and at most limit, and returns how many.
func (tx Tools) TrimEdges(newest, limit int) (int64, error) {
	var n int64
	if err := tx.queryRow("SELECT count(*) FROM tool_edges", nil, &n); err != nil || n <= int64(newest) {
		return 0, err
	}
	return tx.exec(`DELETE FROM tool_edges WHERE (from_tool, to_tool) IN
		(SELECT from_tool, to_tool FROM tool_edges ORDER BY last_used, from_tool, to_tool LIMIT ?)`, min(n-int64(newest), int64(limit)))
}

// PurgeNodes deletes up to limit tools that were not used since before and returns how
// many.
func (tx Tools) PurgeNodes(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_nodes WHERE tool IN (SELECT tool FROM tool_nodes WHERE last_used < ? ORDER BY last_used LIMIT ?)", Micros(before), limit)
}

// Vectors returns the stored vectors among those with the digests.
func (r ToolReader) Vectors(digests []string) ([]models.ToolVector, error) {
	dest := func(v *models.ToolVector) []any { return []any{&v.Digest, scanFloats{&v.Vector}} }
	return listIn(r.from, digests, dest, "SELECT digest, vector FROM tool_vectors WHERE digest IN (keys)")
}

// SaveVectors stores vectors and replaces those before.
func (tx Tools) SaveVectors(vectors []models.ToolVector) error {
	for _, v := range vectors {
		raw := make([]byte, 0, 4*len(v.Vector))
		for _, f := range v.Vector {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
		}
		if err := tx.each("INSERT INTO tool_vectors (digest, vector, last_used) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET vector = excluded.vector",
			v.Digest, raw, Micros(tx.now)); err != nil {
			return err
		}
	}
	return nil
}

// UseVectors marks vectors as used, so that they are not purged.
func (tx Tools) UseVectors(digests []string) error {
	_, err := tx.execIn(slices.Sorted(slices.Values(digests)), "UPDATE tool_vectors SET last_used = ? WHERE digest IN (keys)", Micros(tx.now))
	return err
}

// PurgeVectors deletes up to limit vectors that were not used since before and returns
// how many.
func (tx Tools) PurgeVectors(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_vectors WHERE digest IN (SELECT digest FROM tool_vectors WHERE last_used < ? ORDER BY last_used LIMIT ?)",
		Micros(before), limit)
}

// scanFloats reads 32-bit floats.
type scanFloats struct{ into *[]float32 }

// Scan implements sql.Scanner.
func (s scanFloats) Scan(v any) error {
	raw, _ := v.([]byte)
	*s.into = make([]float32, len(raw)/4)
	for i := range *s.into {
		(*s.into)[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// ToolCallQuery selects a page of tool calls, newest first. Zero fields do not filter.
type ToolCallQuery struct {
	AgentID, TokenID, Server, Tool, TaskID, ParentID string
	Outcome                                          string
	Before                                           string // an id; "" for the newest
	Limit                                            int
}
