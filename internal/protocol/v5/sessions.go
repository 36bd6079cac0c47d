package v5

import (
	"context"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// reservedContexts is the number of contexts whose names are reserved. Names such as Schedule, which
// only later contexts have, are not.
const reservedContexts = 100_000_000

// ReservesSession reports whether an id is reserved for the sessions of this protocol: S1, S2, etc.
// Without the reservation, the session of another API could have the id of a future context.
func ReservesSession(id string) bool {
	n, is := shortid.ContextNumber(id)
	return is && n >= 0 && n < reservedContexts
}

func (p *Protocol) findSession(ctx context.Context, s sender, name string) (n int64, id string, err error) {
	n, ok := shortid.ContextNumber(name)
	if ok {
		id, err = shortid.SessionID(ctx, p.store, n)
	}
	unknown := errorf(codes.E42, "", "there is no session %s; - opens one", name)
	switch {
	case !ok || isNotFound(err) || err == nil && id == "":
		return n, id, unknown
	case err != nil:
		return n, id, err
	}
	session, err := p.orchestrator.Session(ctx, id)
	switch {
	case isNotFound(err) || err == nil && session.Owner != s.TokenID && !s.Administers():
		err = unknown
	case err == nil && session.State == models.SessionClosed:
		err = errorf(codes.E42, "", "the session %s is closed; - opens another one", name)
	}
	return n, id, err
}

// closeSession closes the session that was opened for a request, when its requester receives the
// outcome (PROTOCOL_V5 §6.2). A session with other open tasks stays open.
func (p *Protocol) closeSession(ctx context.Context, t models.Task) {
	if t.Class != Class || t.SessionID == "" {
		return
	}
	order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
	if err == nil {
		if meta, invalid := readRequestMeta(order.Input); invalid != nil || !meta.Closes {
			return
		}
		_, err = p.orchestrator.CloseSession(context.WithoutCancel(ctx), t.SessionID)
	}
	if err != nil && !errs.Is(err, errs.TaskState) && !isNotFound(err) {
		p.log.Warn("a session could not be closed", "session", t.SessionID, "error", err)
	}
}

// contextFact returns a fact of the session of a CTX. Its owner may read it, and the agents that
// have or had a task in the session; for other senders the session does not exist.
func (p *Protocol) contextFact(ctx context.Context, s sender, name, key string) (string, error) {
	n, ok := shortid.ContextNumber(name)
	if !ok || name == wire.SystemContext {
		return "", unknownSession(name)
	}
	id, err := shortid.SessionID(ctx, p.store, n)
	switch {
	case isNotFound(err):
		return "", unknownSession(name)
	case err != nil:
		return "", err
	case id == "": // a task of another protocol that is in no session
		return "", errorf(codes.E43, "", "the session has no fact %s", key)
	}
	session, err := p.orchestrator.Session(ctx, id)
	if err != nil {
		return "", notFoundAs(err, codes.E42, "there is no session %s", name)
	}
	if session.Owner != s.TokenID && !s.Administers() {
		if s.agentID == "" {
			return "", unknownSession(name)
		}
		tasks, err := p.orchestrator.Tasks(ctx, orchestrator.TaskQuery{SessionID: id, AgentID: s.agentID, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(tasks) == 0 {
			return "", unknownSession(name)
		}
	}
	return factOf(session, key)
}

func (p *Protocol) sessionFact(ctx context.Context, t models.Task, key string) (string, error) {
	session, err := p.orchestrator.Session(ctx, t.SessionID)
	if err != nil && !isNotFound(err) {
		return "", err
	}
	return factOf(session, key)
}

func factOf(session models.Session, key string) (string, error) {
	if value, ok := resultField(string(session.Facts), key); ok {
		return value, nil
	}
	return "", errorf(codes.E43, "", "the session has no fact %s", key)
}

// taskByShortID returns the task with a short id, or errs.NotFound.
func (p *Protocol) taskByShortID(ctx context.Context, id shortid.ID) (models.Task, error) {
	taskID, err := p.shortIDs.TaskID(ctx, id)
	if err != nil {
		return models.Task{}, err
	}
	return p.orchestrator.Task(ctx, taskID)
}
