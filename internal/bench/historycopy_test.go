package bench

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const (
	templateTasks = 200 // that comet does, and whose rows are copied
	historySpan   = 20 * time.Hour
)

// databaseRows are all rows of a closed SQLite database, by table.
type databaseRows map[string]*taskTable

// taskTable is a table with some of its rows.
type taskTable struct {
	name    string
	columns []string
	rows    [][]any
}

func readRows(b *testing.B, s storage) databaseRows {
	b.Helper()
	db := s.testDatabase().raw(b, 1)
	defer func() { require.NoError(b, db.Close()) }()
	all := databaseRows{}
	for _, name := range queryColumn(b, db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
		t := &taskTable{name: name, columns: queryColumn(b, db, "SELECT name FROM pragma_table_info('"+name+"') ORDER BY cid")}
		t.read(b, db)
		all[name] = t
	}
	return all
}

func queryColumn(b *testing.B, db *sql.DB, query string) (all []string) {
	b.Helper()
	rows, err := db.QueryContext(detached(), query)
	require.NoError(b, err, query)
	defer func() { require.NoError(b, rows.Close()) }()
	for rows.Next() {
		var v string
		require.NoError(b, rows.Scan(&v))
		all = append(all, v)
	}
	require.NoError(b, rows.Err())
	return all
}

func (t *taskTable) read(b *testing.B, db *sql.DB) {
	b.Helper()
	rows, err := db.QueryContext(detached(), `SELECT "`+strings.Join(t.columns, `", "`)+`" FROM "`+t.name+`"`)
	require.NoError(b, err, t.name)
	defer func() { require.NoError(b, rows.Close()) }()
	for rows.Next() {
		row, dest := make([]any, len(t.columns)), make([]any, len(t.columns))
		for i := range row {
			dest[i] = &row[i]
		}
		require.NoError(b, rows.Scan(dest...))
		t.rows = append(t.rows, row)
	}
	require.NoError(b, rows.Err())
}

// addedRows returns the tables that have a new row for each task, with these rows.
func addedRows(b *testing.B, before, after databaseRows) (added []*taskTable) {
	b.Helper()
	for name, t := range after {
		known := map[string]bool{}
		if old := before[name]; old != nil {
			for _, row := range old.rows {
				known[fmt.Sprint(row)] = true
			}
		}
		fresh := &taskTable{name: name, columns: t.columns}
		for _, row := range t.rows {
			if !known[fmt.Sprint(row)] {
				fresh.rows = append(fresh.rows, row)
			}
		}
		if len(fresh.rows) >= templateTasks {
			added = append(added, fresh)
		}
	}
	require.NotEmpty(b, added, "no table has a row for each task")
	return added
}

// rowCopier changes the keys and times of rows, so that each copy of a task has its own keys and later
// times.
type rowCopier struct {
	known  map[uuid.UUID]bool // that belong to no task: tokens and agents
	stride int64              // difference between the integer keys of successive copies: the size of the range of keys
	copies int
	keys   map[string]bool // integer columns whose values are keys, by table and column

	number int64 // of the copy
}

// copyTasks inserts copies of rows in the order of their times and integer keys, as comet does. SQLite
// fills the pages of an index completely only if keys are inserted in ascending order.
func copyTasks(b *testing.B, s storage, before databaseRows, tables []*taskTable, copies int) {
	b.Helper()
	c := &rowCopier{known: map[uuid.UUID]bool{}, keys: map[string]bool{}, copies: copies}
	for _, t := range before {
		for _, row := range t.rows {
			c.learn(row)
		}
	}
	for _, t := range tables {
		c.findKeys(t)
	}
	db, ctx := s.testDatabase().raw(b, 1), detached()
	for _, pragma := range []string{"synchronous = OFF", "foreign_keys = OFF", "cache_size = -1000000"} {
		_, err := db.ExecContext(ctx, "PRAGMA "+pragma) // the pool has one connection
		require.NoError(b, err, pragma)
	}
	for first := int64(1); first <= int64(copies); first += 100 {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(b, err)
		for c.number = first; c.number < min(first+100, int64(copies)+1); c.number++ {
			for _, t := range tables {
				require.NoError(b, c.insert(ctx, tx, t), "the rows of %s cannot be copied", t.name)
			}
		}
		require.NoError(b, tx.Commit())
	}
	require.Empty(b, queryColumn(b, db, "SELECT DISTINCT \"table\" FROM pragma_foreign_key_check"), "copied rows refer to missing ones")
	require.NoError(b, db.Close())
}

