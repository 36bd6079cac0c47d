package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/models"
)

// reloadInterval is how often the push targets are read, to notice changes by other processes.
const reloadInterval = 5 * time.Second

// pushers runs one pusher for each push target. Every process runs all of them. The worker row of
// an agent says which process pushes; the others wait until the worker is offline.
type pushers struct {
	server  *Server
	client  *pushClient
	poller  *background.PollLoop
	byAgent map[string]*pusher // used by run alone
	group   sync.WaitGroup
}

func newPushers(s *Server) *pushers {
	p := &pushers{server: s, client: &pushClient{s.opts.Guard.Transport(pushTimeout), s.opts.UserAgent}, byAgent: map[string]*pusher{}}
	p.poller = background.NewPollLoop(background.PollOptions{Task: "reading the push targets", Logger: s.log},
		func(ctx context.Context) (time.Duration, error) { return reloadInterval, p.syncTargets(ctx) })
	return p
}

// reload makes run read the targets again.
func (p *pushers) reload() { p.poller.Wake() }

// run keeps one pusher for each target until ctx ends.
func (p *pushers) run(ctx context.Context) {
	defer p.client.transport.CloseIdleConnections()
	defer p.group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.server.connections.accepting, cancel) // no pusher starts while the server drains
	defer stop()
	p.poller.Run(ctx)
}

// syncTargets starts and stops pushers to match the targets.
func (p *pushers) syncTargets(ctx context.Context) error {
	if err := p.server.core.Work.Check(ctx); err != nil {
		return nil //nolint:nilerr // the worker states are not loaded yet
	}
	targets, err := p.server.core.Work.PushTargets(ctx)
	if err != nil {
		return err
	}
	byAgent := make(map[string]models.PushTarget, len(targets))
	for _, t := range targets {
		byAgent[t.AgentID] = t
	}
	for id, pusher := range p.byAgent {
		if byAgent[id] != pusher.target {
			pusher.cancel()
			delete(p.byAgent, id)
		}
	}
	for id, t := range byAgent {
		if p.byAgent[id] == nil {
			p.startPusher(ctx, t)
		}
	}
	return nil
}

func (p *pushers) startPusher(ctx context.Context, t models.PushTarget) {
	pusher := &pusher{server: p.server, client: p.client, target: t, backoff: p.server.opts.PushBackoff}
	if pusher.protocol = p.server.protocols.named(t.Protocol); pusher.protocol == nil {
		p.server.log.Warn("the protocol of a push target is unknown", "agent", t.AgentID, "protocol", t.Protocol)
		pusher.cancel = func() {}
		p.byAgent[t.AgentID] = pusher
		return
	}
	ctx, pusher.cancel = context.WithCancel(ctx)
	p.byAgent[t.AgentID] = pusher
	p.group.Go(func() { pusher.run(ctx) })
}

// pusher pushes messages to one agent. It holds the agent's connection as long as the pushes
// succeed. After a failure the agent is offline, and the pusher tries again with growing pauses.
type pusher struct {
	server   *Server
	client   *pushClient
	target   models.PushTarget
	protocol *describedProtocol
	cancel   context.CancelFunc
	// backoff is the pause after the next failure.
	backoff time.Duration
	// lastPush is the time of the last push or probe.
	lastPush time.Time
}

// run pushes until ctx ends.
func (p *pusher) run(ctx context.Context) {
	for wait := time.Duration(0); background.Sleep(ctx, wait) == nil; {
		wait = p.runOnce(ctx)
	}
}

// runOnce holds the connection as long as it can, and returns the pause before the next try.
func (p *pusher) runOnce(ctx context.Context) time.Duration {
	if !p.isAgentFree() {
		return min(p.server.opts.Heartbeat/3, time.Second)
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
		p.server.logWarning("cannot remove a push target that is gone", p.target.AgentID, err)
		p.server.pushers.reload()
	case p.backoff == p.server.opts.PushBackoff: // the first failure in a row
		p.server.logWarning("cannot push to an agent; trying again", p.target.AgentID, err)
	}
	wait := p.backoff
	p.backoff = min(2*p.backoff, p.server.opts.MaxPushBackoff)
	return wait - time.Duration(rand.Int64N(int64(wait)/4+1))
}

// errReplaced says that the agent connected in another way.
var errReplaced = errors.New("the agent has another connection")

// isAgentFree reports whether the agent has no connection. After a crash, the agent of the crashed
// process still has one until it times out, or until this process notices that it is the only one.
// A process that stopped cleanly left an empty connection id.
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

// checkOwner returns errGone if the token that registered the target is no longer valid. If that
// cannot be checked, the token counts as valid.
func (p *pusher) checkOwner(ctx context.Context) error {
	t, err := p.server.core.Auth.Get(ctx, models.System(), p.target.Owner)
	if errs.Is(err, errs.NotFound) || err == nil && !t.Active(p.server.opts.Clock()) {
		return errGone
	}
	return nil
}

// holdConnection joins and pushes until a push fails, the agent connects in another way or ctx
// ends. It returns the reason.
func (p *pusher) holdConnection(ctx context.Context) error {
	agent, err := p.server.acceptedAgent(ctx, p.protocol, p.target.AgentID)
	if err != nil {
		return err
	}
	c := p.server.newConnection(agent, Push, p.protocol, p.target.Concurrency)
	return p.server.hold(ctx, c, func() error {
		p.lastPush = p.server.opts.Clock()
		d := &deliverer{server: p.server, conn: c}
		onHeartbeat := func(ctx context.Context) error { return p.onHeartbeat(ctx, c) }
		if err := d.run(ctx, onHeartbeat, func(out outbound) error { return p.pushMessage(ctx, out) }); err != nil {
			return err
		}
		return errReplaced
	})
}

// onHeartbeat probes the agent if nothing was pushed for a while or if the circuit breaker waits
// for a sign of life.
func (p *pusher) onHeartbeat(ctx context.Context, c *connection) error {
	err := p.checkOwner(ctx)
	now := p.server.opts.Clock()
	if err == nil && (now.Sub(p.lastPush) >= p.server.opts.MaxPushBackoff || p.server.core.Work.CachedWorker(c.agentID).Probing) {
		p.lastPush = now
		err = p.client.probe(ctx, p.target)
	}
	if err == nil {
		c.alive.Store(true)
	}
	return err
}

// pushMessage pushes a message and acknowledges it on behalf of the agent.
func (p *pusher) pushMessage(ctx context.Context, out outbound) error {
	for _, part := range out.parts {
		if err := p.client.post(ctx, p.target, p.protocol.info.ContentTypes[0], part); err != nil {
			return err
		}
	}
	p.lastPush, p.backoff = p.server.opts.Clock(), p.server.opts.PushBackoff
	_, err := p.server.acknowledgeAll(context.WithoutCancel(ctx), p.target.AgentID, []string{out.id})
	p.server.logWarning("cannot record an acknowledgement", p.target.AgentID, err)
	return nil
}
