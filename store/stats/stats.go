// Package stats counts what happened in steps of time, from the rows of tasks, tool calls and the ledger.
package stats

import (
	"fmt"
	"time"

	"comet/store"
	"comet/store/filter"
)

// Query selects what is counted.
type Query struct {
	// From and To limit the time; both are the bounds of steps, except that To may be now.
	From, To time.Time
	Step     time.Duration
	// Root limits tasks and tokens to an agent and the agents below it, "" for all.
	Root string
	// Token limits tool calls to those of one token, "" for all.
	Token string
}

// Count is the number of rows of a step, which counts steps since 1970.
type Count struct {
	Step  int64
	Kind  string // the state of tasks and the outcome of tool calls
	Count int64
}

// Duration is how long a task or a tool call of a step took.
type Duration struct {
	Step   int64
	Micros int64
}

// between adds the period of q and returns the expression of a row's step.
func (q Query) between(where *filter.Clause, column string) string {
	where.And(column+" >= ? AND "+column+" < ?", q.From.UnixMicro(), q.To.UnixMicro())
	return fmt.Sprintf("%s / %d", column, q.Step.Microseconds())
}

func (q Query) tasks(where *filter.Clause) {
	if q.Root != "" {
		where.And("(agent_id "+store.InSubtree+" OR owner_agent_id "+store.InSubtree+")", q.Root, q.Root)
	}
}

// Created counts the tasks that were created.
func Created(from store.Source, q Query) ([]Count, error) {
	var where filter.Clause
	step := q.between(&where, "created_at")
	q.tasks(&where)
	return store.Rows[Count](from, "SELECT "+step+" AS step, '' AS kind, count(*) FROM tasks"+where.SQL()+" GROUP BY 1", where.Args...)
}

// Ended counts the tasks that ended, by their state.
func Ended(from store.Source, q Query) ([]Count, error) {
	var where filter.Clause
	where.And("state >= 2")
	step := q.between(&where, "ended_at")
	q.tasks(&where)
	return store.Rows[Count](from, "SELECT "+step+" AS step, CASE state WHEN 2 THEN 'completed' WHEN 3 THEN 'failed' ELSE 'cancelled' END AS kind, count(*) FROM tasks"+
		where.SQL()+" GROUP BY 1, 2", where.Args...)
}

// TaskDurations returns how long the newest tasks that ended took from their creation, at most limit.
func TaskDurations(from store.Source, q Query, limit int) ([]Duration, error) {
	var where filter.Clause
	where.And("state >= 2")
	step := q.between(&where, "ended_at")
	q.tasks(&where)
	return store.Rows[Duration](from, "SELECT "+step+" AS step, ended_at - created_at AS micros FROM tasks"+where.SQL()+" ORDER BY ended_at DESC LIMIT ?", append(where.Args, limit)...)
}

// longestCall is how long before the period a tool call that ended in it began at the earliest.
const longestCall = 15 * time.Minute

// calls adds the period in which tool calls ended to a query. Their ids are UUIDv7: the time in milliseconds at which they began.
func (q Query) calls(where *filter.Clause) string {
	id := fmt.Sprintf("%012x", q.From.Add(-longestCall).UnixMilli())
	where.And("id >= ?", id[:8]+"-"+id[8:])
	if q.Token != "" {
		where.And("token_id = ?", q.Token)
	}
	return q.between(where, "(at + duration)")
}

// Calls counts the tool calls, by their outcome.
func Calls(from store.Source, q Query) ([]Count, error) {
	var where filter.Clause
	step := q.calls(&where)
	return store.Rows[Count](from, "SELECT "+step+" AS step, outcome AS kind, count(*) FROM tool_calls"+where.SQL()+" GROUP BY 1, 2", where.Args...)
}

// CallDurations returns how long the newest tool calls took, at most limit.
func CallDurations(from store.Source, q Query, limit int) ([]Duration, error) {
	var where filter.Clause
	step := q.calls(&where)
	return store.Rows[Duration](from, "SELECT "+step+" AS step, duration AS micros FROM tool_calls"+where.SQL()+" ORDER BY id DESC LIMIT ?", append(where.Args, limit)...)
}

// Tokens sums the tokens that agents used: from the hourly windows for steps of whole hours, and from the facts of the
// agents that used tokens on these days otherwise.
func Tokens(from store.Source, q Query) ([]Count, error) {
	var where filter.Clause
	if q.Root != "" {
		where.And("'/' || path || '/' LIKE ?", "%/"+q.Root+"/%")
	}
	if q.Step%time.Hour == 0 {
		hours := int64(q.Step / time.Hour)
		first, last := q.From.Unix()/3600, (q.To.Unix()-1)/3600
		where.And("hour / 24 BETWEEN ? AND ? AND hour BETWEEN ? AND ?", first/24, last/24, first, last)
		return store.Rows[Count](from, fmt.Sprintf("SELECT hour / %d AS step, '' AS kind, CAST(sum(tokens) AS BIGINT) FROM usage_windows%s GROUP BY 1", hours, where.SQL()), where.Args...)
	}
	step := q.between(&where, "at")
	where.And("agent_id IN (SELECT agent_id FROM usage_windows WHERE hour / 24 BETWEEN ? AND ?)", q.From.Unix()/86400, (q.To.Unix()-1)/86400)
	return store.Rows[Count](from, "SELECT "+step+" AS step, '' AS kind, CAST(sum(tokens) AS BIGINT) FROM usage_facts"+where.SQL()+" GROUP BY 1", where.Args...)
}

