package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"gorm.io/gorm"

	"comet/internal/errs"
	"comet/store/columns"
	"comet/store/sqlerr"
	"comet/store/txconn"
)

// selectRows returns a SELECT of all columns of a type of rows; rest follows the table.
func selectRows[T any](rest string) string { return columns.Of[T]().Selects + rest }

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
	return reader{store: s, engine: s.engine, ctx: ctx, conn: readPool{s.reads, s}, now: s.Now()}
}

// point returns a reader for a row that is read by its key. On SQLite such a read is cheaper than
// watching a cancellable context, so it is not cancelled once it has begun.
func (r reader) point() reader {
	if r.store.Alone() && r.ctx.Err() == nil {
		r.ctx = context.WithoutCancel(r.ctx)
	}
	return r
}

// query runs a query and calls scan for each row. In a transaction an error ends the transaction.
func (r reader) query(query string, args []any, scan func(*sql.Rows) error) error {
	if namesNoRow(args) {
		return nil
	}
	rows, err := r.conn.QueryContext(r.ctx, r.engine.bind(query), args...)
	err = eachRow(rows, err, scan)
	if r.state != nil {
		return r.state.conn.Fail(err)
	}
	return err
}

func eachRow(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return sqlerr.Translate(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return sqlerr.Translate(err)
		}
	}
	return sqlerr.Translate(rows.Err())
}

// each calls do for each row of a query, whose columns are those of T in order.
func each[T any](r reader, do func(T) error, query string, args ...any) error {
	var row T
	into := columns.Targets(&row)
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
	into, found := columns.Targets(&row), false
	err = r.query(query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(into...)
	})
	if err == nil && !found {
		err = sqlerr.Translate(sql.ErrNoRows)
	}
	return row, err
}

// orMissing adds a detail to errs.NotFound.
func orMissing(err error, format string, args ...any) error {
	if errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, format, args...)
	}
	return err
}

// exceptMissing returns nil for errs.NotFound.
func exceptMissing(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
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

// convert returns the result of a function for each row.
func convert[R, M any](rows []R, model func(R) M) []M {
	out := make([]M, len(rows))
	for i, r := range rows {
		out[i] = model(r)
	}
	return out
}

// create stores new rows; conflict follows their values. On PostgreSQL a later statement or the commit may
// return its error, as for run.
func create[T any](tx reader, conflict string, rows ...T) error {
	l, width := columns.Of[T](), 0
	var args []any
	for i := range rows {
		values := columns.Created(&rows[i])
		args, width = append(args, values...), len(values)
	}
	return tx.insertRows(l.Inserts, conflict, width, args)
}

// createOne stores a new row and returns the number of changed rows.
func createOne[T any](tx reader, conflict string, row T) (int64, error) {
	args := columns.Created(&row)
	return tx.exec(columns.Of[T]().Inserts+"VALUES (?"+strings.Repeat(", ?", len(args)-1)+") "+conflict, args...)
}

// update stores some columns of a row and returns the number of rows that where selects.
func update[T any](tx reader, row T, changed []string, where string, args ...any) (int64, error) {
	return tx.exec("UPDATE "+columns.Of[T]().Table+" SET "+strings.Join(changed, " = ?, ")+" = ? WHERE "+where, append(columns.Some(&row, changed), args...)...)
}

// replacing is the conflict clause of an insert that replaces columns of the rows that are there.
func replacing[T any](changed ...string) string {
	set := convert(changed, func(c string) string { return c + " = excluded." + c })
	return "ON CONFLICT (" + strings.Join(columns.Of[T]().Keys, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// snapshot calls read with the current state of the database, regardless of later commits; in a
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
		return sqlerr.Translate(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(r.ctx, r.engine.beginSnapshot); err != nil {
		return sqlerr.Translate(err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(r.ctx), rollback) }()
	r.conn = txconn.Snapshot{Conn: conn}
	return read(r)
}
