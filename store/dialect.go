package store

import (
	"strconv"
	"strings"
)

// dialect is what the SQL of the two databases does not share.
type dialect struct {
	name string
	// forUpdate and forShare are appended to a SELECT that locks its row.
	// SQLite has one writer and needs neither.
	forUpdate string
	forShare  string
	// forKeyShare only keeps out those who lock with forUpdate, not plain updates.
	forKeyShare string
	// forNoKey locks a row for changes of all but its key: whoever only refers to it need
	// not wait.
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
	// lockAgents lets one transaction change agents and the others only read them.
	lockAgents string
	// lockTokens lets one transaction at a time decide who may administer.
	lockTokens string
	// lockWebhooks lets one transaction at a time add a webhook.
	lockWebhooks string
	// beginSnapshot begins a transaction that reads one moment.
	beginSnapshot string
	// lockChains and shareChains are the two sides of the lock in chains.go.
	lockChains  string
	shareChains string
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

func sqliteDialect() dialect {
	return dialect{
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

func postgresDialect() dialect {
	return dialect{
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
		lockAgents:    "LOCK TABLE agents IN EXCLUSIVE MODE",
		lockTokens:    "SELECT pg_advisory_xact_lock(7165361)",
		lockWebhooks:  "SELECT pg_advisory_xact_lock(7165363)",
		beginSnapshot: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
		lockChains:    "SELECT pg_advisory_xact_lock(7165362)",
		shareChains:   "SELECT pg_advisory_xact_lock_shared(7165362)",
		joinsValues:   true,
		asArrays:      unnest,
		numbered:      true,
	}
}

// bind turns ? placeholders into the database's own. None of our statements has
// a question mark in a literal.
func (d dialect) bind(query string) string {
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
