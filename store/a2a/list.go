package a2a

import (
	"slices"
	"strings"
	"time"

	"comet/store"
	"comet/store/filter"
)

// Filter is a state by which tasks are listed.
type Filter int

// The filters: the states of A2A.
const (
	AnyState Filter = iota
	Submitted
	Working
	InputRequired
	Completed
	Failed
	Cancelled
	Refused
	// anyOfContext is AnyState of a context, whose tasks are found without the indexes.
	anyOfContext
)

// branch selects the tasks in one state of one table. It reads an index in the order of the list.
type branch struct {
	table, where string
	filters      []Filter
}

// Conditions on the rows of a token in each table. Those on owner and state begin an index that ends with updated_at and id.
const (
	ofCore = "x.owner = ? AND x.class = 'a2a'"
	ofFlow = "x.token_id = ? AND x.source = 'a2a'"
	beside = "x.owner = ? AND x.state > 0"
	inCore = ofCore + " AND x.state = "
	inFlow = ofFlow + " AND x.state = "
	asks   = "EXISTS (SELECT 1 FROM workflow_steps AS s JOIN tasks AS t ON t.id = s.task_id WHERE s.workflow_id = x.id AND s.state = 1 AND t.waiting_for = 3)"
)

// branches are all states of all tables. Few tasks and workflows are open, so conditions on them need no index.
var branches = []branch{ //nolint:gochecknoglobals // a constant table
	{"tasks", inCore + "0", []Filter{AnyState}},
	{"tasks", inCore + "1", []Filter{AnyState}},
	{"tasks", inCore + "0 AND x.attempt = 0", []Filter{Submitted}},
	{"tasks", inCore + "0 AND x.attempt > 0", []Filter{Working}},
	{"tasks", inCore + "1 AND x.waiting_for <> 3", []Filter{Working}},
	{"tasks", inCore + "1 AND x.waiting_for = 3", []Filter{InputRequired}},
	{"tasks", inCore + "2", []Filter{AnyState, Completed}},
	{"tasks", inCore + "3", []Filter{AnyState, Failed}},
	{"tasks", inCore + "4", []Filter{AnyState, Cancelled}},
	{"workflows", inFlow + "0", []Filter{AnyState}},
	{"workflows", inFlow + "0 AND NOT " + asks, []Filter{Working}},
	{"workflows", inFlow + "0 AND " + asks, []Filter{InputRequired}},
	{"workflows", inFlow + "1", []Filter{AnyState, InputRequired}},
	{"workflows", inFlow + "2", []Filter{AnyState, Completed}},
	{"workflows", inFlow + "3", []Filter{AnyState, Cancelled}},
	{"workflows", inFlow + "4", []Filter{AnyState, Failed}},
	{"a2a_tasks", beside + " AND x.state = 1", []Filter{AnyState, InputRequired}},
	{"a2a_tasks", beside + " AND x.state = 2", []Filter{AnyState, Refused}},
	{"a2a_tasks", beside + " AND x.state = 3", []Filter{AnyState, Cancelled}},
	{"tasks", ofCore, []Filter{anyOfContext}},
	{"workflows", ofFlow, []Filter{anyOfContext}},
	{"a2a_tasks", beside, []Filter{anyOfContext}},
}

// Query selects tasks of an owner.
type Query struct {
	Owner string
	// ContextID is that of the tasks, "" for any.
	ContextID string
	State     Filter
	// After is a time at or before the change of state, zero for any.
	After time.Time
	// Cursor is the last task of the previous page, zero for the first page.
	Cursor Position
	// Total is the number of tasks on all pages as the first page counted it, 0 for that page.
	Total int
	Limit int
}

// Position is the position of a task in a list.
type Position struct {
	At time.Time
	ID string
}

// List returns the page of tasks that q selects, the last changed one first, and the number of tasks on all pages. A page costs its
// rows; the number, which only the first page counts, costs a part of an index, or the tasks of the context.
func List(from store.Source, q Query) (page []Position, total int, err error) {
	if total = q.Total; total == 0 {
		count, args := q.count()
		if total, err = store.Row[int](from, count, args...); err != nil {
			return nil, 0, err
		}
	}
	rows, args := q.page()
	page, err = store.Rows[Position](from, rows, args...)
	return page, total, err
}

func (q Query) count() (string, []any) {
	count, args := q.union("SELECT count(*) AS n", "")
	return "SELECT CAST(sum(n) AS BIGINT) FROM (" + count + ") AS counts", args
}

func (q Query) page() (string, []any) {
	rows, args := q.union("SELECT x.updated_at AS at, x.id AS id", " ORDER BY x.updated_at DESC, x.id DESC LIMIT ?")
	return "SELECT at, id FROM (" + rows + ") AS found ORDER BY at DESC, id DESC LIMIT ?", append(args, q.Limit)
}

// union returns a query of each branch that q needs, together. page is the end of the queries of a page, "" to count all tasks.
func (q Query) union(columns, page string) (string, []any) {
	var all []string
	var args []any
	if q.ContextID != "" && q.State == AnyState {
		q.State = anyOfContext
	}
	for _, b := range branches {
		if !slices.Contains(b.filters, q.State) {
			continue
		}
		var where filter.Clause
		tables := b.table + " AS x"
		if where.And(b.where, q.Owner); q.ContextID != "" { // the tasks of the context first, which CROSS JOIN makes SQLite do
			tables = "a2a_tasks AS c CROSS JOIN " + tables
			where.And("c.owner = ? AND c.context_id = ? AND x.id = c.id", q.Owner, q.ContextID)
		}
		if !q.After.IsZero() {
			where.And("x.updated_at >= ?", q.After)
		}
		if page != "" && q.Cursor.ID != "" {
			where.And("(x.updated_at, x.id) < (?, ?)", q.Cursor.At, q.Cursor.ID)
		}
		if args = append(args, where.Args...); page != "" {
			args = append(args, q.Limit)
		}
		all = append(all, "SELECT * FROM ("+columns+" FROM "+tables+where.SQL()+page+") AS one")
	}
	return strings.Join(all, " UNION ALL "), args
}
