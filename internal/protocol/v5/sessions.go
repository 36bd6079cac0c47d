package v5

import (
	"context"
	"strings"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// unknownSession is the refusal of a CTX that is no session's.
func unknownSession(name string) error {
	if name == "" || name == wire.SystemContext {
		return errorf(wire.E42, "", "CTX must name a session, not %s", orDash(name))
	}
	return errorf(wire.E42, "", "there is no session %s", name)
}

// rejectFacts refuses facts in a request that opens no session: those of one that there is
// do not change.
func rejectFacts(data wire.Data) error {
	for p := range data.Pairs() {
		if strings.HasPrefix(p.Key, factPrefix) {
			return errorf(wire.E10, "", "%s is for the R that opens a session", p.Key)
		}
	}
	return nil
}

// contextFact is what the session of a CTX has under a key, for whoever made it and for the
// agents that have, or had, a task in it. For others there is no such session.
func (p *Protocol) contextFact(ctx context.Context, s sender, name, key string) (string, error) {
	n, ok := contextNumber(name)
	if !ok || name == wire.SystemContext {
		return "", unknownSession(name)
	}
	id, err := p.orchestrator.SessionOfContext(ctx, n)
	switch {
	case isNotFound(err):
		return "", unknownSession(name)
	case err != nil:
		return "", err
	case id == "": // a task of another door, which is in none
		return "", errorf(wire.E43, "", "the session has no fact %s", key)
	}
	session, err := p.orchestrator.Session(ctx, id)
	if err != nil {
		return "", notFoundAs(err, wire.E42, "there is no session %s", name)
	}
	if session.Owner != s.TokenID && !s.Has(models.ScopeAdmin) {
		if s.agentID == "" {
			return "", unknownSession(name)
		}
		tasks, err := p.orchestrator.Tasks(ctx, models.TaskQuery{SessionID: id, AgentID: s.agentID, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(tasks) == 0 {
			return "", unknownSession(name)
		}
	}
	return p.sessionFact(ctx, models.Task{SessionID: id}, key)
}
