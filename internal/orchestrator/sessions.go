package orchestrator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator/wakeups"
	"comet/models"
	"comet/store"
)

// OpenSession creates a session; an id of "" is generated. facts is a JSON object, nil for an
// empty one. It returns errs.Conflict for an id that exists, and errs.InvalidRequest for one that
// is reserved.
func (o *Orchestrator) OpenSession(ctx context.Context, by models.Principal, id string, facts json.RawMessage) (out models.Session, err error) {
	if id == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return out, err
		}
		id = made.String()
	} else if reserved := o.opts.ReservedSessionID; reserved != nil && reserved(id) {
		return out, input.Violated("/id", "reserved", "the id %q is reserved; choose another id or omit it", id)
	}
	if facts = orEmpty(facts); !isObject(facts) {
		return out, errs.New(errs.InvalidRequest, "context must be a JSON object")
	}
	err = o.transact(ctx, func(op *operation) error {
		out, err = op.insertSession(by, id, facts, 0)
		return err
	})
	return out, err
}

// NewSession is a session that is opened in the transaction of its first task.
type NewSession struct {
	// ID returns the id of the session in the transaction that inserts it.
	ID func(*store.Tx) (string, error) `json:"-"`
	// Facts is a JSON object, nil for an empty one.
	Facts json.RawMessage
}

// insertSession inserts a session with a number of open tasks.
func (op *operation) insertSession(by models.Principal, id string, facts json.RawMessage, tasks int) (models.Session, error) {
	now := op.tx.Now()
	session := models.Session{
		ID: id, Owner: by.TokenID, State: models.SessionOpen, Facts: facts, OpenTasks: tasks, Tasks: tasks, CreatedAt: now, UpdatedAt: now,
	}
	if by.AgentID != nil {
		session.AgentID = *by.AgentID
	}
	return session, op.tx.Sessions().Insert(session)
}

// CloseSession closes a session without open tasks; a closed session stays unchanged. It returns
// errs.NotFound, or errs.TaskState while a task is open.
func (o *Orchestrator) CloseSession(ctx context.Context, id string) (out models.Session, err error) {
	err = o.transact(ctx, func(op *operation) error {
		if out, err = op.lockSession(id); err != nil || out.State == models.SessionClosed {
			return err
		}
		if out.OpenTasks > 0 {
			return errs.New(errs.TaskState, "the session %q has %d open tasks; cancel them first", id, out.OpenTasks)
		}
		return op.closeSession(&out, "closed")
	})
	return out, err
}

func (op *operation) lockSession(id string) (models.Session, error) {
	session, err := op.tx.Sessions().Lock(id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no session %q", id)
	}
	return session, err
}

// enterSession opens or joins the session of a submission, if it has one, and sets its id. It sets
// the parameters with resolved references.
func (op *operation) enterSession(by models.Principal, sub *Submission) (err error) {
	switch {
	case sub.Session != nil:
		if sub.SessionID, err = sub.Session.ID(op.tx); err == nil {
			_, err = op.insertSession(by, sub.SessionID, sub.Session.Facts, 1)
		}
	case sub.SessionID != "":
		err = op.joinSession(by, *sub)
	}
	if err == nil {
		sub.Parameters, err = sub.resolvedParameters, sub.resolveErr
	}
	return err
}

// joinSession counts a new task in its session. The owner may add tasks, and an agent by handing
// off a task of the session.
func (op *operation) joinSession(by models.Principal, sub Submission) error {
	session, err := op.lockSession(sub.SessionID)
	if err == nil {
		err = sub.checkSession(by, session)
	}
	if err != nil {
		return err
	}
	session.OpenTasks++
	session.Tasks++
	return op.tx.Sessions().Save(session)
}

// checkSession returns nil if the session accepts the submission.
func (sub Submission) checkSession(by models.Principal, session models.Session) error {
	switch {
	case sub.parentID == nil && session.Owner != by.TokenID && !by.Administers():
		return errs.New(errs.NotFound, "there is no session %q", sub.SessionID)
	case session.State == models.SessionClosed:
		return errs.New(errs.TaskState, "the session %q is closed", sub.SessionID).With("state", session.State)
	}
	return nil
}

// lockTaskSession locks the session of a task, if it has one. Sessions are locked before workers
// and accounts.
func (op *operation) lockTaskSession(t models.Task) error {
	if t.SessionID == "" {
		return nil
	}
	return op.tx.Sessions().LockRow(t.SessionID)
}

// leaveSession counts a task that has ended, and closes its session if a request waits for that.
func (op *operation) leaveSession(t models.Task) error {
	if t.SessionID == "" {
		return nil
	}
	waiting := wakeups.Wake{Kind: wakeups.Closed, ID: t.ID}
	tasks, err := op.tx.Sessions().EndTask(t.SessionID, op.waiters.Waits(waiting))
	if tasks > 0 {
		op.emit(events.SessionClosed, t.SessionID, events.SessionData{SessionID: t.SessionID, AgentID: t.OwnerAgent, Tasks: tasks, Reason: "closed"})
		op.commitHooks = append(op.commitHooks, func(context.Context) { op.waiters.Wake(waiting) })
	}
	return err
}

func (op *operation) closeSession(session *models.Session, why string) error {
	session.State, session.ClosedAt = models.SessionClosed, new(op.tx.Now())
	op.emit(events.SessionClosed, session.ID, events.SessionData{SessionID: session.ID, AgentID: session.AgentID, Tasks: session.Tasks, Reason: why})
	return op.tx.Sessions().Save(*session)
}

// sessionIdle is how long a session without open tasks stays open.
const sessionIdle = time.Hour

// closeIdleSessions closes sessions without tasks for sessionIdle (PROTOCOL_V5 §6.2).
func (o *Orchestrator) closeIdleSessions(ctx context.Context) error {
	before := o.store.Now().Add(-sessionIdle)
	ids, err := o.store.Sessions(ctx).Idle(before, 100)
	for _, id := range ids {
		if err != nil {
			break
		}
		err = o.transact(ctx, func(op *operation) error {
			session, err := op.tx.Sessions().Lock(id)
			if err != nil || session.State == models.SessionClosed || session.OpenTasks > 0 || !session.UpdatedAt.Before(before) {
				return err
			}
			return op.closeSession(&session, "idle")
		})
	}
	return err
}
