package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// reader runs queries on a transaction, a snapshot or the read pool.
type reader struct {
	store  *Store
	engine *engine
	ctx    context.Context
	conn   gorm.ConnPool
	now    time.Time // the same for everything that it reads
}

// on returns the read pool with a context.
func (s *Store) on(ctx context.Context) reader { return reader{s, s.engine, ctx, readPool{s}, s.Now()} }

// point returns a reader for a row that is read by its key. On SQLite such a read takes less time
// than the watch on a cancellable context, so it is not cancelled once it has begun.
func (r reader) point() reader {
	if r.engine.name == "sqlite" && r.ctx.Err() == nil {
		r.ctx = context.WithoutCancel(r.ctx)
	}
	return r
}

// query runs a query and calls scan for each row. In a transaction an error ends the transaction.
func (r reader) query(query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := r.conn.QueryContext(r.ctx, r.engine.bind(query), args...)
	err = eachRow(rows, err, scan)
	if c, ok := r.conn.(*txConn); ok {
		return c.fail(err)
	}
	return err
}

// queryRow scans the only row of a query; it returns errs.NotFound without one.
func (r reader) queryRow(query string, args []any, dest ...any) error {
	found := false
	err := r.query(query, args, func(rows *sql.Rows) error {
		if found {
			return nil
		}
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		err = translate(sql.ErrNoRows)
	}
	return err
}

// list returns the rows of a query. dest returns the scan targets of a row, all of which each
// row sets again.
func list[T any](from reader, query string, args []any, dest func(*T) []any) ([]T, error) {
	var row T
	out, into := []T{}, dest(&row)
	err := from.query(query, args, func(rows *sql.Rows) error {
		err := rows.Scan(into...)
		out = append(out, row)
		return err
	})
	return out, err
}

// one returns the only row of a query, or errs.NotFound.
func one[T any](from reader, query string, args []any, dest func(*T) []any) (row T, err error) {
	err = from.queryRow(query, args, dest(&row)...)
	return row, err
}

// value returns the only column of the only row of a query, or errs.NotFound.
func value[T any](from reader, query string, args ...any) (v T, err error) {
	err = from.queryRow(query, args, &v)
	return v, err
}

// listIn is list for a query that names keys as "IN (keys)", behind its other arguments.
func listIn[K, T any](from reader, keys []K, dest func(*T) []any, query string, args ...any) (out []T, err error) {
	columns, width := make([]any, 0, len(keys)), 1
	for _, key := range keys {
		if k, ok := any(key).(LedgerKey); ok {
			columns, width = append(columns, k.AgentID, k.ID), 2
		} else {
			columns = append(columns, key)
		}
	}
	err = EachKeys(columns, width, func(names string, some []any) error {
		found, err := list(from, strings.Replace(query, "(keys)", names, 1), append(slices.Clip(args), some...), dest)
		out = append(out, found...)
		return err
	})
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

// column is the scan target of rows with one column.
func column[T any](value *T) []any { return []any{value} }

// The drivers return integers as int64. database/sql would convert them by way of text for any
// other integer type, so such fields are scanned with one of the types below.

type scanInt[T ~int | ~int64] struct{ into *T }

// Scan implements sql.Scanner; NULL is 0.
func (s scanInt[T]) Scan(v any) error {
	*s.into = T(whole(v))
	return nil
}

func intInto[T ~int | ~int64](p *T) sql.Scanner { return scanInt[T]{p} }

type scanIntPtr[T int | int64] struct{ into **T }

// Scan implements sql.Scanner; NULL is nil.
func (s scanIntPtr[T]) Scan(v any) error {
	*s.into = nil
	if v != nil {
		*s.into = new(T(whole(v)))
	}
	return nil
}

func intPtrInto[T int | int64](p **T) sql.Scanner { return scanIntPtr[T]{p} }

// scanEnum reads a value that is stored as its index.
type scanEnum[T any] struct {
	into   *T
	values []T
}

// Scan implements sql.Scanner.
func (s scanEnum[T]) Scan(v any) error {
	*s.into = s.values[whole(v)]
	return nil
}

func enumInto[T any](p *T, values []T) sql.Scanner { return scanEnum[T]{p, values} }

// ScanTime scans a stored time; 0 and NULL are the zero time.
type ScanTime struct{ Into *time.Time }

// Scan implements sql.Scanner.
func (s ScanTime) Scan(v any) error {
	*s.Into = orZero(v)
	return nil
}

// scanTimePtr reads a time; NULL is nil.
type scanTimePtr struct{ into **time.Time }

// Scan implements sql.Scanner.
func (s scanTimePtr) Scan(v any) error {
	*s.into = momentOf(v)
	return nil
}

// scanJSON reads a JSON text; an empty one is nil.
type scanJSON struct{ into *json.RawMessage }

// Scan implements sql.Scanner.
func (s scanJSON) Scan(v any) error {
	*s.into = nil
	switch text := v.(type) {
	case string:
		if text != "" {
			*s.into = json.RawMessage(text)
		}
	case []byte:
		if len(text) > 0 {
			*s.into = slices.Clone(text)
		}
	}
	return nil
}

// scanStrings reads what encodeStrings has written.
type scanStrings struct{ into *[]string }

// Scan implements sql.Scanner.
func (s scanStrings) Scan(v any) (err error) {
	text, _ := v.(string)
	*s.into, err = decodeStrings(text)
	return err
}

// scanHash reads a SHA-256; NULL is zeros.
type scanHash struct{ into *[32]byte }

// Scan implements sql.Scanner.
func (s scanHash) Scan(v any) error {
	hash, _ := v.([]byte)
	*s.into = [32]byte{}
	copy(s.into[:], hash)
	return nil
}

// snapshot calls read with the database as it is now, whatever is committed meanwhile; in a
// transaction, with the transaction.
func (r reader) snapshot(read func(reader) error) error {
	if _, ok := r.conn.(*txConn); ok {
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
	r.conn = conn
	return read(r)
}
