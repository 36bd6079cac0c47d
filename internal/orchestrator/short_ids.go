package orchestrator

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Short ids are for protocols with little room in a message. An agent has a number for ever. A
// task has one in its context: its session or, without a session, the task itself. They are
// assigned at the first use.

// AgentNumber returns the number of an agent, or errs.NotFound.
func (o *Orchestrator) AgentNumber(ctx context.Context, agentID string) (n int64, err error) {
	n, err = o.store.AgentNumber(ctx, agentID)
	if !errs.Is(err, errs.NotFound) {
		return n, err
	}
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		n, err = tx.AgentNumber(agentID)
		return err
	})
	if errs.Is(err, errs.Conflict) {
		err = errs.New(errs.NotFound, "there is no agent %q", agentID)
	}
	return n, err
}

// AgentNumbers returns the numbers of agents, without the agents that have none yet.
func (o *Orchestrator) AgentNumbers(ctx context.Context, agentIDs []string) (map[string]int64, error) {
	return o.store.AgentNumbers(ctx, agentIDs)
}

// AgentByNumber returns the id of the agent with a number, or errs.NotFound.
func (o *Orchestrator) AgentByNumber(ctx context.Context, n int64) (agentID string, err error) {
	return o.store.AgentOfNumber(ctx, n)
}

// ShortID returns the short id of a task. The task need not be submitted yet, so that messages
// about it can use the id.
func (o *Orchestrator) ShortID(ctx context.Context, taskID, sessionID string) (h models.ShortID, err error) {
	h, err = o.store.TaskShortID(ctx, taskID)
	if !errs.Is(err, errs.NotFound) {
		return h, err
	}
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		h, err = tx.TaskShortID(taskID, sessionID)
		return err
	})
	return h, err
}

// ClaimShortID assigns a short id chosen by the requester to a task that is not submitted yet. It
// returns errs.Conflict if another task has it.
func (o *Orchestrator) ClaimShortID(ctx context.Context, taskID string, h models.ShortID) error {
	return o.store.Write(ctx, func(tx *store.Tx) error { return tx.ClaimShortID(taskID, h) })
}

// DeleteShortID deletes the short id of a task that was not submitted.
func (o *Orchestrator) DeleteShortID(ctx context.Context, taskID string) error {
	return o.store.Write(ctx, func(tx *store.Tx) error { return tx.DeleteShortID(taskID) })
}

// TaskByShortID returns the task with a short id, or errs.NotFound.
func (o *Orchestrator) TaskByShortID(ctx context.Context, h models.ShortID) (models.Task, error) {
	id, err := o.store.TaskByShortID(ctx, h)
	if err != nil {
		return models.Task{}, err
	}
	return o.Task(ctx, id)
}

// SessionOfContext returns the session of a context, "" for the context of a task without a
// session, or errs.NotFound.
func (o *Orchestrator) SessionOfContext(ctx context.Context, n int64) (sessionID string, err error) {
	return o.store.SessionOfContext(ctx, n)
}

// OpenContext creates a session that is named after its context. facts is a JSON object, nil for
// an empty one.
func (o *Orchestrator) OpenContext(ctx context.Context, by models.Principal, facts json.RawMessage, name func(context int64) string) (n int64, err error) {
	if facts = orEmpty(facts); !isObject(facts) {
		return 0, errs.New(errs.InvalidRequest, "facts must be a JSON object")
	}
	err = o.transact(ctx, func(op *operation) error {
		for {
			if n, err = op.tx.OpenContext(""); err != nil {
				return err
			}
			_, err := op.tx.Session(name(n))
			if errs.Is(err, errs.NotFound) {
				break
			}
			if err != nil {
				return err
			}
		}
		if _, err := op.insertSession(by, name(n), facts); err != nil {
			return err
		}
		return op.tx.NameContext(n, name(n))
	})
	return n, err
}

// DeleteSession deletes a session made by OpenContext for a task that was rejected. It returns
// errs.NotFound for a session that does not exist or has another owner, and errs.TaskState for
// one that has, or had, tasks.
func (o *Orchestrator) DeleteSession(ctx context.Context, by models.Principal, id string) error {
	return o.transact(ctx, func(op *operation) error {
		session, err := op.lockSession(id)
		if err == nil && session.Owner != by.TokenID {
			err = errs.New(errs.NotFound, "there is no session %q", id)
		}
		if err != nil {
			return err
		}
		empty, err := op.tx.DeleteSession(id)
		if err == nil && !empty {
			err = errs.New(errs.TaskState, "the session %q has tasks", id).With("state", session.State)
		}
		return err
	})
}

// TasksByNumber returns up to limit tasks of an owner, the newest first, whose short ids have a
// number in any context.
func (o *Orchestrator) TasksByNumber(ctx context.Context, owner string, number, limit int) (out []models.Task, err error) {
	ids, err := o.store.TasksNumbered(ctx, owner, number, limit)
	for _, id := range ids {
		if err != nil {
			break
		}
		var t models.Task
		if t, err = o.Task(ctx, id); err == nil {
			out = append(out, t)
		}
	}
	return out, err
}
