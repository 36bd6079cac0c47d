package store

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/store/columns"
)

// engine holds what the SQL of the two databases does not share.
type engine struct {
	name string
	// forUpdate and forShare are appended to a SELECT that locks its row.
	// SQLite has one writer and needs neither.
	forUpdate string
	forShare  string
	// forKeyShare conflicts only with forUpdate, not with plain updates.
	forKeyShare string
	// forNoKey locks a row for changes of all but its key; a transaction that only refers
	// to the row does not wait.
	forNoKey string
	// skipLocked skips locked rows, so that concurrent claims do not wait for each other.
	skipLocked string
	// noIndex before a column keeps the planner from choosing an index by it.
	noIndex string
	// joinInOrder joins two tables and makes the planner read the left one first.
	joinInOrder string
	// contains is a function that is positive if its first argument contains the second.
	contains string
	// in is the condition after a column, with Keys as its argument; inPairs is the condition after
	// two columns, with keyPairs. A statement is the same for any number of keys.
	in, inPairs string
	// keys selects the values of Keys, the argument.
	keys string
	// childList makes a JSON array of {id, level} of a subquery's rows.
	childList string
	// array makes a JSON array of its arguments.
	array string
	// detail is detailQuery.
	detail string
	// beginSnapshot begins a transaction whose reads see one snapshot.
	beginSnapshot string
	// joinsValues is set if an UPDATE finds the rows of a list of values by an index.
	// SQLite would read the whole table, but single statements are cheap there.
	joinsValues bool
	// asArrays returns a source of rows with one placeholder per column, and the columns;
	// ok is false if the rows must be passed one by one.
	asArrays func(width int, args []any) (source string, columns []any, ok bool)
	numbered bool // placeholders are $1, $2, …
}

func sqliteEngine() *engine {
	e := &engine{
		name:          "sqlite",
		noIndex:       "+",
		beginSnapshot: "BEGIN DEFERRED",
		joinInOrder:   "CROSS JOIN",
		contains:      "instr",
		keys:          "SELECT value FROM json_each(?)",
		in:            "IN (SELECT value FROM json_each(?))",
		inPairs:       "IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))",
		childList:     "json_group_array(json_object('id', id, 'level', level))",
		array:         "json_array",
		asArrays:      func(int, []any) (string, []any, bool) { return "", nil, false },
	}
	e.detail = detailQuery(e)
	return e
}

func postgresEngine() *engine {
	e := &engine{
		name:          "postgres",
		forUpdate:     " FOR UPDATE",
		forShare:      " FOR SHARE",
		forKeyShare:   " FOR KEY SHARE",
		forNoKey:      " FOR NO KEY UPDATE",
		skipLocked:    " FOR UPDATE SKIP LOCKED",
		joinInOrder:   "JOIN",
		contains:      "strpos",
		keys:          "SELECT json_array_elements_text(?)",
		in:            "= ANY (ARRAY(SELECT json_array_elements_text(?)))",
		inPairs:       "IN (SELECT pair ->> 0, pair ->> 1 FROM json_array_elements(?) AS pair)",
		childList:     "coalesce(json_agg(json_build_object('id', id, 'level', level)), '[]')",
		beginSnapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		joinsValues:   true,
		asArrays:      columns.Arrays,
		array:         "json_build_array",
		numbered:      true,
	}
	e.detail = detailQuery(e)
	return e
}

