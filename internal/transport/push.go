package transport

import (
	"context"
	"sync"
	"time"

	"comet/models"
)

// reloadInterval is how often is looked for targets that another process has changed.
const reloadInterval = 5 * time.Second

// pushers are those who push, one a target. Every process has all of them, and the line
// of a target's worker says which of them pushes: the others stand by until the worker
// is off the line.
type pushers struct {
	server  *Server
	client  *pushClient
	wakeUp  chan struct{}
	byAgent map[string]*pusher // of the loop alone
	group   sync.WaitGroup
}

func newPushers(l *Server) *pushers {
	return &pushers{server: l, client: newPushClient(&l.opts), wakeUp: make(chan struct{}, 1), byAgent: map[string]*pusher{}}
}

// reload has the targets read again.
func (p *pushers) reload() {
	select {
	case p.wakeUp <- struct{}{}:
	default:
	}
}

// run keeps a pusher for each target, until ctx ends.
func (p *pushers) run(ctx context.Context) {
	defer p.client.close()
	defer p.group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.server.connections.accepting, cancel) // nothing is begun while the lines end
	defer stop()
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	for {
		if err := p.syncTargets(ctx); err != nil && ctx.Err() == nil {
			p.server.log.Warn("the push targets could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wakeUp:
		}
	}
}

// syncTargets begins and ends pushers as the targets say.
func (p *pushers) syncTargets(ctx context.Context) error {
	if err := p.server.core.Work.Check(ctx); err != nil {
		return nil //nolint:nilerr // who is on a line is not known yet; soon it is
	}
	targets, err := p.server.core.Work.PushTargets(ctx)
	if err != nil {
		return err
	}
	now := make(map[string]models.PushTarget, len(targets))
	for _, t := range targets {
		now[t.AgentID] = t
	}
	for id, one := range p.byAgent {
		if now[id] != one.target {
			one.cancel()
			delete(p.byAgent, id)
		}
	}
	for id, t := range now {
		if p.byAgent[id] == nil {
			p.startPusher(ctx, t)
		}
	}
	return nil
}

func (p *pushers) startPusher(ctx context.Context, t models.PushTarget) {
	one := &pusher{server: p.server, client: p.client, target: t, backoff: p.server.opts.PushBackoff}
	for _, d := range p.server.core.Protocols {
		if d.Name() == t.Dialect {
			one.protocol = d
		}
	}
	if one.protocol == nil {
		p.server.log.Warn("a push target's dialect is not spoken here", "agent", t.AgentID, "dialect", t.Dialect)
		one.cancel = func() {}
		p.byAgent[t.AgentID] = one
		return
	}
	ctx, one.cancel = context.WithCancel(ctx)
	p.byAgent[t.AgentID] = one
	p.group.Go(func() { one.run(ctx) })
}
