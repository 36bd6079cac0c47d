package workflows

import (
	"encoding/json"
	"time"

	"comet/store"
	"comet/store/filter"
)

// Definition is a row of workflow_definitions: a version of a stored workflow.
type Definition struct {
	Name        string
	Version     int64
	Description string
	// Plan is JSON, and InputSchema a JSON Schema, nil for none.
	Plan, InputSchema json.RawMessage
	// CreatedBy is the name of a token.
	CreatedBy string
	CreatedAt time.Time
}

// TableName implements gorm's schema.Tabler.
func (Definition) TableName() string { return "workflow_definitions" }

const definitionColumns = "name, version, description, plan, input_schema, created_by, created_at"

// AddDefinition stores a version of a stored workflow. If the version exists, this call, a later statement or the commit
// returns errs.Conflict.
func AddDefinition(tx *store.Tx, d Definition) error { return store.Insert(tx, "", d) }

// GetDefinition returns a version of a stored workflow, 0 for the newest one, or errs.NotFound.
func GetDefinition(from store.Source, name string, version int64) (Definition, error) {
	var where filter.Clause
	where.And("name = ?", name)
	if version != 0 {
		where.And("version = ?", version)
	}
	return store.Row[Definition](from, "SELECT "+definitionColumns+" FROM workflow_definitions"+where.SQL()+" ORDER BY version DESC LIMIT 1", where.Args...)
}

// ListDefinitions returns the newest versions of up to limit stored workflows after a name, in the order of their names, without
// their plans and schemas.
func ListDefinitions(from store.Source, after string, limit int) ([]Definition, error) {
	return store.Rows[Definition](from, `SELECT name, version, description, '{}' AS plan, '' AS input_schema, created_by, created_at FROM workflow_definitions AS d
		WHERE name > ? AND version = (SELECT max(version) FROM workflow_definitions WHERE name = d.name) ORDER BY name LIMIT ?`, after, limit)
}

// DeleteDefinition deletes all versions of a stored workflow.
func DeleteDefinition(tx *store.Tx, name string) error {
	_, err := tx.Exec("DELETE FROM workflow_definitions WHERE name = ?", name)
	return err
}
