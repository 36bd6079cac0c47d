package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store/columns"
)

// ledgerQuery is a statement of the ledger, and what its plan must look like on each
// database.
type ledgerQuery struct {
	name     string
	query    string
	args     []any
	sqlite   []string
	postgres []string
	// scanned is a table that must not be read as a whole.
	scanned string
}

func ledgerQueries(on *engine) []ledgerQuery {
	now, day := time.Now().UnixMicro(), time.Now().Unix()/86400
	queries := []ledgerQuery{
		{
			name: "OverdueReservations", query: overdueQuery(), args: []any{now, 256}, scanned: "usage_reservations",
			sqlite:   []string{"SEARCH usage_reservations USING INDEX usage_reservations_due (state=? AND due<?)"},
			postgres: []string{"Index Scan using usage_reservations_due", "Index Cond: ((state = 0) AND (due <= "},
		},
		{
			name: "TheNextReservationThatIsDue", query: nextDueQuery, scanned: "usage_reservations",
			sqlite:   []string{"SEARCH usage_reservations USING COVERING INDEX usage_reservations_due (state=?)"},
			postgres: []string{"Index Only Scan using usage_reservations_due", "Index Cond: (state = 0)"},
		},
		{
			name: "WhatIsHeld", query: heldQuery, scanned: "usage_reservations",
			sqlite:   []string{"SEARCH usage_reservations USING INDEX usage_reservations_due (state=?)"},
			postgres: []string{"usage_reservations_due", "Index Cond: (state = 0)"},
		},
	}
	for n := 1; n <= maxRows; n *= 8 {
		ids, keys := make([]string, n), make([]LedgerKey, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("s-%d", i)
			keys[i] = LedgerKey{ids[i], fmt.Sprintf("r-%d", i)}
		}
		queries = append(queries, ledgerQuery{
			name: fmt.Sprintf("RequestIDs/%d", n), query: namedFacts(on), args: []any{pairs(keys)}, scanned: "usage_facts",
			sqlite:   []string{"SEARCH usage_facts USING INDEX usage_facts_request (agent_id=? AND request_id=?)"},
			postgres: []string{"Index Scan using usage_facts_request"},
		}, ledgerQuery{
			name: fmt.Sprintf("NamedReservations/%d", n), query: namedReservations(on), args: []any{pairs(keys)}, scanned: "usage_reservations",
			sqlite:   []string{"SEARCH usage_reservations USING PRIMARY KEY (agent_id=? AND id=?)"},
			postgres: []string{"Index Scan using usage_reservations_pkey"},
		}, ledgerQuery{
			name: fmt.Sprintf("AccountsToLock/%d", n), query: lockQuery(on), args: []any{ids}, scanned: "usage_accounts",
			sqlite:   []string{"SEARCH usage_accounts USING PRIMARY KEY (agent_id=?)"},
			postgres: []string{"LockRows", "usage_accounts_pkey"},
		})
	}
	for level, id := range []string{"nova", "o-1", "s-1"} {
		query, args := subtreeUsed(Spender{ID: id, Level: models.Level(level)}, day)
		q := ledgerQuery{
			name: "RollUpOf/" + id, query: query, args: args, scanned: "usage_windows",
			sqlite:   []string{"USING COVERING INDEX usage_windows_rollup (<expr>=? AND path>? AND path<?)"},
			postgres: []string{"usage_windows_rollup", "Index Cond: (((hour / 24) = ", "(path >= "},
		}
		if level == 0 { // all of the day
			q.sqlite = []string{"USING COVERING INDEX usage_windows_rollup (<expr>=?)"}
			q.postgres = []string{"usage_windows_rollup", "Index Cond: ((hour / 24) = "}
		}
		queries = append(queries, q)
	}
	return queries
}

// TestLedgerPlans reads the plans of what runs with every decision of the ledger,
// however much there is of everything.
func TestLedgerPlans(t *testing.T) {
	t.Parallel()

	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, _ := openSQLiteForTest(t)
		for _, q := range ledgerQueries(s.engine) {
			t.Run(q.name, func(t *testing.T) {
				t.Parallel()
				plan := explain(t, s, q.query, q.args)
				for _, want := range q.sqlite {
					require.Contains(t, plan, want, q.query)
				}
				require.NotContains(t, plan, "SCAN "+q.scanned, q.query)
			})
		}
	})

	if admin := os.Getenv("COMET_TEST_POSTGRES_URL"); admin != "" {
		t.Run("postgres", func(t *testing.T) {
			t.Parallel()
			s := openPostgresForPlans(t, admin)
			for _, q := range ledgerQueries(s.engine) {
				for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
					t.Run(q.name+"/"+mode, func(t *testing.T) {
						t.Parallel()
						plan := explainPostgres(t, s, mode, q.query, q.args)
						for _, want := range q.postgres {
							require.Contains(t, plan, want, q.query)
						}
						require.NotContains(t, plan, "Seq Scan on "+q.scanned, q.query)
					})
				}
			}
		})
	}
}

