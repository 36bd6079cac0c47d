package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/models"
)

// endReason is why a connection ends. It is sent to the agent.
type endReason string

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

	// negotiated is what the agent's last join message declared, nil before the first one.
	negotiated atomic.Pointer[negotiated]

	// joined is set once the agent's worker row names this connection.
	joined atomic.Bool
	// alive is set when the agent shows that it is alive. missedHeartbeats counts the heartbeats
	// without that.
	alive            atomic.Bool
	missedHeartbeats atomic.Int32
	// heartbeatDue is set every heartbeat, before wakeUp receives a value.
	heartbeatDue atomic.Bool
	wakeUp       background.Signal

	// done is closed when the connection must end, after reason was set.
	done    chan struct{}
	endOnce sync.Once
	reason  endReason
	slice   uint8
	// recordedAt is when the agent was last recorded as alive. Only runHeartbeats uses it.
	recordedAt time.Time
}

// heartbeatSlices is the number of parts of a heartbeat interval. Each connection belongs to one
// part, which spreads the work.
const heartbeatSlices = 15

func newConnection(agent models.Agent, transport string, proto *describedProtocol, concurrency int, now time.Time) *connection {
	id := uuid.New()
	c := &connection{
		id: id.String(), agentID: agent.ID, peer: protocol.Peer{Agent: agent, Transport: transport}, protocol: proto, concurrency: concurrency,
		inFlight: &inFlight{}, recordedAt: now,
		wakeUp: background.NewSignal(), done: make(chan struct{}), slice: id[15] % heartbeatSlices,
	}
	c.alive.Store(true)
	return c
}

// end asks the connection to end. Only the first reason counts.
func (c *connection) end(reason endReason) {
	c.endOnce.Do(func() {
		c.reason = reason
		close(c.done)
	})
}

// ended reports whether end was called.
func (c *connection) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wake makes the connection check its inbox.
func (c *connection) wake() { c.wakeUp.Set() }

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

// appendAll appends every connection to out.
func (r *connectionRegistry) appendAll(out []*connection) []*connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.byAgent {
		out = append(out, c)
	}
	return out
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

// negotiated is what an agent declared when it joined: the protocol version, its concurrency and
// its depth limit. An agent may join again on the same connection with other values.
type negotiated struct {
	version     string
	concurrency int
	maxDepth    int
}

// setNegotiated records what a join message declared. The concurrency stays as it was when the
// connection began, unless an older version limits it further.
func (c *connection) setNegotiated(reply protocol.Reply) {
	n := &negotiated{version: reply.Version, concurrency: c.concurrency, maxDepth: reply.MaxDepth}
	if reply.Version != "" && reply.Concurrency > 0 {
		n.concurrency = min(n.concurrency, reply.Concurrency)
	}
	c.negotiated.Store(n)
}

// joinRequest returns the request that makes the agent join on this connection. connectionID is ""
// to leave the agent to other processes.
func (c *connection) joinRequest(connectionID string) orchestrator.JoinRequest {
	req := orchestrator.JoinRequest{Protocol: c.protocol.info.Name, Transport: c.peer.Transport, ConnectionID: connectionID, Concurrency: c.concurrency}
	if n := c.negotiated.Load(); n != nil {
		req.ProtocolVersion, req.Concurrency, req.MaxDepth = n.version, n.concurrency, n.maxDepth
	}
	return req
}
