package transport

import (
	"context"
	"sync"
	"time"

	"comet/models"
)

// lookForTargets is how often is looked for targets that another process has changed.
const lookForTargets = 5 * time.Second

// pushers are those who push, one a target. Every process has all of them, and the line
// of a target's worker says which of them pushes: the others stand by until the worker
// is off the line.
type pushers struct {
	l      *Transports
	client *pushClient
	kick   chan struct{}
	all    map[string]*pusher // of the loop alone
	group  sync.WaitGroup
}

func newPushers(l *Transports) *pushers {
	return &pushers{l: l, client: newPushClient(&l.opts), kick: make(chan struct{}, 1), all: map[string]*pusher{}}
}

// look has the targets read again.
func (p *pushers) look() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// run keeps a pusher for each target, until ctx ends.
func (p *pushers) run(ctx context.Context) {
	defer p.client.close()
	defer p.group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.l.lines.open, cancel) // nothing is begun while the lines end
	defer stop()
	tick := time.NewTicker(lookForTargets)
	defer tick.Stop()
	for {
		if err := p.read(ctx); err != nil && ctx.Err() == nil {
			p.l.log.Warn("the push targets could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.kick:
		}
	}
}

// read begins and ends pushers as the targets say.
func (p *pushers) read(ctx context.Context) error {
	if err := p.l.core.Work.Check(ctx); err != nil {
		return nil //nolint:nilerr // who is on a line is not known yet; soon it is
	}
	targets, err := p.l.core.Work.PushTargets(ctx)
	if err != nil {
		return err
	}
	now := make(map[string]models.PushTarget, len(targets))
	for _, t := range targets {
		now[t.AgentID] = t
	}
	for id, one := range p.all {
		if now[id] != one.target {
			one.cancel()
			delete(p.all, id)
		}
	}
	for id, t := range now {
		if p.all[id] == nil {
			p.begin(ctx, t)
		}
	}
	return nil
}

func (p *pushers) begin(ctx context.Context, t models.PushTarget) {
	one := &pusher{l: p.l, client: p.client, target: t, pause: p.l.opts.PushBackoff}
	for _, d := range p.l.core.Dialects {
		if d.Name() == t.Dialect {
			one.speech = d
		}
	}
	if one.speech == nil {
		p.l.log.Warn("a push target's dialect is not spoken here", "agent", t.AgentID, "dialect", t.Dialect)
		one.cancel = func() {}
		p.all[t.AgentID] = one
		return
	}
	ctx, one.cancel = context.WithCancel(ctx)
	p.all[t.AgentID] = one
	p.group.Go(func() { one.run(ctx) })
}