// openPostgresForPlans fills a database as a busy fortnight would: PostgreSQL plans by
// how much there is.
func openPostgresForPlans(t *testing.T, admin string) *Store {
	t.Helper()
	name := "comet_plans_" + uuid.NewString()[24:]
	db, err := sql.Open("pgx", admin)
	require.NoError(t, err)
	run := func(on *sql.DB, statements ...string) {
		for _, statement := range statements {
			_, err := on.ExecContext(context.Background(), statement)
			require.NoError(t, err, statement)
		}
	}
	run(db, `CREATE DATABASE "`+name+`"`)
	t.Cleanup(func() {
		run(db, `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`)
		require.NoError(t, db.Close())
	})
	at, err := url.Parse(admin)
	require.NoError(t, err)
	at.Path = "/" + name
	s, err := Open(t.Context(), Options{DatabaseURL: at.String(), MaxConnections: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	agents := `INSERT INTO agents (id, name, level, sphere_id, frequency_hz, parent_id, token_budget, created_at, updated_at, search_text) SELECT `
	run(s.reads,
		agents+`'nova', 'nova', 0, NULL, 999, NULL, NULL, 0, 0, ''`,
		agents+`'o-' || n, '', 1, n, 888, 'nova', 5000, 0, 0, '' FROM generate_series(1, 9) n`,
		agents+`'s-' || n, '', 2, 1, 555, 'o-' || 1 + n % 9, 5000, 0, 0, '' FROM generate_series(0, 1999) n`,
		`INSERT INTO usage_accounts (agent_id, level, day) SELECT 's-' || n, 2, 0 FROM generate_series(0, 19999) n`,
		`INSERT INTO usage_windows (agent_id, hour, path, tokens) SELECT id, extract(epoch FROM now())::bigint / 86400 * 24 + 23 - h * 7, 'nova/' || parent_id || '/' || id, 5
			FROM agents, generate_series(0, 39) h WHERE level = 2`,
		`INSERT INTO usage_facts (agent_id, at, id, path, tokens, model, kind, task_id, request_id, reservation_id, digest)
			SELECT id, n * 1000000, n::text, '', 5, '', '', '', CASE WHEN n % 2 = 0 THEN 'r-' || n ELSE '' END, '', '' FROM agents, generate_series(1, 40) n`,
		`INSERT INTO usage_reservations (agent_id, id, path, tokens, state, due, expires_at, created_at)
			SELECT id, 'r-' || n, 'nova/' || parent_id || '/' || id, 5, CASE WHEN n = 1 THEN 0 ELSE 1 + n % 3 END, extract(epoch FROM now())::bigint * 1000000 + n, 0, 0
			FROM agents, generate_series(1, 40) n WHERE level = 2`,
		`ANALYZE`)
	return s
}

// explainPostgres returns the plan of a prepared statement.
func explainPostgres(t *testing.T, s *Store, mode, query string, args []any) string {
	t.Helper()
	conn, err := s.reads.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, columns.Values(args))
	values := make([]string, len(args))
	for i, arg := range args {
		if values[i] = fmt.Sprint(arg); values[i] != "" {
			values[i] = "'" + values[i] + "'"
		}
	}
	name := "p" + strings.ReplaceAll(uuid.NewString(), "-", "")
	call := name
	if len(values) > 0 {
		call += "(" + strings.Join(values, ", ") + ")"
	}
	for _, statement := range []string{"SET plan_cache_mode = " + mode, "PREPARE " + name + " AS " + s.engine.bind(query)} {
		_, err := conn.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	rows, err := conn.QueryContext(t.Context(), "EXPLAIN EXECUTE "+call)
	var lines []string
	require.NoError(t, eachRow(rows, err, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		lines = append(lines, line)
		return err
	}))
	return strings.Join(lines, "\n")
}
