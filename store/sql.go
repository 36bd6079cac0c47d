package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// engine holds what the SQL of the two databases does not share.
type engine struct {
	name string
	// forUpdate and forShare are appended to a SELECT that locks its row.
	// SQLite has one writer and needs neither.
	forUpdate string
	forShare  string
	// forKeyShare only keeps out those who lock with forUpdate, not plain updates.
	forKeyShare string
	// forNoKey locks a row for changes of all but its key; a transaction that only refers
	// to the row does not wait.
	forNoKey string
	// skipLocked lets several claimers pass each other.
	skipLocked string
	// noIndex before a column keeps the planner from choosing an index by it.
	noIndex string
	// joinInOrder joins two tables of which the left one leads.
	joinInOrder string
	// contains is true where the second argument is part of the first.
	contains func(column string) string
	// childList makes a JSON array of {id, level} of a subquery's rows.
	childList string
	// beginSnapshot begins a transaction that reads one moment.
	beginSnapshot string
	// joinsValues is set where an UPDATE finds the rows of a list of values by their
	// index; SQLite reads the whole table, and a statement costs it little.
	joinsValues bool
	// isTrue and isFalse test a boolean column.
	isTrue  func(column string) string
	isFalse func(column string) string
	// asArrays returns a source of rows whose placeholders take a whole column each, and
	// the columns; ok is false where rows have to be given one by one.
	asArrays func(width int, args []any) (source string, columns []any, ok bool)
	numbered bool // placeholders are $1, $2, …
}

func sqliteEngine() *engine {
	return &engine{
		name:          "sqlite",
		noIndex:       "+",
		beginSnapshot: "BEGIN DEFERRED",
		joinInOrder:   "CROSS JOIN",
		contains:      func(c string) string { return "instr(" + c + ", ?) > 0" },
		isTrue:        func(c string) string { return c + " = 1" },
		isFalse:       func(c string) string { return c + " = 0" },
		childList:     "json_group_array(json_object('id', id, 'level', level))",
		asArrays:      func(int, []any) (string, []any, bool) { return "", nil, false },
	}
}

func postgresEngine() *engine {
	return &engine{
		name:          "postgres",
		forUpdate:     " FOR UPDATE",
		forShare:      " FOR SHARE",
		forKeyShare:   " FOR KEY SHARE",
		forNoKey:      " FOR NO KEY UPDATE",
		skipLocked:    " FOR UPDATE SKIP LOCKED",
		joinInOrder:   "JOIN",
		contains:      func(c string) string { return "strpos(" + c + ", ?) > 0" },
		childList:     "coalesce(json_agg(json_build_object('id', id, 'level', level)), '[]')",
		isTrue:        func(c string) string { return c },
		isFalse:       func(c string) string { return "NOT " + c },
		beginSnapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		joinsValues:   true,
		asArrays:      unnest,
		numbered:      true,
	}
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

// Packages that own tables, such as those of a protocol, run their statements with the methods
// below. Placeholders are question marks on both databases; errors are those of package errs.

// Exec runs a statement and returns the number of affected rows.
func (tx *Tx) Exec(query string, args ...any) (int64, error) { return tx.exec(query, args...) }

// QueryRow runs a query and scans its only row; without one it returns errs.NotFound.
func (tx *Tx) QueryRow(query string, args []any, dest ...any) error {
	return tx.queryRow(query, args, dest...)
}

// Query runs a query and calls row for each row, which reads its columns with scan.
func (tx *Tx) Query(query string, args []any, row func(scan func(dest ...any) error) error) error {
	return tx.query(query, args, func(rows *sql.Rows) error { return row(rows.Scan) })
}

// InsertRows inserts rows of width columns with "head VALUES (…), … tail". args holds the values of
// one row after the other; a column has values of one type.
func (tx *Tx) InsertRows(head, tail string, width int, args []any) error {
	return tx.insertRows(head, tail, width, args)
}

// QueryRow runs a query on the read pool and scans its only row; without one it returns
// errs.NotFound.
func (s *Store) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return s.on(ctx).queryRow(query, args, dest...)
}

// Query runs a query on the read pool and calls row for each row, which reads its columns with scan.
func (s *Store) Query(ctx context.Context, query string, args []any, row func(scan func(dest ...any) error) error) error {
	return s.on(ctx).query(query, args, func(rows *sql.Rows) error { return row(rows.Scan) })
}

// batchRows is the number of rows that one transaction of InBatches may change: other writers must
// not wait long.
const batchRows = 1000

// InBatches calls do, each time in a transaction of its own and with the number of rows that it may
// change, until do changes fewer. It returns the number of all.
func (s *Store) InBatches(ctx context.Context, do func(tx *Tx, limit int) (int64, error)) (total int64, err error) {
	for {
		var n int64
		err := s.Write(ctx, func(tx *Tx) (err error) {
			n, err = do(tx, batchRows)
			return err
		})
		if err != nil {
			return total, err
		}
		if total += n; n < batchRows {
			return total, nil
		}
	}
}