// Open counts what is in progress now: tasks by why they wait, workers and workflows by state, and active agents. root
// and token limit it as in a Query; a workflow belongs to a token.
func Open(from store.Source, root, token string) ([]Count, error) {
	branch := func(kind, table, condition string) (string, []any) {
		var where filter.Clause
		where.And(condition)
		switch column := map[string]string{"tasks": "agent_id", "workers": "agent_id", "agents": "id"}[table]; {
		case column == "" && token != "":
			where.And("token_id = ?", token)
		case column != "" && root != "":
			where.And(column+" "+store.InSubtree, root)
		}
		return fmt.Sprintf("SELECT 0 AS step, '%s' AS kind, count(*) AS n FROM %s%s", kind, table, where.SQL()), where.Args
	}
	query, all := "", []any(nil)
	for _, b := range [][3]string{
		{"tasks_queued", "tasks", "waiting_for = 1"},
		{"tasks_running", "tasks", "state < 2 AND waiting_for IN (0, 3) AND waiting_for = 0"},
		{"tasks_waiting_for_reply", "tasks", "state < 2 AND waiting_for IN (0, 3) AND waiting_for = 3"},
		{"workers_offline", "workers", "state = 0"},
		{"workers_online", "workers", "state = 1"},
		{"workers_busy", "workers", "state = 2"},
		{"workflows_running", "workflows", "state < 2 AND state = 0"},
		{"workflows_paused", "workflows", "state < 2 AND state = 1"},
		{"agents", "agents", "is_active = TRUE"},
	} {
		text, args := branch(b[0], b[1], b[2])
		if query != "" {
			query += " UNION ALL "
		}
		query, all = query+text, append(all, args...)
	}
	return store.Rows[Count](from, query, all...)
}

// Below counts the agents directly below some agents, and all agents below them, by the ids of these agents.
func Below(from store.Source, ids []string) (children, descendants map[string]int, err error) {
	children, descendants = map[string]int{}, map[string]int{}
	if len(ids) == 0 {
		return children, descendants, nil
	}
	type row struct {
		Root            string
		Direct, Further int
	}
	// Agents have at most three levels below them. Nested counts read the index by parent once, without a temporary table.
	rows, err := store.Rows[row](from, `SELECT c.parent_id AS root, count(*) AS direct, CAST(sum((
		SELECT coalesce(sum(CASE WHEN g.level < 3 THEN 1 + (SELECT count(*) FROM agents AS h WHERE h.parent_id = g.id) ELSE 1 END), 0)
		FROM agents AS g WHERE g.parent_id = c.id)) AS BIGINT) AS further FROM agents AS c WHERE c.parent_id `+store.In(from)+` GROUP BY c.parent_id`, store.Keys(ids))
	for _, r := range rows {
		children[r.Root], descendants[r.Root] = r.Direct, r.Direct+r.Further
	}
	return children, descendants, err
}

// Use is what an agent and the agents below it used in a day.
type Use struct {
	ID                   string
	Own, Forgiven, Below int64
	Additional, Reserved int64
}

// Usage returns what agents use in a day, in days since 1970: a few ranges of indexes for each of them. The paths of
// usage below an agent are one range; usage below an L2 counts from its present L1 on.
func Usage(from store.Source, ids []string, now time.Time) ([]Use, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	day := now.Unix() / 86400
	return store.Rows[Use](from, `SELECT a.id,
		(SELECT coalesce(sum(w.tokens), 0) FROM usage_windows AS w WHERE w.agent_id = a.id AND w.hour >= ? AND w.hour < ?) AS own,
		(SELECT coalesce(sum(r.own), 0) FROM usage_resets AS r WHERE r.agent_id = a.id AND r.day = ?) AS forgiven,
		(SELECT coalesce(sum(w.tokens), 0) FROM usage_windows AS w WHERE w.hour / 24 = ? AND w.path >= a.path || '/' AND w.path < a.path || '0') AS below,
		(SELECT coalesce(sum(b.tokens), 0) FROM budget_additions AS b WHERE b.agent_id = a.id AND b.expires_at > ?) AS additional,
		coalesce((SELECT u.reserved FROM usage_accounts AS u WHERE u.agent_id = a.id), 0) AS reserved
		FROM (SELECT id, CASE level WHEN 0 THEN id WHEN 1 THEN parent_id || '/' || id WHEN 2 THEN (SELECT p.parent_id FROM agents AS p WHERE p.id = agents.parent_id) || '/' || parent_id || '/' || id ELSE '' END AS path
			FROM agents WHERE id `+store.In(from)+`) AS a`, day*24, day*24+24, day, day, now, store.Keys(ids))
}
