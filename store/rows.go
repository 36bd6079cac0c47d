package store

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Statements written by hand and gorm share one description of a table: gorm's schema of the Go
// type of its rows. A struct has one column for each field, in snake case.

// layout is what statements need to know of a type of rows.
type layout struct {
	table   string
	columns []string
	fields  []*schema.Field // of the columns
	created []*schema.Field // those that an INSERT sets
	byName  map[string]*schema.Field
	keys    []string
	// selects is "SELECT columns FROM table ", inserts "INSERT INTO table (columns) ".
	selects, inserts string
}

//nolint:gochecknoglobals // caches of what never changes
var layouts, schemas sync.Map

// layoutOf returns the layout of a type of rows. A mistake in a type is a mistake of the program.
func layoutOf[T any]() *layout {
	t := reflect.TypeFor[T]()
	if known, ok := layouts.Load(t); ok {
		return known.(*layout)
	}
	s, err := schema.Parse(new(T), &schemas, tableNames{})
	if err != nil {
		panic(fmt.Sprintf("the columns of %s: %v", t, err))
	}
	l := &layout{table: s.Table, byName: s.FieldsByDBName, keys: s.PrimaryFieldDBNames}
	var created []string
	for _, f := range s.Fields {
		if f.DBName == "" {
			continue
		}
		l.columns, l.fields = append(l.columns, f.DBName), append(l.fields, f)
		if f.Creatable {
			l.created, created = append(l.created, f), append(created, f.DBName)
		}
	}
	l.selects = "SELECT " + strings.Join(l.columns, ", ") + " FROM " + l.table + " "
	l.inserts = "INSERT INTO " + l.table + " (" + strings.Join(created, ", ") + ") "
	layouts.Store(t, l)
	return l
}

// selectRows returns a SELECT of all columns of a type of rows; rest follows the table.
func selectRows[T any](rest string) string { return layoutOf[T]().selects + rest }

// columnsOf returns the columns of a type of rows, as a list.
func columnsOf[T any]() string { return strings.Join(layoutOf[T]().columns, ", ") }

// targetsOf returns the scan targets of a row: of each field of a struct, or of a single value.
func targetsOf[T any](row *T) []any {
	value := reflect.ValueOf(row).Elem()
	if value.Kind() != reflect.Struct || value.Type() == reflect.TypeFor[time.Time]() {
		return []any{target(row)}
	}
	l := layoutOf[T]()
	out := make([]any, len(l.fields))
	for i, f := range l.fields {
		out[i] = target(f.ReflectValueOf(context.Background(), value).Addr().Interface())
	}
	return out
}

// reader runs queries on a transaction, a snapshot or the read pool.
type reader struct {
	store  *Store
	engine *engine
	ctx    context.Context
	conn   gorm.ConnPool
	now    time.Time    // the same for everything that it reads
	state  *transaction // nil outside a transaction
}

// on returns the read pool with a context.
func (s *Store) on(ctx context.Context) reader {
	return reader{store: s, engine: s.engine, ctx: ctx, conn: readPool{s}, now: s.Now()}
}

// point returns a reader for a row that is read by its key. On SQLite such a read takes less time
// than the watch on a cancellable context, so it is not cancelled once it has begun.
func (r reader) point() reader {
	if r.store.Alone() && r.ctx.Err() == nil {
		r.ctx = context.WithoutCancel(r.ctx)
	}
	return r
}

// query runs a query and calls scan for each row. In a transaction an error ends the transaction.
func (r reader) query(query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := r.conn.QueryContext(r.ctx, r.engine.bind(query), args...)
	err = eachRow(rows, err, scan)
	if r.state != nil {
		return r.state.conn.fail(err)
	}
	return err
}

func eachRow(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return translate(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return translate(err)
		}
	}
	return translate(rows.Err())
}

// each calls do for each row of a query, whose columns are those of T in order.
func each[T any](r reader, do func(T) error, query string, args ...any) error {
	var row T
	into := targetsOf(&row)
	return r.query(query, args, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		return do(row)
	})
}

