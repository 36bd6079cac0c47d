package store

import (
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/internal/errs"
	"comet/models"
	"comet/store/columns"
	"comet/store/filter"
)

// SaveUpstream stores an upstream and sets its version and times. It replaces the upstream before,
// whose creation stays and whose version is counted up.
func (tx Tools) SaveUpstream(u *models.Upstream) error {
	u.Version, u.CreatedAt, u.UpdatedAt = 1, tx.now, tx.now
	update := append(clause.AssignmentColumns([]string{"config", "updated_at"}),
		clause.Assignment{Column: clause.Column{Name: "version"}, Value: gorm.Expr("upstreams.version + 1")})
	return tx.db().Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: update}, clause.Returning{}).Create(u).Error
}

// DeleteUpstream deletes an upstream and returns its version, or errs.NotFound.
func (tx Tools) DeleteUpstream(id string) (int64, error) {
	var u models.Upstream
	deleted := tx.db().Clauses(clause.Returning{}).Delete(&u, "id = ?", id)
	if deleted.Error == nil && deleted.RowsAffected == 0 {
		return 0, errs.New(errs.NotFound, "there is no upstream %q that was added over the API", id)
	}
	return u.Version, deleted.Error
}

// Upstreams returns the upstreams that were added, ordered by id: all for "", otherwise the one with that id.
func (r toolReader) Upstreams(id string) ([]models.Upstream, error) {
	upstreams := []models.Upstream{}
	return upstreams, r.db().Where("id = ? OR ? = ''", id, id).Order("id").Find(&upstreams).Error
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

// Policy returns a token's policy and its version, or errs.NotFound and 0 if it has none.
func (r toolReader) Policy(tokenID string) (models.ToolPolicy, int64, error) {
	row := toolPolicyRow{UpdatedAt: time.UnixMicro(0)}
	err := r.db().Take(&row, "token_id = ?", tokenID).Error
	return row.Policy, row.UpdatedAt.UnixMicro(), err
}

// Policies returns the policies of a token and of the tokens that it descends from.
func (r toolReader) Policies(tokenID string) ([]models.ToolPolicy, error) {
	chain, err := tokenReader(r).Chain(tokenID)
	if err != nil {
		return nil, err
	}
	var rows []toolPolicyRow
	err = r.db().Find(&rows, "token_id IN ?", chain).Error
	return convert(rows, func(r toolPolicyRow) models.ToolPolicy { return r.Policy }), err
}

// Definitions returns the definitions of the tools of a server ordered by name, or those of
// all servers for "".
func (r toolReader) Definitions(server string) ([]models.ToolDefinition, error) {
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
			*text = columns.Text(*text, maxCallText)
		}
	}
	return create(tx.reader, "ON CONFLICT DO NOTHING", rows...)
}

// Calls returns the calls that q selects, the newest first.
func (r toolReader) Calls(q ToolCallQuery) ([]models.ToolCall, error) {
	var where filter.Clause
	where.Equal("id", q.ID)
	where.Equal("agent_id", q.AgentID)
	where.Equal("token_id", q.TokenID)
	where.Equal("server", q.Server)
	where.Equal("tool", q.Tool)
	where.Equal("task_id", q.TaskID)
	where.Equal("parent_id", q.ParentID)
	where.Equal("outcome", q.Outcome)
	where.Optional("id < ?", q.Before)
	return list[models.ToolCall](r.reader, selectRows[models.ToolCall](where.SQL())+" ORDER BY id DESC LIMIT ?", append(where.Args, q.Limit)...)
}

// PurgeCalls deletes up to limit calls that began before a time, and returns how many.
func (tx Tools) PurgeCalls(before time.Time, limit int) (int64, error) {
	return tx.exec("DELETE FROM tool_calls WHERE id IN (SELECT id FROM tool_calls WHERE id < ? ORDER BY id LIMIT ?)", firstUUID7(before), limit)
}

// ToolCallQuery selects a page of tool calls, newest first. Zero fields do not filter.
type ToolCallQuery struct {
	ID, AgentID, TokenID, Server, Tool, TaskID, ParentID, Outcome string

	Before string // an id; "" for the newest
	Limit  int
}