func uuidPattern() *regexp.Regexp {
	return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
}

// learn records the UUIDs of a row that belongs to no task.
func (c *rowCopier) learn(row []any) {
	for _, v := range row {
		text, isText := v.(string)
		if !isText {
			continue
		}
		for _, id := range uuidPattern().FindAllString(text, -1) {
			c.known[uuid.MustParse(id)] = true
		}
	}
}

// findKeys finds the integer columns that are keys: almost every row has a different value, and the
// values are neither times nor large random numbers.
func (c *rowCopier) findKeys(t *taskTable) {
	for i, column := range t.columns {
		distinct := map[int64]bool{}
		for _, row := range t.rows {
			if n, ok := row[i].(int64); ok && max(n, -n) < 1<<40 {
				distinct[n] = true
			}
		}
		if len(distinct) < templateTasks*9/10 {
			continue
		}
		c.keys[t.name+"."+column] = true
		keys := slices.Collect(maps.Keys(distinct))
		c.stride = max(c.stride, slices.Max(keys)-slices.Min(keys)+1)
	}
}

// isTime reports whether a number is a time in microseconds of this century.
func isTime(n int64) bool { return n > 1e15 && n < 4e15 }

func (c *rowCopier) insert(ctx context.Context, tx *sql.Tx, t *taskTable) error {
	st, err := tx.PrepareContext(ctx, fmt.Sprintf(`INSERT INTO "%s" ("%s") VALUES (?%s)`, t.name, strings.Join(t.columns, `", "`), strings.Repeat(", ?", len(t.columns)-1)))
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	pattern, row := uuidPattern(), make([]any, len(t.columns))
	for _, original := range t.rows {
		for i, v := range original {
			row[i] = c.value(pattern, t.name+"."+t.columns[i], v)
		}
		if _, err := st.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

// value returns the value of the copy.
func (c *rowCopier) value(pattern *regexp.Regexp, column string, v any) any {
	switch v := v.(type) {
	case int64:
		if isTime(v) {
			return v + c.later().Microseconds()
		}
		if c.keys[column] {
			return v + c.number*c.stride
		}
	case string:
		return pattern.ReplaceAllStringFunc(v, func(id string) string { return c.uuid(uuid.MustParse(id)).String() })
	case []byte:
		if len(v) == len(uuid.UUID{}) {
			id := c.uuid(uuid.UUID(v))
			return id[:]
		}
	}
	return v
}

// later returns the time between the original and the copy.
func (c *rowCopier) later() time.Duration {
	return time.Duration(c.number) * (historySpan / time.Duration(c.copies))
}

// uuid returns the id of the copy: another random one, or a UUIDv7 of the copy's time.
func (c *rowCopier) uuid(id uuid.UUID) uuid.UUID {
	if c.known[id] || id == uuid.Nil {
		return id
	}
	fresh, digest := id, xxhash.New()
	_, _ = digest.Write(id[:])
	_, _ = digest.Write(binary.BigEndian.AppendUint64(nil, uint64(c.number)))
	binary.BigEndian.PutUint64(fresh[8:], digest.Sum64())
	fresh[8] = fresh[8]&0x3f | 0x80 // the variant
	if id.Version() == 7 {
		millis := binary.BigEndian.Uint64(id[:])>>16 + uint64((c.later() - historySpan).Milliseconds())
		binary.BigEndian.PutUint64(fresh[:], millis<<16|uint64(binary.BigEndian.Uint16(id[6:])))
		return fresh
	}
	_, _ = digest.Write([]byte{1})
	binary.BigEndian.PutUint64(fresh[:], digest.Sum64())
	fresh[6] = fresh[6]&0x0f | id[6]&0xf0 // the version
	return fresh
}

// databaseBytes returns the used bytes of a closed database.
func databaseBytes(b *testing.B, s storage) (bytes int64) {
	b.Helper()
	db := s.testDatabase().raw(b, 1)
	defer func() { require.NoError(b, db.Close()) }()
	query := "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
	require.NoError(b, db.QueryRowContext(detached(), query).Scan(&bytes))
	return bytes
}
