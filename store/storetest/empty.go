package storetest

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// EmptyPostgres returns the URL of a fresh database without any tables, for tests
// of a very first start; it ends with the test. PostgresEnv must be set.
func EmptyPostgres(tb testing.TB) string {
	tb.Helper()
	admin, err := url.Parse(os.Getenv(PostgresEnv))
	require.NoError(tb, err)
	db, err := sql.Open("pgx", admin.String())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	name := "comet_empty_" + uuid.NewString()[24:]
	exec(tb, db, fmt.Sprintf(`CREATE DATABASE "%s"`, name))
	tb.Cleanup(func() { exec(tb, db, fmt.Sprintf(`DROP DATABASE IF EXISTS "%s" WITH (FORCE)`, name)) })
	return withDatabase(admin, name)
}
