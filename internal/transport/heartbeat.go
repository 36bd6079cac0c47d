package transport

import (
	"context"
	"time"

	"comet/internal/protocol"
	"comet/models"
)

// runHeartbeats looks after all lines from one goroutine, until ctx ends: it notes who is still
// there, all of a moment in one transaction, has the lines ask those who are silent, and
// ends those that another process has replaced.
func (l *Server) runHeartbeats(ctx context.Context) {
	tick := time.NewTicker(max(l.opts.Heartbeat/heartbeatSlices, time.Millisecond))
	defer tick.Stop()
	var all []*connection
	for turn := uint8(0); ; turn = (turn + 1) % heartbeatSlices {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		clear(all)
		all = l.connections.appendAll(all[:0])
		l.heartbeat(ctx, all, turn)
	}
}

// heartbeat is a heartbeat for a slice of the lines, and a look at all of them.
func (l *Server) heartbeat(ctx context.Context, all []*connection, turn uint8) {
	var shown []*connection
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
		case h.alive.Swap(false):
			h.missedHeartbeats.Store(0)
			shown = append(shown, h)
		case h.slice == turn:
			h.missedHeartbeats.Add(1)
		}
		h.heartbeatDue.Store(true)
		h.wake()
	}
	l.recordAlive(ctx, shown)
}

// recordAlive writes signs of life, and brings back who was taken for gone meanwhile.
func (l *Server) recordAlive(ctx context.Context, shown []*connection) {
	by := make(map[string]*connection, len(shown))
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
		if h := by[id]; now.Sub(h.recordedAt) > 2*l.opts.Heartbeat {
			_, err := l.join(ctx, h)
			l.logWarning("an agent could not be brought back", id, err)
		}
	}
	for _, h := range shown {
		h.recordedAt = now
	}
}

// join makes the agent of a line one that takes work on it.
func (l *Server) join(ctx context.Context, h *connection) (models.Worker, error) {
	return l.core.Work.Join(ctx, h.agentID, h.joinRequest(h.id))
}

// acceptedAgent returns an agent that is registered and can be spoken to in a dialect.
func (l *Server) acceptedAgent(ctx context.Context, speech protocol.Protocol, agentID string) (models.Agent, error) {
	agent, err := l.core.Work.Agent(ctx, agentID)
	if err != nil {
		return agent, err
	}
	return agent, speech.Accepts(agent)
}

// disconnect takes the agent of a line that is over off it, unless it is on another one by
// now. Where this process is what ends, the agent stays: it comes back within seconds,
// or is found to be silent, and meanwhile work can be asked of it.
func (l *Server) disconnect(ctx context.Context, h *connection) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.WriteTimeout)
	defer cancel()
	if l.connections.accepting.Err() != nil {
		l.release(ctx, h)
		return
	}
	l.logWarning("a line's end was not noted", h.agentID, l.core.Work.Disconnect(ctx, h.agentID, h.id))
}

// release lets another process have an agent that does not come by itself: it stays on
// a line that is nobody's.
func (l *Server) release(ctx context.Context, h *connection) {
	w := l.core.Work.CachedWorker(h.agentID)
	if l.opts.SingleProcess || w.ConnectionID != h.id || h.transport != Push && h.transport != NATS || w.State != models.WorkerOnline {
		return
	}
	_, err := l.core.Work.Join(ctx, h.agentID, h.joinRequest(""))
	l.logWarning("an agent was not left to other processes", h.agentID, err)
}
