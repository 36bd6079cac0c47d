package v5

import (
	"context"
	"strings"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// noSession is the refusal of a CTX that is no session's.
func noSession(name string) error {
	if name == "" || name == wire.SystemContext {
		return refuse(wire.E42, "", "CTX must name a session, not %s", orNone(name))
	}
	return refuse(wire.E42, "", "there is no session %s", name)
}

// opensNone refuses facts in a request that opens no session: those of one that there is
// do not change.
func opensNone(data wire.Data) error {
	for p := range data.Pairs() {
		if strings.HasPrefix(p.Key, factMark) {
			return refuse(wire.E10, "", "%s is for the R that opens a session", p.Key)
		}
	}
	return nil
}

// factOf is what the session of a CTX has under a key, for whoever made it and for the
// agents that have, or had, a task in it. For others there is no such session.
func (d *Protocol) factOf(ctx context.Context, s speaker, name, key string) (string, error) {
	n, ok := contextNumber(name)
	if !ok || name == wire.SystemContext {
		return "", noSession(name)
	}
	id, err := d.work.SessionOfContext(ctx, n)
	switch {
	case isGone(err):
		return "", noSession(name)
	case err != nil:
		return "", err
	case id == "": // a task of another door, which is in none
		return "", refuse(wire.E43, "", "the session has nothing under %s", key)
	}
	session, err := d.work.Session(ctx, id)
	if err != nil {
		return "", orNotFound(err, wire.E42, "there is no session %s", name)
	}
	if session.Owner != s.TokenID && !s.Has(models.ScopeAdmin) {
		if s.agent == "" {
			return "", noSession(name)
		}
		tasks, err := d.work.Tasks(ctx, models.TaskQuery{SessionID: id, AgentID: s.agent, Limit: 1})
		if err != nil {
			return "", err
		}
		if len(tasks) == 0 {
			return "", noSession(name)
		}
	}
	return d.fact(ctx, models.Task{SessionID: id}, key)
}
