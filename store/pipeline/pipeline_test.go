package pipeline_test

import (
	"context"
	"database/sql"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"comet/store/pipeline"
	"comet/store/sqlerr"
	"comet/store/storetest"
)

// database is a database with one pipelined connection.
type database struct {
	*testing.T
	*sql.DB
	roundTrips atomic.Int64
}

// counted is a connection that counts round trips: reads that follow a write.
type counted struct {
	net.Conn
	wrote      atomic.Bool
	roundTrips *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(p)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.wrote.Swap(false) {
		c.roundTrips.Add(1)
	}
	return n, err
}

// onPostgres runs a test with the table n (id, twice). The constraint on id is checked at once, that on twice at the
// commit.
func onPostgres(t *testing.T, test func(*database)) {
	if !slices.Contains(storetest.Databases(), "postgres") {
		return
	}
	cfg, err := pgx.ParseConfig(storetest.EmptyPostgres(t))
	require.NoError(t, err)
	db := &database{T: t}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &counted{Conn: conn, roundTrips: &db.roundTrips}, err
	}
	db.DB = sql.OpenDB(pipeline.Connector(stdlib.GetConnector(*cfg)))
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.Exec("CREATE TABLE n (id INT PRIMARY KEY CHECK (id > 0), twice INT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)
	test(db)
}

func (db *database) begin() *sql.Tx {
	tx, err := db.Begin()
	require.NoError(db, err)
	return tx
}

// exec executes a statement without reading its number of rows.
func (db *database) exec(tx *sql.Tx, query string, args ...any) {
	_, err := tx.Exec(query, args...)
	require.NoError(db, err)
}

func (db *database) ids() (out []int) {
	rows, err := db.Query("SELECT id FROM n ORDER BY id")
	require.NoError(db, err)
	defer func() { require.NoError(db, rows.Close()) }()
	for rows.Next() {
		var id int
		require.NoError(db, rows.Scan(&id))
		out = append(out, id)
	}
	require.NoError(db, rows.Err())
	return out
}

func TestStatementsShareRoundTrips(t *testing.T) {
	onPostgres(t, func(db *database) {
		run := func(from int) int64 {
			before := db.roundTrips.Load()
			tx := db.begin()
			res, err := tx.Exec("INSERT INTO n (id) VALUES ($1), ($1 + 1)", from)
			require.NoError(t, err)
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 2, n)
			for i := range 3 {
				db.exec(tx, "INSERT INTO n (id) VALUES ($1)", from+2+i)
			}
			require.NoError(t, tx.Commit())
			return db.roundTrips.Load() - before
		}
		run(1) // prepares the statements
		require.EqualValues(t, 2, run(10), "BEGIN with the first statement, the others with COMMIT")
		require.Equal(t, []int{1, 2, 3, 4, 5, 10, 11, 12, 13, 14}, db.ids())
	})
}

func TestEmptyTransactionsHaveNoRoundTrips(t *testing.T) {
	onPostgres(t, func(db *database) {
		require.Empty(t, db.ids())
		before := db.roundTrips.Load()
		require.NoError(t, db.begin().Commit())
		require.NoError(t, db.begin().Rollback())
		require.Equal(t, before, db.roundTrips.Load())
	})
}

func TestQueriesSeeEarlierStatements(t *testing.T) {
	onPostgres(t, func(db *database) {
		tx := db.begin()
		db.exec(tx, "INSERT INTO n (id) VALUES (1)")
		db.exec(tx, "UPDATE n SET id = 2")
		var id int
		require.NoError(t, tx.QueryRow("SELECT id FROM n").Scan(&id))
		require.Equal(t, 2, id)
		require.NoError(t, tx.Rollback())
		require.Empty(t, db.ids())
	})
}

