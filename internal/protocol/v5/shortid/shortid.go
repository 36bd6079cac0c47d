// Package shortid stores the short ids of tasks in PROTOCOL_V5 (§3.2: CTX and TID, such as S1 and
// T1). A context is a session, or a task without a session; the tasks of a context are numbered
// from 1 to MaxTask. A session with more tasks has several contexts.
//
// The functions that change something run in the transaction of the caller, so that a task and its
// short id are committed together.
package shortid

import (
	"context"
	"strconv"
	"strings"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store"
)

// ID is the short id of a task: the numbers of its context and, in the context, of the task.
type ID struct {
	Context int64
	Task    int
}

// MaxTask is the highest number of a task in a context.
const MaxTask = 999

// OpenSession creates a context for a session that is inserted in the same transaction. It returns
// the short id of the first task, whose number firstTask chooses; InsertTask adds the task. The id
// of the session is ContextName of the context, which only this function gives to a session
// (orchestrator.Options.ReservedSessionID).
func OpenSession(tx *store.Tx, firstTask func(contextNumber int64) int) (ID, error) {
	return createContext(tx, func(n int64) (int, string) { return firstTask(n), ContextName(n) })
}

// createContext creates a context. describe returns the number of its last task and the id of its
// session. Concurrent transactions do not wait for each other.
func createContext(tx *store.Tx, describe func(number int64) (tasks int, sessionID string)) (id ID, err error) {
	for {
		id.Context, err = store.Row[int64](tx, "SELECT number FROM v5_next_context")
		if errs.Is(err, errs.NotFound) {
			return id, errs.New(errs.Busy, "too many transactions create contexts; try again")
		}
		if err != nil {
			return id, err
		}
		var sessionID string
		id.Task, sessionID = describe(id.Context)
		n, err := tx.Exec("INSERT INTO v5_contexts (number, session_id, tasks, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
			id.Context, sessionID, id.Task, tx.Now())
		if err != nil || n > 0 { // otherwise a transaction that took the number has been committed meanwhile
			return id, err
		}
	}
}

// InsertTask inserts the short id of a task that has none. It returns errs.Conflict if another
// task has it.
func InsertTask(tx *store.Tx, taskID string, id ID) error {
	_, err := tx.Exec("INSERT INTO v5_context_tasks (context, number, task_id) VALUES (?, ?, ?)", id.Context, id.Task, taskID)
	return err
}

// Assign returns the short id of a task and assigns the next one to a task that has none: in the
// newest context of its session or, without a session, in a context of its own.
func Assign(tx *store.Tx, taskID, sessionID string) (ID, error) {
	id, err := store.Row[ID](tx, "SELECT context, number FROM v5_context_tasks WHERE task_id = ?", taskID)
	if !errs.Is(err, errs.NotFound) {
		return id, err
	}
	if id, err = next(tx, sessionID); err != nil {
		return id, err
	}
	n, err := tx.Exec("INSERT INTO v5_context_tasks (context, number, task_id) VALUES (?, ?, ?) ON CONFLICT (task_id) DO NOTHING", id.Context, id.Task, taskID)
	if err == nil && n == 0 { // a concurrent transaction assigned one; this number stays unused
		return store.Row[ID](tx, "SELECT context, number FROM v5_context_tasks WHERE task_id = ?", taskID)
	}
	return id, err
}

// next returns the next number in the newest context of a session. It creates a context if there
// is none or if it is full.
func next(tx *store.Tx, sessionID string) (ID, error) {
	if sessionID != "" {
		id, err := store.Row[ID](tx, `UPDATE v5_contexts SET tasks = tasks + 1 WHERE tasks < ? AND
			number = (SELECT MAX(number) FROM v5_contexts WHERE session_id = ? AND session_id <> '') RETURNING number, tasks`,
			MaxTask, sessionID)
		if !errs.Is(err, errs.NotFound) {
			return id, err
		}
	}
	return createContext(tx, func(int64) (int, string) { return 1, sessionID })
}

// Claim assigns a short id in an existing context that the requester has chosen. It returns
// errs.Conflict if another task has it, or if the task has another one.
func Claim(tx *store.Tx, taskID string, id ID) error {
	err := InsertTask(tx, taskID, id)
	if err == nil {
		_, err = tx.Exec("UPDATE v5_contexts SET tasks = ? WHERE number = ? AND tasks < ?", id.Task, id.Context, id.Task)
	}
	return err
}

