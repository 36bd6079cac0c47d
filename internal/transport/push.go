package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
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

// pusher pushes to one agent. It holds the agent's line as long as what it pushes is
// taken; while it is not, the agent is off the line, and is tried again with pauses that
// grow.
type pusher struct {
	server   *Server
	client   *pushClient
	target   models.PushTarget
	protocol protocol.Protocol
	cancel   context.CancelFunc
	// backoff is how long is waited after the next failure.
	backoff time.Duration
}

// run pushes until ctx ends.
func (p *pusher) run(ctx context.Context) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		wait.Reset(p.runOnce(ctx))
	}
}

// runOnce holds the line as long as it can, and returns when to try again.
func (p *pusher) runOnce(ctx context.Context) time.Duration {
	if !p.isAgentFree() {
		return p.server.opts.Heartbeat / 3
	}
	err := p.checkOwner(ctx)
	if err == nil {
		err = p.client.probe(ctx, p.target)
	}
	if err == nil {
		err = p.holdConnection(ctx)
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, errReplaced):
		return p.server.opts.Heartbeat / 3
	case errors.Is(err, errGone):
		_, err := p.server.core.Work.DeletePushTarget(ctx, p.target.AgentID, p.target.Secret)
		p.server.logWarning("a push target that is gone could not be removed", p.target.AgentID, err)
		p.server.pushers.reload()
	case p.backoff == p.server.opts.PushBackoff: // the first of a row
		p.server.logWarning("what is pushed is not taken, and is tried again", p.target.AgentID, err)
	}
	wait := p.backoff
	p.backoff = min(2*p.backoff, p.server.opts.MaxPushBackoff)
	return wait - time.Duration(rand.Int64N(int64(wait)/4+1))
}

// errReplaced is the end of a line that the agent left for another.
var errReplaced = errors.New("the agent is on another line")

// isAgentFree reports whether the agent is on no line. One that was pushed to by a process
// that ended without a word is on its line until it counts as silent, or at once where
// there is no other process; one that ended with a word has left it on no line.
func (p *pusher) isAgentFree() bool {
	w := p.server.core.Work.CachedWorker(p.target.AgentID)
	if w.State == models.WorkerOffline || w.State == "" {
		return true
	}
	if w.Transport != Push {
		return false
	}
	return w.ConnectionID == "" || p.server.opts.SingleProcess && p.server.connections.get(p.target.AgentID) == nil
}

// checkOwner returns errGone where the token that registered the target is not good any
// more. While that cannot be found out, it is taken to be.
func (p *pusher) checkOwner(ctx context.Context) error {
	t, err := p.server.core.Auth.Get(ctx, p.target.Owner)
	if errs.Is(err, errs.NotFound) || err == nil && !t.Active(p.server.opts.Clock()) {
		return errGone
	}
	return nil
}

// holdConnection joins and pushes until something fails, the agent comes by another way or ctx
// ends. It returns why it ended.
func (p *pusher) holdConnection(ctx context.Context) error {
	agent, err := p.server.acceptedAgent(ctx, p.protocol, p.target.AgentID)
	if err != nil {
		return err
	}
	h := newConnection(agent.ID, Push, p.protocol, p.target.Places, p.server.opts.Clock())
	if err := p.server.connections.add(h); err != nil {
		return err
	}
	defer p.server.connections.remove(h)
	if _, err := p.server.join(ctx, h); err != nil {
		return err
	}
	h.joined.Store(true)
	defer p.server.disconnect(ctx, h)
	return p.serve(ctx, h, agent)
}

func (p *pusher) serve(ctx context.Context, h *connection, agent models.Agent) error {
	c, taken := &deliverer{server: p.server, conn: h, agent: agent}, p.server.opts.Clock()
	attend := func(ctx context.Context) error {
		err := p.onHeartbeat(ctx, agent.ID, &taken)
		if err == nil {
			h.alive.Store(true)
		}
		return err
	}
	err := c.run(ctx, attend, func(one outbound) error {
		err := p.pushMessage(ctx, agent.ID, one)
		if err == nil {
			taken, p.backoff = p.server.opts.Clock(), p.server.opts.PushBackoff
		}
		return err
	})
	if err == nil {
		return errReplaced
	}
	return err
}

// onHeartbeat is what a line does every heartbeat: where nothing was pushed for long, or a
// sign of life is asked for, the agent is probed.
func (p *pusher) onHeartbeat(ctx context.Context, agentID string, taken *time.Time) error {
	if err := p.checkOwner(ctx); err != nil {
		return err
	}
	now := p.server.opts.Clock()
	if now.Sub(*taken) < p.server.opts.MaxPushBackoff && !p.server.core.Work.CachedWorker(agentID).Probing {
		return nil
	}
	*taken = now
	return p.client.probe(ctx, p.target)
}

// pushMessage pushes a message, and acknowledges it for the agent that has taken it.
func (p *pusher) pushMessage(ctx context.Context, agentID string, one outbound) error {
	for _, part := range one.parts {
		if err := p.client.post(ctx, p.target, part); err != nil {
			return err
		}
	}
	_, err := p.server.acknowledgeAll(context.WithoutCancel(ctx), agentID, []string{one.id})
	p.server.logWarning("an acknowledgement was not noted", agentID, err)
	return nil
}
