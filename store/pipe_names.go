package store

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// PipeAgent returns the number of an agent, which it gets when it is asked for first:
// the next one, for good. It returns errs.Conflict for an unknown agent.
func (tx *Tx) PipeAgent(agentID string) (int64, error) {
	var n any
	for {
		err := tx.queryRow("SELECT number FROM pipe_agents WHERE agent_id = ?", []any{agentID}, &n)
		if !errs.Is(err, errs.NotFound) {
			return whole(n), err
		}
		// Two may want the same number at the same moment: one of them tries again.
		_, err = tx.exec(`INSERT INTO pipe_agents (number, agent_id) SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT) FROM pipe_agents
			WHERE true ON CONFLICT DO NOTHING`, agentID)
		if err != nil {
			return 0, err
		}
	}
}

// OpenPipeContext makes a context for a session, "" for a task that is in none, and
// returns its number.
func (tx *Tx) OpenPipeContext(sessionID string) (int64, error) {
	for {
		var n any
		err := tx.queryRow(`INSERT INTO pipe_contexts (number, session_id, tasks, created_at)
			SELECT COALESCE(MAX(number), 0) + 1, CAST(? AS TEXT), 0, CAST(? AS BIGINT) FROM pipe_contexts
			WHERE true ON CONFLICT DO NOTHING RETURNING number`, []any{sessionID, micros(tx.now)}, &n)
		if !errs.Is(err, errs.NotFound) {
			return whole(n), err
		}
	}
}

// PipeTask returns what a task is called, which it gets when it is asked for first. It
// returns errs.Conflict for an unknown task.
func (tx *Tx) PipeTask(taskID, sessionID string) (models.PipeName, error) {
	name, err := tx.pipeTask(taskID)
	if !errs.Is(err, errs.NotFound) {
		return name, err
	}
	if name, err = tx.pipeNumber(sessionID); err != nil {
		return name, err
	}
	n, err := tx.exec("INSERT INTO pipe_tasks (context, number, task_id) VALUES (?, ?, ?) ON CONFLICT (task_id) DO NOTHING", name.Context, name.Task, taskID)
	if err == nil && n == 0 { // somebody else was faster; the number stays unused
		return tx.pipeTask(taskID)
	}
	return name, err
}

// pipeNumber takes the next number in the newest context of a session, and makes one
// where there is none or it is full.
func (tx *Tx) pipeNumber(sessionID string) (models.PipeName, error) {
	if sessionID != "" {
		name, err := tx.pipeName(`UPDATE pipe_contexts SET tasks = tasks + 1 WHERE tasks < ? AND
			number = (SELECT MAX(number) FROM pipe_contexts WHERE session_id = ? AND session_id <> '') RETURNING number, tasks`,
			models.MaxPipeTask, sessionID)
		if !errs.Is(err, errs.NotFound) {
			return name, err
		}
	}
	made, err := tx.OpenPipeContext(sessionID)
	if err == nil {
		_, err = tx.exec("UPDATE pipe_contexts SET tasks = 1 WHERE number = ?", made)
	}
	return models.PipeName{Context: made, Task: 1}, err
}

func (tx *Tx) pipeTask(taskID string) (models.PipeName, error) {
	return tx.pipeName("SELECT context, number FROM pipe_tasks WHERE task_id = ?", taskID)
}

func (tx *Tx) pipeName(query string, args ...any) (models.PipeName, error) {
	var of, number any
	err := tx.queryRow(query, args, &of, &number)
	return models.PipeName{Context: whole(of), Task: int(whole(number))}, err
}

// PurgePipeContexts forgets up to limit contexts made before whose session and tasks
// are deleted, and returns how many.
func (tx *Tx) PurgePipeContexts(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM pipe_contexts WHERE number IN (SELECT number FROM pipe_contexts AS c WHERE created_at < ? AND
		NOT EXISTS (SELECT 1 FROM pipe_tasks WHERE context = c.number) AND
		NOT EXISTS (SELECT 1 FROM sessions WHERE id = c.session_id) AND
		number < (SELECT MAX(number) FROM pipe_contexts) ORDER BY created_at LIMIT ?)`, micros(before), limit)
}

// PipeAgent returns the number of an agent, or errs.NotFound where it has none yet.
func (s *Store) PipeAgent(ctx context.Context, agentID string) (int64, error) {
	var n any
	err := s.queryRow(ctx, s.dialect.bind("SELECT number FROM pipe_agents WHERE agent_id = ?"), []any{agentID}, &n)
	return whole(n), err
}

// AgentOfPipe returns the agent that has a number, or errs.NotFound.
func (s *Store) AgentOfPipe(ctx context.Context, number int64) (agentID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT agent_id FROM pipe_agents WHERE number = ?"), []any{number}, &agentID)
	return agentID, err
}

// SessionOfPipe returns the session that a context stands for, "" for a task that is in
// none, or errs.NotFound.
func (s *Store) SessionOfPipe(ctx context.Context, number int64) (sessionID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT session_id FROM pipe_contexts WHERE number = ?"), []any{number}, &sessionID)
	return sessionID, err
}

// PipeTask returns what a task is called, or errs.NotFound where it has no name yet.
func (s *Store) PipeTask(ctx context.Context, taskID string) (models.PipeName, error) {
	var of, number any
	err := s.queryRow(ctx, s.dialect.bind("SELECT context, number FROM pipe_tasks WHERE task_id = ?"), []any{taskID}, &of, &number)
	return models.PipeName{Context: whole(of), Task: int(whole(number))}, err
}

// TaskOfPipe returns the task that is called so, or errs.NotFound.
func (s *Store) TaskOfPipe(ctx context.Context, name models.PipeName) (taskID string, err error) {
	err = s.queryRow(ctx, s.dialect.bind("SELECT task_id FROM pipe_tasks WHERE context = ? AND number = ?"), []any{name.Context, name.Task}, &taskID)
	return taskID, err
}
