package txconn

import (
	"context"
	"database/sql"

	"comet/store/columns"
)

// Snapshot is a connection of the read pool with a transaction of its own. It implements gorm.ConnPool.
type Snapshot struct{ *sql.Conn }

// QueryContext implements gorm.ConnPool.
func (c Snapshot) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := columns.Values(args); err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, query, args...)
}