// list returns the rows of a query, whose columns are those of T in order.
func list[T any](r reader, query string, args ...any) ([]T, error) {
	out := []T{}
	err := each(r, func(row T) error {
		out = append(out, row)
		return nil
	}, query, args...)
	return out, err
}

// one returns the first row of a query, or errs.NotFound.
func one[T any](r reader, query string, args ...any) (row T, err error) {
	into, found := targetsOf(&row), false
	err = r.query(query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(into...)
	})
	if err == nil && !found {
		err = translate(sql.ErrNoRows)
	}
	return row, err
}

// sums returns the rows of a query of (agent, sum).
func sums(r reader, query string, args ...any) (map[string]int64, error) {
	type sum struct {
		AgentID string
		Tokens  int64
	}
	out := map[string]int64{}
	err := each(r, func(s sum) error {
		out[s.AgentID] = s.Tokens
		return nil
	}, query, args...)
	return out, err
}

// byKey returns a map of rows.
func byKey[K comparable, T any](rows []T, key func(T) K) map[K]T {
	out := make(map[K]T, len(rows))
	for _, row := range rows {
		out[key(row)] = row
	}
	return out
}

// convert returns what a function makes of each row.
func convert[R, M any](rows []R, model func(R) M) []M {
	out := make([]M, len(rows))
	for i, r := range rows {
		out[i] = model(r)
	}
	return out
}

// create stores new rows; conflict follows their values.
func create[T any](tx reader, conflict string, rows ...T) error {
	l := layoutOf[T]()
	args := make([]any, 0, len(l.created)*len(rows))
	for i := range rows {
		row := reflect.ValueOf(&rows[i]).Elem()
		for _, f := range l.created {
			args = append(args, f.ReflectValueOf(tx.ctx, row).Interface())
		}
	}
	return tx.insertRows(l.inserts, conflict, len(l.created), args)
}

// createOne stores a new row and returns how many rows it has changed.
func createOne[T any](tx reader, conflict string, row T) (int64, error) {
	l, value := layoutOf[T](), reflect.ValueOf(&row).Elem()
	args := make([]any, len(l.created))
	for i, f := range l.created {
		args[i] = f.ReflectValueOf(tx.ctx, value).Interface()
	}
	return tx.exec(l.inserts+"VALUES (?"+strings.Repeat(", ?", len(args)-1)+") "+conflict, args...)
}

// update stores some columns of a row and returns the number of rows that where selects.
func update[T any](tx reader, row T, columns []string, where string, args ...any) (int64, error) {
	l, value := layoutOf[T](), reflect.ValueOf(&row).Elem()
	values := make([]any, 0, len(columns)+len(args))
	for _, c := range columns {
		values = append(values, l.byName[c].ReflectValueOf(tx.ctx, value).Interface())
	}
	return tx.exec("UPDATE "+l.table+" SET "+strings.Join(columns, " = ?, ")+" = ? WHERE "+where, append(values, args...)...)
}

// replacing is the conflict clause of an insert that replaces columns of the rows that are there.
func replacing[T any](columns ...string) string {
	set := convert(columns, func(c string) string { return c + " = excluded." + c })
	return "ON CONFLICT (" + strings.Join(layoutOf[T]().keys, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// columnsExcept returns the columns of a type of rows that are not in a list.
func columnsExcept[T any](excluded ...string) []string {
	return slices.DeleteFunc(slices.Clone(layoutOf[T]().columns), func(c string) bool { return slices.Contains(excluded, c) })
}

// snapshot calls read with the database as it is now, whatever is committed meanwhile; in a
// transaction, with the transaction.
func (r reader) snapshot(read func(reader) error) error {
	if r.state != nil {
		return read(r)
	}
	if err := r.store.usable(); err != nil {
		return err
	}
	conn, err := r.store.reads.Conn(r.ctx)
	if err != nil {
		return translate(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(r.ctx, r.engine.beginSnapshot); err != nil {
		return translate(err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(r.ctx), rollback) }()
	r.conn = snapshotConn{conn}
	return read(r)
}
