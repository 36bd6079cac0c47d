package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	"comet/models"
)

// pusher pushes to one agent. It holds the agent's line as long as what it pushes is
// taken; while it is not, the agent is off the line, and is tried again with pauses that
// grow.
type pusher struct {
	l      *Transports
	client *pushClient
	target models.PushTarget
	speech protocol.Protocol
	cancel context.CancelFunc
	// pause is how long is waited after the next failure.
	pause time.Duration
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
		wait.Reset(p.turn(ctx))
	}
}

// turn holds the line as long as it can, and returns when to try again.
func (p *pusher) turn(ctx context.Context) time.Duration {
	if !p.isFree() {
		return p.l.opts.Heartbeat / 3
	}
	err := p.mayPush(ctx)
	if err == nil {
		err = p.client.probe(ctx, p.target)
	}
	if err == nil {
		err = p.hold(ctx)
	}
	switch {
	case ctx.Err() != nil, errors.Is(err, errReplaced):
		return p.l.opts.Heartbeat / 3
	case errors.Is(err, errGone):
		_, err := p.l.core.Work.DeletePushTarget(ctx, p.target.AgentID, p.target.Secret)
		p.l.report("a push target that is gone could not be removed", p.target.AgentID, err)
		p.l.push.look()
	case p.pause == p.l.opts.PushBackoff: // the first of a row
		p.l.report("what is pushed is not taken, and is tried again", p.target.AgentID, err)
	}
	wait := p.pause
	p.pause = min(2*p.pause, p.l.opts.MaxPushBackoff)
	return wait - time.Duration(rand.Int64N(int64(wait)/4+1))
}

// errReplaced is the end of a line that the agent left for another.
var errReplaced = errors.New("the agent is on another line")

// isFree reports whether the agent is on no line. One that was pushed to by a process
// that ended without a word is on its line until it counts as silent, or at once where
// there is no other process; one that ended with a word has left it on no line.
func (p *pusher) isFree() bool {
	w := p.l.core.Work.CachedWorker(p.target.AgentID)
	if w.State == models.WorkerOffline || w.State == "" {
		return true
	}
	if w.Transport != Push {
		return false
	}
	return w.ConnectionID == "" || p.l.opts.Alone && p.l.lines.of(p.target.AgentID) == nil
}

// mayPush returns errGone where the token that registered the target is not good any
// more. While that cannot be found out, it is taken to be.
func (p *pusher) mayPush(ctx context.Context) error {
	t, err := p.l.core.Auth.Get(ctx, p.target.Owner)
	if errs.Is(err, errs.NotFound) || err == nil && !t.Active(p.l.opts.Clock()) {
		return errGone
	}
	return nil
}

// hold joins and pushes until something fails, the agent comes by another way or ctx
// ends. It returns why it ended.
func (p *pusher) hold(ctx context.Context) error {
	agent, err := p.l.accepted(ctx, p.speech, p.target.AgentID)
	if err != nil {
		return err
	}
	h := newHeld(agent.ID, Push, p.speech, p.target.Places, p.l.opts.Clock())
	if err := p.l.lines.enter(h); err != nil {
		return err
	}
	defer p.l.lines.leave(h)
	if _, err := p.l.join(ctx, h); err != nil {
		return err
	}
	h.joined.Store(true)
	defer p.l.hangup(ctx, h)
	return p.serve(ctx, h, agent)
}

func (p *pusher) serve(ctx context.Context, h *held, agent models.Agent) error {
	c, taken := &courier{l: p.l, line: h, agent: agent}, p.l.opts.Clock()
	attend := func(ctx context.Context) error {
		err := p.attend(ctx, agent.ID, &taken)
		if err == nil {
			h.shown.Store(true)
		}
		return err
	}
	err := c.carry(ctx, attend, func(one parcel) error {
		err := p.deliver(ctx, agent.ID, one)
		if err == nil {
			taken, p.pause = p.l.opts.Clock(), p.l.opts.PushBackoff
		}
		return err
	})
	if err == nil {
		return errReplaced
	}
	return err
}

// attend is what a line does every heartbeat: where nothing was pushed for long, or a
// sign of life is asked for, the agent is probed.
func (p *pusher) attend(ctx context.Context, agentID string, taken *time.Time) error {
	if err := p.mayPush(ctx); err != nil {
		return err
	}
	now := p.l.opts.Clock()
	if now.Sub(*taken) < p.l.opts.MaxPushBackoff && !p.l.core.Work.CachedWorker(agentID).Probing {
		return nil
	}
	*taken = now
	return p.client.probe(ctx, p.target)
}

// deliver pushes a message, and acknowledges it for the agent that has taken it.
func (p *pusher) deliver(ctx context.Context, agentID string, one parcel) error {
	for _, part := range one.parts {
		if err := p.client.post(ctx, p.target, part); err != nil {
			return err
		}
	}
	_, err := p.l.acknowledgeAll(context.WithoutCancel(ctx), agentID, []string{one.id})
	p.l.report("an acknowledgement was not noted", agentID, err)
	return nil
}
