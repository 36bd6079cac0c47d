package transport

import (
	"context"
	"time"

	"comet/internal/background"
	"comet/models"
)

// runHeartbeats monitors all connections until ctx ends. It records live agents, all of one moment
// in one transaction, makes connections ping their agents, and ends connections that another
// process has replaced.
func (s *Server) runHeartbeats(ctx context.Context) {
	interval := max(s.opts.Heartbeat/heartbeatSlices, time.Millisecond)
	var all []*connection
	for slice := uint8(0); background.Sleep(ctx, interval) == nil; slice = (slice + 1) % heartbeatSlices {
		clear(all)
		all = s.connections.appendAll(all[:0])
		s.heartbeat(ctx, all, slice)
	}
}

// heartbeat checks every connection and performs the heartbeat of one slice of them.
func (s *Server) heartbeat(ctx context.Context, all []*connection, slice uint8) {
	var alive []*connection
	for _, c := range all {
		joined, w := c.joined.Load(), s.core.Work.CachedWorker(c.agentID)
		if joined && w.ConnectionID != c.id {
			c.end(endReplaced)
			continue
		}
		if c.slice != slice && !(joined && w.Probing) {
			continue
		}
		switch {
		case c.alive.Swap(false):
			c.missedHeartbeats.Store(0)
			if joined {
				alive = append(alive, c)
			}
		case c.slice == slice:
			c.missedHeartbeats.Add(1)
		}
		c.heartbeatDue.Store(true)
		c.wakeUp.Set()
	}
	s.recordAlive(ctx, alive)
}

// recordAlive records that the agents of the connections are alive. An agent that was marked
// offline by mistake joins again.
func (s *Server) recordAlive(ctx context.Context, alive []*connection) {
	byAgent := make(map[string]*connection, len(alive))
	ids := make([]string, 0, len(alive))
	for _, c := range alive {
		byAgent[c.agentID] = c
		ids = append(ids, c.agentID)
	}
	offline, err := s.core.Work.KeepAlive(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("cannot record heartbeats", "agents", len(ids), "error", err)
		}
		return
	}
	now, rejoins := s.opts.Clock(), s.rejoins.Load()
	for _, id := range offline {
		// An agent that was recorded all the time has declared itself offline.
		if c := byAgent[id]; now.Sub(c.recordedAt) > 2*s.opts.Heartbeat || c.rejoins != rejoins {
			s.logWarning("cannot bring an agent back online", id, s.join(ctx, c))
		}
	}
	for _, c := range alive {
		c.recordedAt, c.rejoins = now, rejoins
	}
}

// Rejoin brings the agents of all connections back online that other processes have marked offline, with
// their next heartbeats.
func (s *Server) Rejoin() { s.rejoins.Add(1) }

// join makes the agent of a connection available for tasks, which are delivered from then on.
func (s *Server) join(ctx context.Context, c *connection) error {
	_, err := s.core.Work.Join(ctx, c.agentID, c.joinRequest(c.id))
	if err == nil {
		c.joined.Store(true)
		if c.fleeting.next(nil) != nil {
			c.fleeting.arrived.Set()
		}
	}
	return err
}

// hold registers a connection, joins, and serves the agent until serve returns.
func (s *Server) hold(ctx context.Context, c *connection, serve func() error) error {
	if err := s.connections.add(c); err != nil {
		return err
	}
	defer s.connections.remove(c)
	if err := s.join(ctx, c); err != nil {
		return err
	}
	defer s.disconnect(ctx, c)
	return serve()
}

// acceptedAgent returns a registered agent that the protocol can address.
func (s *Server) acceptedAgent(ctx context.Context, proto *describedProtocol, agentID string) (models.Agent, error) {
	agent, err := s.core.Work.Agent(ctx, agentID)
	if err != nil {
		return agent, err
	}
	return agent, proto.Accepts(agent)
}

// disconnect records that the connection of an agent ended, unless the agent has another one by
// now. While this process stops the agent stays online: it reconnects within seconds or times out,
// and tasks can be submitted to it in the meantime.
func (s *Server) disconnect(ctx context.Context, c *connection) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.WriteTimeout)
	defer cancel()
	if s.connections.accepting.Err() != nil {
		s.release(ctx, c)
		return
	}
	s.logWarning("cannot record a disconnection", c.agentID, s.core.Work.Disconnect(ctx, c.agentID, c.id))
}

// release lets another process serve an agent that does not connect by itself: the agent stays
// online without a connection id.
func (s *Server) release(ctx context.Context, c *connection) {
	w := s.core.Work.CachedWorker(c.agentID)
	if s.opts.SingleProcess || w.ConnectionID != c.id || c.peer.Transport != Push && c.peer.Transport != NATS || w.State != models.WorkerOnline {
		return
	}
	_, err := s.core.Work.Join(ctx, c.agentID, c.joinRequest(""))
	s.logWarning("cannot release an agent to other processes", c.agentID, err)
}