func TestManyStatementsKeepTheirOrder(t *testing.T) {
	onPostgres(t, func(db *database) {
		tx := db.begin()
		db.exec(tx, "INSERT INTO n (id, twice) VALUES (1, 0)")
		for i := range 300 {
			db.exec(tx, "UPDATE n SET twice = $1 WHERE twice = $2", i+1, i)
		}
		require.NoError(t, tx.Commit())
		var twice int
		require.NoError(t, db.QueryRow("SELECT twice FROM n").Scan(&twice))
		require.Equal(t, 300, twice)
	})
}

func TestFailures(t *testing.T) {
	const valid, invalid = "INSERT INTO n (id) VALUES (1)", "INSERT INTO n (id) VALUES (0)"
	for name, end := range map[string]func(tx *sql.Tx) error{
		"AreReturnedByCommit": (*sql.Tx).Commit,
		"AreReturnedByQueries": func(tx *sql.Tx) error {
			err := tx.QueryRow("SELECT 1").Scan(new(int))
			require.Error(t, tx.Commit(), "the error was ignored")
			return err
		},
		"AreReturnedWithTheNumberOfRows": func(tx *sql.Tx) error {
			res, err := tx.Exec("DELETE FROM n")
			if err == nil {
				_, err = res.RowsAffected()
			}
			if err != nil {
				_, again := tx.Exec(valid)
				require.Equal(t, err, again, "the transaction has failed")
				require.NoError(t, tx.Rollback())
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onPostgres(t, func(db *database) {
				tx := db.begin()
				db.exec(tx, valid)
				db.exec(tx, invalid)
				err := end(tx)
				var pg *pgconn.PgError
				require.ErrorAs(t, err, &pg)
				require.Equal(t, "23514", pg.Code)
				require.True(t, sqlerr.RolledBack(err))
				require.Empty(t, db.ids(), "nothing was stored, and the connection can be used")
			})
		})
	}
	t.Run("OfTheCommitItself", func(t *testing.T) {
		onPostgres(t, func(db *database) {
			tx := db.begin()
			db.exec(tx, "INSERT INTO n (id, twice) VALUES (1, 1), (2, 1)")
			err := tx.Commit()
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Equal(t, "23505", pg.Code)
			require.True(t, sqlerr.RolledBack(err))
			require.Empty(t, db.ids())
		})
	})
	t.Run("OfThePreparation", func(t *testing.T) {
		onPostgres(t, func(db *database) {
			for _, before := range []string{"", "SELECT 1"} {
				tx := db.begin()
				if before != "" { // the database knows the transaction
					require.NoError(t, tx.QueryRow(before).Scan(new(int)))
				}
				db.exec(tx, valid)
				db.exec(tx, "INSERT INTO missing (id) VALUES (1)")
				err := tx.Commit()
				require.ErrorContains(t, err, "42P01")
				require.True(t, sqlerr.RolledBack(err))
				require.Empty(t, db.ids())
			}
		})
	})
	t.Run("OfTheConnection", func(t *testing.T) {
		onPostgres(t, func(db *database) {
			tx := db.begin()
			_, err := tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())")
			require.NoError(t, err)
			err = tx.Commit()
			require.Error(t, err)
			require.False(t, sqlerr.RolledBack(err), "unknown: %v", err)
			require.Empty(t, db.ids(), "another connection")
		})
	})
}

func TestStatementsAreNotPreparedInATransaction(t *testing.T) {
	onPostgres(t, func(db *database) {
		tx := db.begin()
		_, err := tx.Prepare("SELECT 1") //nolint:sqlclosecheck // it fails
		require.ErrorContains(t, err, "cannot be prepared in a transaction")
		require.NoError(t, tx.Rollback())
		st, err := db.Prepare("SELECT 1")
		require.NoError(t, err)
		defer func() { require.NoError(t, st.Close()) }()
	})
}

func TestNothingIsSentAfterTheEnd(t *testing.T) {
	onPostgres(t, func(db *database) {
		tx := db.begin()
		res, err := tx.Exec("INSERT INTO n (id) VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		_, err = res.RowsAffected()
		require.ErrorIs(t, err, sql.ErrTxDone)
		require.Empty(t, db.ids())
	})
}