// Purge deletes up to limit contexts that were created before a time and whose session and tasks
// are deleted, with their short ids, and returns how many. The newest context stays, so that no
// number is used twice.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	const old = `SELECT number FROM v5_contexts AS c WHERE created_at < ? AND number < (SELECT MAX(number) FROM v5_contexts) AND
		NOT EXISTS (SELECT 1 FROM sessions WHERE id = c.session_id) AND
		NOT EXISTS (SELECT 1 FROM v5_context_tasks AS n JOIN tasks ON tasks.id = n.task_id WHERE n.context = c.number) ORDER BY created_at LIMIT ?`
	if _, err := tx.Exec("DELETE FROM v5_context_tasks WHERE context IN ("+old+")", before, limit); err != nil {
		return 0, err
	}
	return tx.Exec("DELETE FROM v5_contexts WHERE number IN ("+old+")", before, limit)
}

// Find returns the short id of a task, or errs.NotFound if it has none yet.
func Find(ctx context.Context, s *store.Store, taskID string) (ID, error) {
	return store.Row[ID](s.Reads(ctx), "SELECT context, number FROM v5_context_tasks WHERE task_id = ?", taskID)
}

// SessionID returns the id of the session of a context, "" for the context of a task without a
// session, or errs.NotFound.
func SessionID(ctx context.Context, s *store.Store, number int64) (string, error) {
	return store.Row[string](s.Reads(ctx), "SELECT session_id FROM v5_contexts WHERE number = ?", number)
}

// maxSearched is the number of an owner's newest tasks that TaskIDsByNumber searches.
const maxSearched = 1000

// TaskIDsByNumber returns the ids of up to limit tasks of an owner, the newest first, whose short
// ids have a number in any context. It searches the newest 1,000 tasks of the owner.
func TaskIDsByNumber(ctx context.Context, s *store.Store, owner string, number, limit int) ([]string, error) {
	const query = `SELECT t.id FROM (SELECT id, created_at FROM tasks WHERE owner = ? ORDER BY created_at DESC, id DESC LIMIT ?) AS t
		JOIN v5_context_tasks AS c ON c.task_id = t.id WHERE c.number = ? ORDER BY t.created_at DESC, t.id DESC LIMIT ?`
	return store.Rows[string](s.Reads(ctx), query, owner, maxSearched, number, limit)
}

// The names of contexts: S1 to S9999999, then with letters: Sa000000 and on (PROTOCOL_V5 §6.1).
const (
	contextBase   = 36
	firstLettered = 10 * contextBase * contextBase * contextBase * contextBase * contextBase * contextBase
	contextDigits = 10_000_000
)

// ContextName returns the name of the context with a number.
func ContextName(n int64) string {
	if n < contextDigits {
		return "S" + strconv.FormatInt(n, 10)
	}
	return "S" + strconv.FormatInt(n-contextDigits+firstLettered, contextBase)
}

// ContextNumber returns the number of the context with a name; ok is false for a name that no
// context has.
func ContextNumber(name string) (n int64, ok bool) {
	digits, is := strings.CutPrefix(name, "S")
	if !is {
		return 0, false
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return n, ContextName(n) == name
	}
	n, err := strconv.ParseInt(digits, contextBase, 64)
	n += contextDigits - firstLettered
	return n, err == nil && ContextName(n) == name
}

// AgentNumber returns the number of an agent in short ids, such as 7 in W7 (PROTOCOL_V5 §2.1), and
// assigns the next number to an agent that has none. A number never changes. An unknown agent is
// errs.NotFound.
func AgentNumber(ctx context.Context, s *store.Store, agentID string) (n int64, err error) {
	if n, err = findNumber(s.Reads(ctx), agentID); !errs.Is(err, errs.NotFound) {
		return n, err
	}
	err = s.Write(background.WithPlacement(ctx, nil), func(tx *store.Tx) error {
		n, err = assignNumber(tx, agentID)
		return err
	})
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.NotFound, "there is no agent %q", agentID)
	}
	return n, err
}

func findNumber(from store.Source, agentID string) (int64, error) {
	return store.Row[int64](from, "SELECT number FROM v5_agent_numbers WHERE agent_id = ?", agentID)
}

// assignNumber is AgentNumber in a transaction. An unknown agent is errs.Conflict.
func assignNumber(tx *store.Tx, agentID string) (n int64, err error) {
	for {
		if n, err = findNumber(tx, agentID); !errs.Is(err, errs.NotFound) {
			return n, err
		}
		// If two transactions insert the same number, one of them inserts nothing and tries again.
		_, err = tx.Exec(`INSERT INTO v5_agent_numbers (number, agent_id) SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT) FROM v5_agent_numbers
			WHERE true ON CONFLICT DO NOTHING`, agentID)
		if err != nil {
			return 0, err
		}
	}
}

// AgentNumbers returns the numbers of agents, without the agents that have none yet.
func AgentNumbers(ctx context.Context, s *store.Store, agentIDs []string) (map[string]int64, error) {
	type row struct {
		AgentID string
		Number  int64
	}
	reads := s.Reads(ctx)
	rows, err := store.Rows[row](reads, "SELECT agent_id, number FROM v5_agent_numbers WHERE agent_id "+store.In(reads), store.Keys(agentIDs))
	numbers := make(map[string]int64, len(rows))
	for _, r := range rows {
		numbers[r.AgentID] = r.Number
	}
	return numbers, err
}

// AgentID returns the id of the agent with a number, or errs.NotFound.
func AgentID(ctx context.Context, s *store.Store, number int64) (string, error) {
	return store.Row[string](s.Reads(ctx), "SELECT agent_id FROM v5_agent_numbers WHERE number = ?", number)
}
