package transport

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/models"
)

// endReason is why a connection ends. It is sent to the agent.
type endReason string

// Error implements error.
func (r endReason) Error() string { return string(r) }

// The reasons why this process closes a connection. endDisconnected means that the agent closed it.
const (
	endReplaced      endReason = "replaced"
	endDraining      endReason = "draining"
	endTokenRejected endReason = "token not accepted"
	endSilent        endReason = "silent"
	endDisconnected  endReason = ""
)

// connection is the connection of an agent to this process, over any transport.
type connection struct {
	id       string
	agentID  string
	protocol *describedProtocol
	// peer is the agent, without a principal.
	peer protocol.Peer
	// concurrency is how many tasks the agent runs at a time.
	concurrency int
	// inFlight holds the delivered messages.
	inFlight *inFlight

	// terms are the agent's settings when it joins. It may join again with other ones.
	terms atomic.Pointer[orchestrator.JoinRequest]

	// joined is set once the agent's worker row names this connection. Nothing is delivered before.
	joined atomic.Bool
	// alive is set when the agent shows that it is alive. missedHeartbeats counts the heartbeats
	// without that.
	alive            atomic.Bool
	missedHeartbeats atomic.Int32
	// heartbeatDue is set every heartbeat, before wakeUp receives a value.
	heartbeatDue atomic.Bool
	// wakeUp makes the connection check its inbox.
	wakeUp background.Signal
	// fleeting holds publications that are delivered at most once.
	fleeting fleeting

	// done ends when the connection must end; its cause is an endReason.
	done  context.Context
	end   context.CancelCauseFunc
	slice uint8
	// recordedAt is when the agent was last recorded as alive, and rejoins the Server's number at that time.
	// Only runHeartbeats uses them.
	recordedAt time.Time
	rejoins    int64
}

// heartbeatSlices is the number of parts of a heartbeat interval. Each connection belongs to one
// part, which spreads the work.
const heartbeatSlices = 15

func (s *Server) newConnection(agent models.Agent, transport string, proto *describedProtocol, concurrency int) *connection {
	c := &connection{
		id: s.core.Work.NewConnectionID(), agentID: agent.ID, peer: protocol.Peer{Agent: agent, Transport: transport}, protocol: proto, concurrency: concurrency,
		inFlight: &inFlight{}, recordedAt: s.opts.Clock(), rejoins: s.rejoins.Load(), wakeUp: background.NewSignal(), slice: uint8(rand.Uint32N(heartbeatSlices)),
	}
	c.fleeting.arrived = background.NewSignal()
	c.done, c.end = context.WithCancelCause(context.Background())
	c.terms.Store(&orchestrator.JoinRequest{Protocol: proto.info.Name, Transport: transport, Concurrency: concurrency})
	c.alive.Store(true)
	return c
}

// reason returns why the connection ended, endDisconnected as long as it has not.
func (c *connection) reason() endReason {
	reason, _ := errors.AsType[endReason](context.Cause(c.done))
	return reason
}

// connectionRegistry holds the connections of this process, at most one for each agent.
type connectionRegistry struct {
	max   int
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	byAgent map[string]*connection
	count   int // including replaced connections that have not ended yet
	running sync.WaitGroup
	// accepting is cancelled when no more connections are accepted.
	accepting     context.Context
	stopAccepting context.CancelFunc
}

func newConnectionRegistry(limit int, gauge *prometheus.GaugeVec) *connectionRegistry {
	r := &connectionRegistry{max: limit, gauge: gauge, byAgent: map[string]*connection{}}
	r.accepting, r.stopAccepting = context.WithCancel(context.Background())
	return r
}

// checkCapacity returns errs.Unavailable if no further connection is accepted.
func (r *connectionRegistry) checkCapacity() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkCapacityLocked()
}

func (r *connectionRegistry) checkCapacityLocked() error {
	if r.accepting.Err() != nil {
		return errs.New(errs.Unavailable, "this server is shutting down")
	}
	if r.count >= r.max {
		return errs.New(errs.Unavailable, "this server has reached its limit of %d connections", r.count)
	}
	return nil
}

// add registers a connection and ends the older one of the same agent. The caller must call remove
// later. The error is that of checkCapacity.
func (r *connectionRegistry) add(c *connection) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkCapacityLocked(); err != nil {
		return err
	}
	if older := r.byAgent[c.agentID]; older != nil {
		older.end(endReplaced)
	}
	r.byAgent[c.agentID] = c
	r.count++
	r.running.Add(1)
	r.gauge.WithLabelValues(c.peer.Transport).Inc()
	return nil
}

// remove removes a connection that has ended.
func (r *connectionRegistry) remove(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAgent[c.agentID] == c {
		delete(r.byAgent, c.agentID)
	}
	r.count--
	r.gauge.WithLabelValues(c.peer.Transport).Dec()
	r.running.Done()
}

// get returns the connection of an agent, nil for none.
func (r *connectionRegistry) get(agentID string) *connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byAgent[agentID]
}

func (r *connectionRegistry) appendAll(out []*connection) []*connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(out, maps.Values(r.byAgent))
}

// drain ends every connection and accepts no more.
func (r *connectionRegistry) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopAccepting()
	for _, c := range r.byAgent {
		c.end(endDraining)
	}
}

// setNegotiated records what a join message declared. The concurrency stays as it was when the
// connection began, unless an older version limits it further.
func (c *connection) setNegotiated(reply protocol.Reply) {
	terms := orchestrator.JoinRequest{
		Protocol: c.protocol.info.Name, Transport: c.peer.Transport, Concurrency: c.concurrency,
		ProtocolVersion: reply.Version, MaxDepth: reply.MaxDepth,
	}
	if reply.Version != "" && reply.Concurrency > 0 {
		terms.Concurrency = min(terms.Concurrency, reply.Concurrency)
	}
	c.terms.Store(&terms)
}

// joinRequest returns the request that makes the agent join on this connection. connectionID is ""
// to leave the agent to other processes.
func (c *connection) joinRequest(connectionID string) orchestrator.JoinRequest {
	req := *c.terms.Load()
	req.ConnectionID = connectionID
	return req
}
