package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
)

// endReason is why a line ends, as its agent is told.
type endReason string

// The reasons for which a line is ended from this side, and the one from the other.
const (
	endReplaced      endReason = "replaced"
	endDraining      endReason = "draining"
	endTokenRejected endReason = "token not accepted"
	endSilent        endReason = "silent"
	endDisconnected  endReason = ""
)

// connection is a line to an agent while this process holds it.
type connection struct {
	id        string
	agentID   string
	transport string
	protocol  protocol.Protocol
	// concurrency is how many attempts its agent takes at a time.
	concurrency int
	// inFlight are the messages that were handed over.
	inFlight *inFlight

	// negotiated is what the agent has said when it came last, nil for nothing.
	negotiated atomic.Pointer[negotiated]

	// joined is set once the agent's worker names this line.
	joined atomic.Bool
	// alive is set when the agent shows that it lives; missed counts the heartbeats
	// without that.
	alive            atomic.Bool
	missedHeartbeats atomic.Int32
	// heartbeatDue is set every heartbeat, before kick receives.
	heartbeatDue atomic.Bool
	wakeUp       chan struct{}

	// done is closed when the line is to end, after why was set.
	done    chan struct{}
	endOnce sync.Once
	reason  endReason
	slice   uint8
	// recordedAt is when its sign of life was last noted. It is the tending loop's.
	recordedAt time.Time
}

// heartbeatSlices is into how many parts a heartbeat is divided, so that not all lines are
// looked at in the same moment.
const heartbeatSlices = 15

func newConnection(agentID, link string, speech protocol.Protocol, places int, now time.Time) *connection {
	id := uuid.New()
	h := &connection{
		id: id.String(), agentID: agentID, transport: link, protocol: speech, concurrency: places, inFlight: &inFlight{}, recordedAt: now,
		wakeUp: make(chan struct{}, 1), done: make(chan struct{}), slice: id[15] % heartbeatSlices,
	}
	h.alive.Store(true)
	return h
}

// end ends a line; the first reason counts.
func (h *connection) end(why endReason) {
	h.endOnce.Do(func() {
		h.reason = why
		close(h.done)
	})
}

// ended reports whether the line is to end.
func (h *connection) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// wake has a line look at its inbox.
func (h *connection) wake() {
	select {
	case h.wakeUp <- struct{}{}:
	default:
	}
}

// connectionRegistry are those that this process holds: one an agent.
type connectionRegistry struct {
	max   int
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	byAgent map[string]*connection
	count   int // also of those that are replaced and not over yet
	running sync.WaitGroup
	// accepting ends when no line is taken any more.
	accepting     context.Context
	stopAccepting context.CancelFunc
}

func newConnectionRegistry(most int, gauge *prometheus.GaugeVec) *connectionRegistry {
	s := &connectionRegistry{max: most, gauge: gauge, byAgent: map[string]*connection{}}
	s.accepting, s.stopAccepting = context.WithCancel(context.Background())
	return s
}

// checkCapacity returns errs.Unavailable where no more lines can be held.
func (s *connectionRegistry) checkCapacity() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkCapacityLocked()
}

func (s *connectionRegistry) checkCapacityLocked() error {
	if s.accepting.Err() != nil {
		return errs.New(errs.Unavailable, "this server is shutting down")
	}
	if s.count >= s.max {
		return errs.New(errs.Unavailable, "this server holds %d lines and takes no more", s.count)
	}
	return nil
}

// add takes a line and ends the older one of its agent. Whoever is let in leaves. The
// error is that of room.
func (s *connectionRegistry) add(h *connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkCapacityLocked(); err != nil {
		return err
	}
	if older := s.byAgent[h.agentID]; older != nil {
		older.end(endReplaced)
	}
	s.byAgent[h.agentID] = h
	s.count++
	s.running.Add(1)
	s.gauge.WithLabelValues(h.transport).Inc()
	return nil
}

// remove gives a line up that is over.
func (s *connectionRegistry) remove(h *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byAgent[h.agentID] == h {
		delete(s.byAgent, h.agentID)
	}
	s.count--
	s.gauge.WithLabelValues(h.transport).Dec()
	s.running.Done()
}

// get returns the line of an agent, nil for none.
func (s *connectionRegistry) get(agentID string) *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byAgent[agentID]
}

// appendAll appends every line to out.
func (s *connectionRegistry) appendAll(out []*connection) []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.byAgent {
		out = append(out, h)
	}
	return out
}

// drain ends every line and takes none any more.
func (s *connectionRegistry) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAccepting()
	for _, h := range s.byAgent {
		h.end(endDraining)
	}
}

// negotiated is the version of the dialect that is spoken with an agent on its line, how many
// tasks it takes at a time in it, and how deep they may be. It may say another one without hanging up, while the
// line is looked after.
type negotiated struct {
	version     string
	concurrency int
	maxDepth    int
}

// setNegotiated notes the version in which an agent has come. A line keeps the places that it
// began with, but in another version than the newest it may have fewer.
func (h *connection) setNegotiated(a protocol.Reply) {
	out := &negotiated{version: a.Version, concurrency: h.concurrency, maxDepth: a.MaxDepth}
	if a.Version != "" && a.Concurrency > 0 {
		out.concurrency = min(out.concurrency, a.Concurrency)
	}
	h.negotiated.Store(out)
}

// joinRequest is what the agent of a line says when it comes on it. line names the
// connection, "" where it is gone and the agent is left to other processes.
func (h *connection) joinRequest(line string) orchestrator.JoinRequest {
	j := orchestrator.JoinRequest{Dialect: h.protocol.Name(), Link: h.transport, Line: line, Places: h.concurrency}
	if a := h.negotiated.Load(); a != nil {
		j.Version, j.Places, j.MaxDepth = a.version, a.concurrency, a.maxDepth
	}
	return j
}
