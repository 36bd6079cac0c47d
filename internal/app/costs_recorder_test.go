package app_test

import (
	"context"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"comet/internal/requestid"
	"comet/store/storetest"
)

// statement is one SQL statement in normal form.
type statement struct {
	verb   string   // SELECT, INSERT, UPSERT, UPDATE, DELETE or LOCK
	tables []string // the table that is written, or those that are read
	rows   int64    // written
}

func (s statement) writes() bool { return s.verb != "SELECT" && s.verb != "LOCK" }

// shape returns the statement without the number of rows.
func (s statement) shape() string {
	return strings.TrimSpace(s.verb + " " + strings.Join(s.tables, ", "))
}

// transaction is one call of store.Write. On SQLite concurrent callers share a commit; each has a
// context, and each counts as one transaction.
type transaction struct {
	request    string // the id of the request that caused it, "" for none
	statements []statement
	rolledBack bool
	protocol   bool // a protocol began it
}

// touches reports whether the transaction has a statement of a shape, for example "INSERT jobs".
func (tx transaction) touches(shape string) bool {
	return slices.ContainsFunc(tx.statements, func(s statement) bool { return s.shape() == shape })
}

// entry is one recorded transaction, or a read outside of transactions.
type entry struct {
	transaction
	read bool
}

// recorder groups the statements of a server into transactions. Reads outside of a transaction
// count only if they belong to an operation: those of the measured request, and those of a protocol
// for a message. All others belong to poll loops, whose number varies.
type recorder struct {
	mu       sync.Mutex
	request  string // the id of the request that is measured
	open     map[int64]*batch
	snapshot map[int64]bool // connections with a transaction that only reads
	entries  []entry
}

// batch is an open transaction of a connection.
type batch struct {
	members []*transaction
	current *transaction
	caller  context.Context // of current
}

func newRecorder() *recorder {
	return &recorder{open: map[int64]*batch{}, snapshot: map[int64]bool{}}
}

// record adds one statement; it is the argument of storetest.Statements.
func (r *recorder) record(s storetest.Statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.open[s.Connection]
	switch query := strings.TrimSpace(s.Query); {
	case query == "BEGIN DEFERRED", query == "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY":
		r.snapshot[s.Connection] = true
	case r.snapshot[s.Connection] && query == "ROLLBACK":
		delete(r.snapshot, s.Connection)
	case query == "BEGIN", query == "BEGIN IMMEDIATE":
		r.open[s.Connection] = &batch{}
	case query == "COMMIT", query == "ROLLBACK":
		delete(r.open, s.Connection)
		if b != nil {
			r.end(b, query == "ROLLBACK" || s.Err != nil)
		}
	case query == "SAVEPOINT member", query == "RELEASE member":
		b.current = nil
	case query == "ROLLBACK TO member":
		if b.current != nil {
			b.current.rolledBack = true
		}
	default:
		r.add(b, s)
	}
}

// add adds a statement to the transaction of its connection, or as a single read.
func (r *recorder) add(b *batch, s storetest.Statement) {
	id, normal := requestid.From(s.Context), normalised(s.Query, s.Rows)
	if b == nil {
		if id != "" && id == r.request || id == "" && byProtocol() {
			r.entries = append(r.entries, entry{transaction{request: id, statements: []statement{normal}}, true})
		}
		return
	}
	if b.current == nil || b.caller != s.Context {
		b.current, b.caller = &transaction{protocol: byProtocol()}, s.Context
		b.members = append(b.members, b.current)
	}
	b.current.request = id
	b.current.statements = append(b.current.statements, normal)
}

func (r *recorder) end(b *batch, rolledBack bool) {
	for _, tx := range b.members {
		if tx.touches("UPSERT replicas") { // this process shows once a second that it is alive
			continue
		}
		if tx.request == "" && !tx.protocol && !slices.ContainsFunc(tx.statements, statement.writes) { // a poll that finds nothing to do
			continue
		}
		tx.rolledBack = tx.rolledBack || rolledBack
		r.entries = append(r.entries, entry{*tx, false})
	}
}

// begin clears the recording and counts the reads of a request from now on.
func (r *recorder) begin(request string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.request, r.entries = request, nil
}

// recorded returns the entries since begin.
func (r *recorder) recorded() []entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.entries)
}

// settled reports whether no transaction is open and every written event has its position, which
// it has from the start if relayed is not set. The commit of an open transaction may already be
// visible.
func (r *recorder) settled(relayed bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, inserted := committedIn(r.entries, "INSERT events")
	_, numbered := committedIn(r.entries, "UPDATE events")
	return len(r.open) == 0 && (inserted == numbered || !relayed)
}

// committed returns the number of committed transactions since begin that have a statement of a
// shape, and the rows that these statements wrote.
func (r *recorder) committed(shape string) (transactions, rows int64) {
	return committedIn(r.recorded(), shape)
}

func committedIn(entries []entry, shape string) (transactions, rows int64) {
	for _, e := range entries {
		if e.read || e.rolledBack || !e.touches(shape) {
			continue
		}
		transactions++
		for _, s := range e.statements {
			if s.shape() == shape {
				rows += s.rows
			}
		}
	}
	return transactions, rows
}

// byProtocol reports whether a protocol makes the call.
func byProtocol() bool {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "comet/internal/protocol/") {
			return true
		}
		if !more {
			return false
		}
	}
}

var (
	literals = regexp.MustCompile(`'[^']*'`)
	tokens   = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*|[(),]`)
	advisory = regexp.MustCompile(`pg_advisory_\w+`)
)

// normalised returns the verb of a statement with its tables.
func normalised(query string, rows int64) statement {
	text := literals.ReplaceAllString(query, "")
	if advisory.MatchString(text) {
		return statement{verb: "LOCK", tables: []string{"advisory"}}
	}
	all := tokens.FindAllString(text, -1)
	verb, at := mainVerb(all)
	s := statement{verb: verb, rows: rows}
	switch verb {
	case "INSERT", "DELETE": // INTO, FROM
		s.tables = []string{all[at+2]}
		if strings.Contains(text, "DO UPDATE") {
			s.verb = "UPSERT"
		}
	case "UPDATE":
		s.tables = []string{all[at+1]}
	case "LOCK": // TABLE
		s.tables = []string{all[at+2]}
	case "SELECT":
		s.tables, s.rows = readTables(all), 0
	}
	return s
}

// mainVerb returns the verb of a statement, after a WITH clause if there is one, and its index.
func mainVerb(all []string) (verb string, at int) {
	depth := 0
	for i, word := range all {
		switch upper := strings.ToUpper(word); upper {
		case "(":
			depth++
		case ")":
			depth--
		case "SELECT", "INSERT", "UPDATE", "DELETE", "LOCK":
			if depth == 0 {
				return upper, i
			}
		}
	}
	return strings.ToUpper(all[0]), 0
}

// readTables returns the tables after FROM and JOIN, each once, without names defined by WITH and
// without functions.
func readTables(all []string) (tables []string) {
	defined := map[string]bool{}
	for i := 0; i+2 < len(all); i++ {
		if strings.EqualFold(all[i+1], "AS") && (all[i+2] == "(" || strings.EqualFold(all[i+2], "MATERIALIZED")) {
			defined[all[i]] = true
		}
	}
	for i := 0; i+1 < len(all); i++ {
		name := all[i+1]
		isFunction := i+2 < len(all) && all[i+2] == "("
		if upper := strings.ToUpper(all[i]); upper != "FROM" && upper != "JOIN" || name == "(" || isFunction || defined[name] || slices.Contains(tables, name) {
			continue
		}
		tables = append(tables, name)
	}
	return tables
}
