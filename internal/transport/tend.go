package transport

import (
	"context"
	"time"

	"comet/internal/protocol"
	"comet/models"
)

// tend looks after all lines from one goroutine, until ctx ends: it notes who is still
// there, all of a moment in one transaction, has the lines ask those who are silent, and
// ends those that another process has replaced.
func (l *Transports) tend(ctx context.Context) {
	tick := time.NewTicker(max(l.opts.Heartbeat/turns, time.Millisecond))
	defer tick.Stop()
	var all []*held
	for turn := uint8(0); ; turn = (turn + 1) % turns {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		clear(all)
		all = l.lines.list(all[:0])
		l.beat(ctx, all, turn)
	}
}

// beat is a heartbeat for a slice of the lines, and a look at all of them.
func (l *Transports) beat(ctx context.Context, all []*held, turn uint8) {
	var shown []*held
	for _, h := range all {
		if !h.joined.Load() {
			continue
		}
		w := l.core.Work.CachedWorker(h.agentID)
		if w.ConnectionID != h.id {
			h.end(endReplaced)
			continue
		}
		if h.slice != turn && !w.Probing {
			continue
		}
		switch {
		case h.shown.Swap(false):
			h.missed.Store(0)
			shown = append(shown, h)
		case h.slice == turn:
			h.missed.Add(1)
		}
		h.due.Store(true)
		h.wake()
	}
	l.note(ctx, shown)
}

// note writes signs of life, and brings back who was taken for gone meanwhile.
func (l *Transports) note(ctx context.Context, shown []*held) {
	by := make(map[string]*held, len(shown))
	ids := make([]string, 0, len(shown))
	for _, h := range shown {
		by[h.agentID] = h
		ids = append(ids, h.agentID)
	}
	offline, err := l.core.Work.Alive(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("signs of life could not be noted", "agents", len(ids), "error", err)
		}
		return
	}
	now := l.opts.Clock()
	for _, id := range offline {
		// Somebody whose signs were noted all the time has said that it is offline.
		if h := by[id]; now.Sub(h.seen) > 2*l.opts.Heartbeat {
			_, err := l.join(ctx, h)
			l.report("an agent could not be brought back", id, err)
		}
	}
	for _, h := range shown {
		h.seen = now
	}
}

// join makes the agent of a line one that takes work on it.
func (l *Transports) join(ctx context.Context, h *held) (models.Worker, error) {
	return l.core.Work.Join(ctx, h.agentID, h.joining(h.id))
}

// accepted returns an agent that is registered and can be spoken to in a dialect.
func (l *Transports) accepted(ctx context.Context, speech protocol.Protocol, agentID string) (models.Agent, error) {
	agent, err := l.core.Work.Agent(ctx, agentID)
	if err != nil {
		return agent, err
	}
	return agent, speech.Accepts(agent)
}

// hangup takes the agent of a line that is over off it, unless it is on another one by
// now. Where this process is what ends, the agent stays: it comes back within seconds,
// or is found to be silent, and meanwhile work can be asked of it.
func (l *Transports) hangup(ctx context.Context, h *held) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.WriteTimeout)
	defer cancel()
	if l.lines.open.Err() != nil {
		l.release(ctx, h)
		return
	}
	l.report("a line's end was not noted", h.agentID, l.core.Work.Disconnect(ctx, h.agentID, h.id))
}

// release lets another process have an agent that does not come by itself: it stays on
// a line that is nobody's.
func (l *Transports) release(ctx context.Context, h *held) {
	w := l.core.Work.CachedWorker(h.agentID)
	if l.opts.Alone || w.ConnectionID != h.id || h.link != Push && h.link != Queue || w.State != models.WorkerOnline {
		return
	}
	_, err := l.core.Work.Join(ctx, h.agentID, h.joining(""))
	l.report("an agent was not left to other processes", h.agentID, err)
}
