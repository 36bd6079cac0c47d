package store

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// AgentNumber returns the number of an agent, which it gets when it is asked for first:
// the next one, for good. It returns errs.Conflict for an unknown agent.
func (tx *Tx) AgentNumber(agentID string) (int64, error) {
	var n any
	for {
		err := tx.queryRow("SELECT number FROM agent_numbers WHERE agent_id = ?", []any{agentID}, &n)
		if !errs.Is(err, errs.NotFound) {
			return whole(n), err
		}
		// Two may want the same number at the same moment: one of them tries again.
		_, err = tx.exec(`INSERT INTO agent_numbers (number, agent_id) SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT) FROM agent_numbers
			WHERE true ON CONFLICT DO NOTHING`, agentID)
		if err != nil {
			return 0, err
		}
	}
}

// OpenContext makes a context for a session, "" for a task that is in none, and
// returns its number.
func (tx *Tx) OpenContext(sessionID string) (int64, error) {
	for {
		var n any
		err := tx.queryRow(`INSERT INTO contexts (number, session_id, tasks, created_at)
			SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT), 0, CAST(? AS BIGINT) FROM contexts
			WHERE true ON CONFLICT DO NOTHING RETURNING number`, []any{sessionID, micros(tx.now)}, &n)
		if !errs.Is(err, errs.NotFound) {
			return whole(n), err
		}
	}
}

// TaskShortID returns what a task is called, which it gets when it is asked for first. The
// task need not be written yet.
func (tx *Tx) TaskShortID(taskID, sessionID string) (models.ShortID, error) {
	name, err := tx.handleOf(taskID)
	if !errs.Is(err, errs.NotFound) {
		return name, err
	}
	if name, err = tx.takeHandle(sessionID); err != nil {
		return name, err
	}
	n, err := tx.exec("INSERT INTO context_tasks (context, number, task_id) VALUES (?, ?, ?) ON CONFLICT (task_id) DO NOTHING", name.Context, name.Task, taskID)
	if err == nil && n == 0 { // somebody else was faster; the number stays unused
		return tx.handleOf(taskID)
	}
	return name, err
}

// ClaimShortID gives a task a name that somebody else has chosen, in a context that is there.
// It returns errs.Conflict where another task has it, or the task another.
func (tx *Tx) ClaimShortID(taskID string, name models.ShortID) error {
	_, err := tx.exec("INSERT INTO context_tasks (context, number, task_id) VALUES (?, ?, ?)", name.Context, name.Task, taskID)
	if err == nil {
		_, err = tx.exec("UPDATE contexts SET tasks = ? WHERE number = ? AND tasks < ?", name.Task, name.Context, name.Task)
	}
	return err
}

// DeleteShortID takes the name back of a task that is not there. Where it was the newest in its
// context, the next task there gets it.
func (tx *Tx) DeleteShortID(taskID string) error {
	name, err := tx.handle("DELETE FROM context_tasks WHERE task_id = ? AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = ?) RETURNING context, number", taskID, taskID)
	switch {
	case errs.Is(err, errs.NotFound):
		return nil
	case err == nil: // a further one that was taken meanwhile stays
		_, err = tx.exec(`UPDATE contexts SET tasks = (SELECT COALESCE(MAX(number), 0) FROM context_tasks WHERE context = ?)
			WHERE number = ? AND tasks = ?`, name.Context, name.Context, name.Task)
	}
	return err
}

// NameContext has a context stand for a session.
func (tx *Tx) NameContext(number int64, sessionID string) error {
	_, err := tx.exec("UPDATE contexts SET session_id = ? WHERE number = ?", sessionID, number)
	return err
}

// takeHandle takes the next number in the newest context of a session, and makes one
// where there is none or it is full.
func (tx *Tx) takeHandle(sessionID string) (models.ShortID, error) {
	if sessionID != "" {
		name, err := tx.handle(`UPDATE contexts SET tasks = tasks + 1 WHERE tasks < ? AND
			number = (SELECT MAX(number) FROM contexts WHERE session_id = ? AND session_id <> '') RETURNING number, tasks`,
			models.MaxContextTasks, sessionID)
		if !errs.Is(err, errs.NotFound) {
			return name, err
		}
	}
	made, err := tx.OpenContext(sessionID)
	if err == nil {
		_, err = tx.exec("UPDATE contexts SET tasks = 1 WHERE number = ?", made)
	}
	return models.ShortID{Context: made, Task: 1}, err
}

func (tx *Tx) handleOf(taskID string) (models.ShortID, error) {
	return tx.handle("SELECT context, number FROM context_tasks WHERE task_id = ?", taskID)
}

func (tx *Tx) handle(query string, args ...any) (models.ShortID, error) {
	var of, number any
	err := tx.queryRow(query, args, &of, &number)
	return models.ShortID{Context: whole(of), Task: int(whole(number))}, err
}

// PurgeContexts forgets up to limit contexts made before whose session and tasks are
// deleted, with the names in them, and returns how many.
func (tx *Tx) PurgeContexts(before time.Time, limit int) (int64, error) {
	const old = `SELECT number FROM contexts AS c WHERE created_at < ? AND number < (SELECT MAX(number) FROM contexts) AND
		NOT EXISTS (SELECT 1 FROM sessions WHERE id = c.session_id) AND
		NOT EXISTS (SELECT 1 FROM context_tasks AS n JOIN tasks ON tasks.id = n.task_id WHERE n.context = c.number) ORDER BY created_at LIMIT ?`
	if _, err := tx.exec("DELETE FROM context_tasks WHERE context IN ("+old+")", micros(before), limit); err != nil {
		return 0, err
	}
	return tx.exec("DELETE FROM contexts WHERE number IN ("+old+")", micros(before), limit)
}

// AgentNumber returns the number of an agent, or errs.NotFound where it has none yet.
func (s *Store) AgentNumber(ctx context.Context, agentID string) (int64, error) {
	var n any
	err := s.queryRow(ctx, s.dialect.bind("SELECT number FROM agent_numbers WHERE agent_id = ?"), []any{agentID}, &n)
	return whole(n), err
}

// AgentOfNumber returns the agent that has a number, or errs.NotFound.
func (s *Store) AgentOfNumber(ctx context.Context, number int64) (agentID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT agent_id FROM agent_numbers WHERE number = ?"), []any{number}, &agentID)
	return agentID, err
}

// SessionOfContext returns the session that a context stands for, "" for a task that is in
// none, or errs.NotFound.
func (s *Store) SessionOfContext(ctx context.Context, number int64) (sessionID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT session_id FROM contexts WHERE number = ?"), []any{number}, &sessionID)
	return sessionID, err
}

// TaskShortID returns what a task is called, or errs.NotFound where it has no name yet.
func (s *Store) TaskShortID(ctx context.Context, taskID string) (models.ShortID, error) {
	var of, number any
	err := s.queryRow(ctx, s.dialect.bind("SELECT context, number FROM context_tasks WHERE task_id = ?"), []any{taskID}, &of, &number)
	return models.ShortID{Context: whole(of), Task: int(whole(number))}, err
}

// TaskByShortID returns the task that is called so, or errs.NotFound.
func (s *Store) TaskByShortID(ctx context.Context, name models.ShortID) (taskID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT task_id FROM context_tasks WHERE context = ? AND number = ?"), []any{name.Context, name.Task}, &taskID)
	return taskID, err
}
