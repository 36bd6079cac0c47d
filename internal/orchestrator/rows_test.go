package orchestrator_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// openRaw opens the database without the store.
func openRaw(t *testing.T, db *storetest.DB) *sql.DB {
	t.Helper()
	driver, source := "sqlite", "file:"+filepath.Join(db.Options.Dir, "comet.db")+"?_pragma=busy_timeout(10000)"
	if db.Options.DatabaseURL != "" {
		driver, source = "pgx", db.Options.DatabaseURL
	}
	pool, err := sql.Open(driver, source)
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// allAttempts selects the attempts at all tasks: the newest one is part of the row of its task.
const allAttempts = `(SELECT task_id, attempt, agent_id, state, reservation_id, tokens, error_code FROM attempts UNION ALL
	SELECT id, attempt, agent_id, attempt_state, reservation_id, attempt_tokens, error_code FROM tasks WHERE attempt_state < 6)`

// query runs a query without the store and returns the rows as text.
func (h *harness) query(t *testing.T, query string) []string {
	t.Helper()
	query = strings.ReplaceAll(query, "all_attempts", allAttempts)
	rows, err := h.raw.QueryContext(context.Background(), query)
	require.NoError(t, err, query)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	out := []string{}
	for rows.Next() {
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		words := make([]string, len(values))
		for i, v := range values {
			if b, is := v.([]byte); is {
				v = string(b)
			}
			words[i] = fmt.Sprint(v)
		}
		out = append(out, strings.Join(words, " "))
	}
	require.NoError(t, rows.Err())
	return out
}

// allRows returns all rows that a rejected call must not change.
func allRows(t *testing.T, h *harness) (out []string) {
	t.Helper()
	for _, table := range []string{
		"tasks", "task_inputs", "attempts", "task_outputs", "workers", "inbox", "processed_messages", "sessions", "outcomes",
		"usage_facts", "usage_accounts", "usage_windows", "usage_reservations", "idempotency",
	} {
		for _, row := range h.query(t, "SELECT * FROM "+table) {
			out = append(out, table+" "+row)
		}
	}
	out = append(out, h.query(t, "SELECT type, key, data FROM events WHERE type NOT LIKE 'agent.%'")...)
	out = append(out, h.query(t, "SELECT kind, key, run_at FROM jobs WHERE kind LIKE 'task.%'")...)
	slices.Sort(out)
	return out
}

// requireUnchanged compares all rows with the rows before.
func requireUnchanged(t *testing.T, h *harness, before []string, verb string) {
	t.Helper()
	requireSame(t, before, allRows(t, h), verb)
}

// requireSame compares rows.
func requireSame(t *testing.T, before, after []string, verb string) {
	t.Helper()
	var changed []string
	for sign, pair := range map[string][2][]string{"-": {before, after}, "+": {after, before}} {
		for _, row := range pair[0] {
			if !slices.Contains(pair[1], row) {
				changed = append(changed, sign+row)
			}
		}
	}
	require.Empty(t, changed, "%s changes nothing", verb)
}

// requireNone checks that no row matches the query.
func requireNone(t *testing.T, h *harness, why, query string) {
	t.Helper()
	require.Empty(t, h.query(t, query), why)
}

// requireSound checks the invariants that hold between transactions. The poll may assign a queued task between two reads, so
// the slots in use are read until no attempt began or ended meanwhile.
func requireSound(t *testing.T, h *harness) {
	t.Helper()
	workers, err := h.Work.Workers(t.Context(), "", "", 1000)
	require.NoError(t, err)
	for _, w := range workers {
		open := func() string {
			return h.query(t, "SELECT count(*) FROM all_attempts a WHERE a.state < 2 AND a.agent_id = '"+w.AgentID+"'")[0]
		}
		before := open()
		require.Eventually(t, func() bool {
			var again models.Worker
			again, err = h.Work.Worker(t.Context(), w.AgentID)
			w.InFlight = again.InFlight
			earlier := before
			before = open()
			return err != nil || before == earlier
		}, time.Minute, 5*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, before, fmt.Sprint(w.InFlight), "the slots in use of %s are its open attempts", w.AgentID)
	}
	requireNone(t, h, "only the newest attempt at an open task is open", `SELECT a.task_id, a.attempt FROM all_attempts a JOIN tasks t ON t.id = a.task_id
		WHERE a.state < 2 AND (t.state >= 2 OR a.attempt <> t.attempt OR t.waiting_for IN (1, 2))`)
	requireNone(t, h, "an assigned task has an open attempt of its agent", `SELECT t.id FROM tasks t WHERE t.state < 2 AND t.waiting_for IN (0, 3)
		AND NOT EXISTS (SELECT 1 FROM all_attempts a WHERE a.task_id = t.id AND a.attempt = t.attempt AND a.agent_id = t.agent_id AND a.state < 2)`)
	requireNone(t, h, "reservations belong to open attempts", `SELECT r.agent_id, r.id FROM usage_reservations r WHERE r.state = 0
		AND NOT EXISTS (SELECT 1 FROM all_attempts a WHERE a.agent_id = r.agent_id AND a.reservation_id = r.id AND a.state < 2)`)
	requireNone(t, h, "only an assigned task is a message", "SELECT id FROM tasks WHERE message_id <> '' AND (state <> 0 OR waiting_for <> 0 OR attempt_state <> 0)")
	requireNone(t, h, "the newest attempt ends with its task", "SELECT id FROM tasks WHERE attempt_state BETWEEN 2 AND 5 AND state < 2 OR attempt_state < 2 AND state >= 2")
	requireNone(t, h, "a task counts its subtasks", "SELECT t.id FROM tasks t WHERE t.subtasks <> (SELECT count(*) FROM tasks c WHERE c.parent_id = t.id)")
	requireNone(t, h, "no message is about an ended attempt", `SELECT i.agent_id, i.kind, i.task_id FROM inbox i JOIN all_attempts a ON a.task_id = i.task_id AND a.attempt = i.attempt
		WHERE i.kind IN ('assign', 'answer') AND a.state >= 2`)
	requireNone(t, h, "a session counts its open tasks", `SELECT s.id FROM sessions s WHERE s.open_tasks <> (SELECT count(*) FROM tasks t WHERE t.session_id = s.id AND t.state < 2)
		OR s.tasks <> (SELECT count(*) FROM tasks t WHERE t.session_id = s.id)`)
	const apart = ` AND t.policy NOT LIKE '%"workers":%'` // whose subtasks have used the tokens
	requireNone(t, h, "the tokens of a task are those of its attempts", `SELECT t.id, t.tokens FROM tasks t
		WHERE t.tokens <> (SELECT coalesce(sum(a.tokens), 0) FROM all_attempts a WHERE a.task_id = t.id)`+apart)
	requireNone(t, h, "the tokens of an attempt are charged to its agent once", `SELECT t.id FROM tasks t WHERE
		(SELECT coalesce(sum(a.tokens), 0) FROM all_attempts a WHERE a.task_id = t.id) <> (SELECT coalesce(sum(f.tokens), 0) FROM usage_facts f WHERE f.task_id = t.id)`)
	requireNone(t, h, "and to no other agent", `SELECT f.task_id, f.agent_id FROM usage_facts f WHERE f.task_id <> ''
		AND NOT EXISTS (SELECT 1 FROM all_attempts a WHERE a.task_id = f.task_id AND a.agent_id = f.agent_id AND a.tokens > 0)`)
	requireNone(t, h, "no agent has, or had, two subtasks of one task", `SELECT t.parent_id, a.agent_id FROM all_attempts a JOIN tasks t ON t.id = a.task_id
		WHERE t.on_end = 'task.subtask' AND a.agent_id <> '' GROUP BY t.parent_id, a.agent_id HAVING count(DISTINCT t.id) > 1`)
	require.Equal(t, h.query(t, "SELECT agent_id, count(*) FROM all_attempts AS a WHERE agent_id <> '' AND state >= 2 GROUP BY agent_id ORDER BY agent_id"),
		h.query(t, "SELECT agent_id, count(*) FROM outcomes GROUP BY agent_id ORDER BY agent_id"), "each ended attempt has one outcome")
	v, err := h.Ledger.Verify(t.Context())
	require.NoError(t, err)
	require.Zero(t, v.Total, "%v", v.Differences)
}

// requireLegalEvents checks that the events of each task are a legal sequence.
func requireLegalEvents(t *testing.T, h *harness) {
	t.Helper()
	type open = map[models.EventType][]models.EventType
	const none = models.EventType("")
	created, waiting, assigned, started := events.TaskCreated, events.TaskWaiting, events.TaskAssigned, events.TaskStarted
	progress, question, answered, retried := events.TaskProgress, events.TaskQuestion, events.TaskReplied, events.TaskRetried
	completed, failed, cancelled := events.TaskCompleted, events.TaskFailed, events.TaskCancelled
	follow := open{
		none: {created}, created: {waiting, retried, failed, started, progress, question, completed, cancelled},
		waiting:  {assigned, failed, cancelled, completed, retried},
		assigned: {started, retried, failed, cancelled, completed},
		started:  {progress, question, retried, completed, failed, cancelled}, progress: {progress, question, answered, retried, completed, failed, cancelled},
		question: {progress, question, answered, retried, completed, failed, cancelled}, answered: {progress, question, retried, completed, failed, cancelled},
		retried: {assigned, waiting, retried, failed, cancelled, completed}, completed: nil, failed: nil, cancelled: nil,
	}
	state := map[models.EventType]models.TaskState{completed: models.TaskDone, failed: models.TaskFailed, cancelled: models.TaskCancelled}
	tasks, err := h.Tasks(t.Context(), store.TaskQuery{Limit: 10_000})
	require.NoError(t, err)
	for _, task := range tasks {
		all, err := h.DB.Events(t.Context()).Timeline(task.ID, 1000)
		require.NoError(t, err)
		last, types := none, make([]string, 0, len(all))
		for _, e := range all {
			types = append(types, string(e.Type))
			if e.Type == events.TaskSubtask { // of another task, whose own events are checked, too
				require.NotEqual(t, none, last)
				continue
			}
			require.Contains(t, follow[last], e.Type, "%s: %s", task.ID, strings.Join(types, " "))
			last = e.Type
			var data events.TaskData
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, task.ID, data.TaskID)
		}
		if task.State.Ended() {
			require.Equal(t, task.State, state[last], "%s: %s", task.ID, strings.Join(types, " "))
		} else {
			require.NotContains(t, state, last)
		}
	}
}
