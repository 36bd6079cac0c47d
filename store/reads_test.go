package store

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// A statement is closed when the cache pushes it out, which may happen between
// the moment one reader takes it from the cache and the moment it runs it.
func TestAReadOutlivesItsCachedStatement(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	const query = "SELECT count(*) FROM agents"
	st, err := s.prepare(t.Context(), query)
	require.NoError(t, err)
	s.prepared.Purge()
	rows, err := s.runPrepared(t.Context(), st, query, nil)
	n := 0
	require.NoError(t, eachRow(rows, err, func(rows *sql.Rows) error { return rows.Scan(&n) }))
	require.Equal(t, 1, n)
}