// bind turns ? placeholders into the database's own. None of our statements has
// a question mark in a literal.
func (d *engine) bind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	n := 0
	for i := range len(query) {
		if query[i] != '?' {
			b.WriteByte(query[i])
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// Packages that own tables, such as those of a protocol, run their statements with the functions
// below. Placeholders are question marks on both databases; errors are those of package errs.

// Source is the source of reads: a transaction or the read pool.
type Source interface{ source() reader }

func (r reader) source() reader { return r }

// Reads returns the read pool with a context.
func (s *Store) Reads(ctx context.Context) Source { return s.on(ctx) }

// Rows returns the rows of a query, whose columns are the fields of T in order, or the only column.
func Rows[T any](from Source, query string, args ...any) ([]T, error) {
	return list[T](from.source(), query, args...)
}

// Row returns the first row of a query as Rows does, or errs.NotFound.
func Row[T any](from Source, query string, args ...any) (T, error) {
	return one[T](from.source(), query, args...)
}

// Each calls do for each row of a query, as Rows returns them.
func Each[T any](from Source, do func(T) error, query string, args ...any) error {
	return each(from.source(), do, query, args...)
}

// Snapshot calls read with the state of the database at one moment.
func (s *Store) Snapshot(ctx context.Context, read func(Source) error) error {
	return s.on(ctx).snapshot(func(at reader) error { return read(at) })
}

// Insert stores new rows in the table that T names; conflict follows their values.
func Insert[T any](tx *Tx, conflict string, rows ...T) error {
	return create(tx.reader, conflict, rows...)
}

// In returns the condition that follows a column, with Keys as its argument.
func In(from Source) string { return from.source().engine.in }

// ForUpdate returns the clause at the end of a SELECT that locks its rows.
func ForUpdate(tx *Tx) string { return tx.engine.forUpdate }

// InsertRows inserts rows of width columns with "head VALUES (…), … tail". args contains the values
// row by row; a column has values of one type.
func (tx *Tx) InsertRows(head, tail string, width int, args []any) error {
	return tx.insertRows(head, tail, width, args)
}

// Exec runs a statement and returns the number of affected rows.
func (tx *Tx) Exec(query string, args ...any) (int64, error) { return tx.exec(query, args...) }

// Run is Exec without the number of rows. On PostgreSQL a later statement or the commit may return its error.
func (tx *Tx) Run(query string, args ...any) error { return tx.run(query, args...) }

// Limits of transactions that change many rows, so that other writers do not wait long.
const (
	batchRows  = 1000 // rows that a transaction of Repeat may change
	purgeRows  = 100  // rows that a transaction of InBatches may change
	purgePause = 9    // pause after such a transaction, as a multiple of its duration
	maxPause   = time.Second
)

type step = func(tx *Tx, limit int) (int64, error)

// Repeat runs a step in one transaction after another until it changes fewer than limit rows. It
// returns the total number of changed rows.
func (s *Store) Repeat(ctx context.Context, do step) (total int64, err error) {
	for n := int64(batchRows); err == nil && n >= batchRows; total += n {
		n, _, err = s.writeStep(ctx, do, batchRows)
	}
	return total, err
}

// InBatches is Repeat for each step of a purge in turn, without the total. A pause follows each
// transaction, and the purges of a process take turns: they use about a tenth of the writer's time.
func (s *Store) InBatches(ctx context.Context, steps ...step) (err error) {
	for _, do := range steps {
		for n := int64(purgeRows); n >= purgeRows; {
			if err := s.purging.Acquire(ctx, 1); err != nil {
				return err
			}
			var took time.Duration
			if n, took, err = s.writeStep(ctx, do, purgeRows); err == nil {
				err = s.pause(ctx, min(purgePause*took, maxPause))
			}
			s.purging.Release(1)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// writeStep runs a step in a transaction and returns the number of changed rows and its duration.
func (s *Store) writeStep(ctx context.Context, do step, limit int) (n int64, took time.Duration, err error) {
	var begun time.Time
	err = s.Write(ctx, func(tx *Tx) (err error) {
		begun = s.clock()
		n, err = do(tx, limit)
		return err
	})
	if err != nil {
		n = 0
	}
	return n, s.clock().Sub(begun), err
}

// Keys are the argument of a statement about the rows with these keys. Without keys the statement is not
// run and affects no row, so Row returns errs.NotFound.
type Keys []string

// keyPairs are Keys of two columns.
type keyPairs [][2]string

// namesNoRow reports whether an argument of a statement has no keys.
func namesNoRow(args []any) bool {
	return slices.ContainsFunc(args, func(arg any) bool {
		switch keys := arg.(type) {
		case Keys:
			return len(keys) == 0
		case keyPairs:
			return len(keys) == 0
		}
		return false
	})
}

const (
	// maxRows is the maximum number of rows of one INSERT. Inserts are cut into powers of two, so
	// that the statement caches hold them.
	maxRows = 128
	// maxArray is the maximum if the database accepts columns as arrays.
	maxArray = 1000
)

// insertRows runs "head VALUES (?, …), … tail" for all rows. args contains the values
// row by row, width values per row. A column has values of one type.
func (r reader) insertRows(head, tail string, width int, args []any) error {
	if err := columns.Values(args); err != nil || len(args) == 0 {
		return err
	}
	row := "(?" + strings.Repeat(", ?", width-1) + ")"
	for len(args) > 0 {
		group := args[:min(len(args), maxArray*width)]
		if source, columns, ok := r.engine.asArrays(width, group); ok {
			if err := r.run(head+" SELECT * FROM "+source+" "+tail, columns...); err != nil {
				return err
			}
			args = args[len(group):]
			continue
		}
		n := maxRows
		for n*width > len(args) {
			n /= 2
		}
		query := head + " VALUES " + row + strings.Repeat(", "+row, n-1) + " " + tail
		if err := r.run(query, args[:n*width]...); err != nil {
			return err
		}
		args = args[n*width:]
	}
	return nil
}

// jsonText returns the text of a JSON column that is never empty: null for none.
func jsonText(data []byte) string {
	if len(data) == 0 {
		return "null"
	}
	return string(data)
}

// hour returns the number of the hour of t since 1970 UTC.
func hour(t time.Time) int64 { return t.Unix() / 3600 }