// Statements over many rows come in few sizes, so that the statement caches hold
// them: an insert is cut into powers of two, a list of keys is filled up to one. Where
// a database takes columns as arrays, one insert is for any number of rows.

const (
	// maxRows is how many rows one statement takes.
	maxRows = 128
	// maxArray is how many it takes as arrays.
	maxArray = 1000
)

// insertRows runs "head VALUES (?, …), … tail" over all rows, whose values lie one
// after the other in args, width values a row. A column has values of one type.
func (tx *transaction) insertRows(head, tail string, width int, args []any) error {
	row := "(?" + strings.Repeat(", ?", width-1) + ")"
	for len(args) > 0 {
		group := args[:min(len(args), maxArray*width)]
		if source, columns, ok := tx.engine.asArrays(width, group); ok {
			if _, err := tx.exec(head+" SELECT * FROM "+source+" "+tail, columns...); err != nil {
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
		if _, err := tx.exec(query, args[:n*width]...); err != nil {
			return err
		}
		args = args[n*width:]
	}
	return nil
}

// execIn runs a statement that names keys as "IN (keys)", behind its other arguments, and returns
// the number of affected rows.
func (tx *transaction) execIn(keys []string, query string, args ...any) (total int64, err error) {
	err = EachKeys(anys(keys), 1, func(names string, some []any) error {
		n, err := tx.exec(strings.Replace(query, "(keys)", names, 1), append(slices.Clip(args), some...)...)
		total += n
		return err
	})
	return total, err
}

// EachKeys calls do for the keys in groups that one statement can take, with the placeholders of a
// list and its arguments. keys holds the width columns of one key after the other.
func EachKeys(keys []any, width int, do func(list string, args []any) error) error {
	row := "?"
	if width > 1 {
		row = "(?" + strings.Repeat(", ?", width-1) + ")"
	}
	for len(keys) > 0 {
		group := keys[:min(len(keys), maxRows*width)]
		keys = keys[len(group):]
		n := 1
		for n*width < len(group) {
			n *= 2
		}
		args := append(make([]any, 0, n*width), group...)
		for len(args) < n*width { // the last key again
			args = append(args, group[len(group)-width:]...)
		}
		list := "(" + row + strings.Repeat(", "+row, n-1) + ")"
		if width > 1 {
			list = "(VALUES " + row + strings.Repeat(", "+row, n-1) + ")"
		}
		if err := do(list, args); err != nil {
			return err
		}
	}
	return nil
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// Micros returns a time as it is stored: whole microseconds since 1970, UTC.
func Micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// hour is the number of the hour t lies in, since 1970 UTC.
func hour(t time.Time) int64 { return t.Unix() / 3600 }

// nullable passes a pointer's value to the driver, nil as NULL.
func nullable[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// encodeStrings makes the JSON array that decodeStrings reads; nil is an empty one.
func encodeStrings(list []string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// decodeStrings reads a JSON array of strings as encodeStrings writes it. Without
// escapes, which is the common case, every quotation mark is one around a string,
// and cutting the text up is ten times faster than a decoder.
func decodeStrings(s string) ([]string, error) {
	if s == "[]" {
		return []string{}, nil
	}
	if inner, ok := strings.CutPrefix(s, `["`); ok && !strings.Contains(inner, `\`) {
		if inner, ok := strings.CutSuffix(inner, `"]`); ok {
			if list := strings.Split(inner, `","`); strings.Count(inner, `"`) == 2*(len(list)-1) {
				return list, nil
			}
		}
	}
	var out []string
	err := json.Unmarshal([]byte(s), &out)
	return out, err
}

// whole returns a whole number that a driver filled into an interface, 0 for NULL.
func whole(v any) int64 {
	n, _ := v.(int64)
	return n
}

// inList returns the placeholders of an IN list and their arguments.
func inList[T ~string](values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	return "(?" + strings.Repeat(", ?", len(values)-1) + ")", args
}

// StorableText returns text that both databases can store: at most limit bytes of valid UTF-8
// without NUL.
func StorableText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// momentOf is the time in a column that a driver filled into an interface, nil for NULL.
func momentOf(v any) *time.Time {
	if v == nil {
		return nil
	}
	return new(fromMicros(whole(v)))
}

// orZero reads a time of which 0 is none.
func orZero(v any) time.Time {
	if us := whole(v); us != 0 {
		return fromMicros(us)
	}
	return time.Time{}
}

// orNone is what orZero reads.
func orNone(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return Micros(t)
}

func microsPtr(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(Micros(*t))
}
