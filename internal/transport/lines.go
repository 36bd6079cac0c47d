package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/errs"
	"comet/internal/protocol"
)

// ending is why a line ends, as its agent is told.
type ending string

// The reasons for which a line is ended from this side, and the one from the other.
const (
	endReplaced ending = "replaced"
	endDraining ending = "draining"
	endRefused  ending = "token not accepted"
	endSilent   ending = "silent"
	endHungUp   ending = ""
)

// held is a line to an agent while this process holds it.
type held struct {
	id      string
	agentID string
	link    string
	speech  protocol.Protocol
	// places is how many attempts its agent takes at a time.
	places int
	// sent are the messages that were handed over.
	sent *handed

	// agreed is what the agent has said when it came last, nil for nothing.
	agreed atomic.Pointer[agreed]

	// joined is set once the agent's worker names this line.
	joined atomic.Bool
	// shown is set when the agent shows that it lives; missed counts the heartbeats
	// without that.
	shown  atomic.Bool
	missed atomic.Int32
	// due is set every heartbeat, before kick receives.
	due  atomic.Bool
	kick chan struct{}

	// over is closed when the line is to end, after why was set.
	over  chan struct{}
	once  sync.Once
	why   ending
	slice uint8
	// seen is when its sign of life was last noted. It is the tending loop's.
	seen time.Time
}

// turns is into how many parts a heartbeat is divided, so that not all lines are
// looked at in the same moment.
const turns = 15

func newHeld(agentID, link string, speech protocol.Protocol, places int, now time.Time) *held {
	id := uuid.New()
	h := &held{
		id: id.String(), agentID: agentID, link: link, speech: speech, places: places, sent: &handed{}, seen: now,
		kick: make(chan struct{}, 1), over: make(chan struct{}), slice: id[15] % turns,
	}
	h.shown.Store(true)
	return h
}

// end ends a line; the first reason counts.
func (h *held) end(why ending) {
	h.once.Do(func() {
		h.why = why
		close(h.over)
	})
}

// ended reports whether the line is to end.
func (h *held) ended() bool {
	select {
	case <-h.over:
		return true
	default:
		return false
	}
}

// wake has a line look at its inbox.
func (h *held) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// lines are those that this process holds: one an agent.
type lines struct {
	most  int
	gauge *prometheus.GaugeVec

	mu      sync.Mutex
	all     map[string]*held
	n       int // also of those that are replaced and not over yet
	running sync.WaitGroup
	// open ends when no line is taken any more.
	open  context.Context
	close context.CancelFunc
}

func newLines(most int, gauge *prometheus.GaugeVec) *lines {
	s := &lines{most: most, gauge: gauge, all: map[string]*held{}}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

// room returns errs.Unavailable where no more lines can be held.
func (s *lines) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasRoom()
}

func (s *lines) hasRoom() error {
	if s.open.Err() != nil {
		return errs.New(errs.Unavailable, "this server is shutting down")
	}
	if s.n >= s.most {
		return errs.New(errs.Unavailable, "this server holds %d lines and takes no more", s.n)
	}
	return nil
}

// enter takes a line and ends the older one of its agent. Whoever is let in leaves. The
// error is that of room.
func (s *lines) enter(h *held) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hasRoom(); err != nil {
		return err
	}
	if older := s.all[h.agentID]; older != nil {
		older.end(endReplaced)
	}
	s.all[h.agentID] = h
	s.n++
	s.running.Add(1)
	s.gauge.WithLabelValues(h.link).Inc()
	return nil
}

// leave gives a line up that is over.
func (s *lines) leave(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[h.agentID] == h {
		delete(s.all, h.agentID)
	}
	s.n--
	s.gauge.WithLabelValues(h.link).Dec()
	s.running.Done()
}

// of returns the line of an agent, nil for none.
func (s *lines) of(agentID string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[agentID]
}

// list appends every line to out.
func (s *lines) list(out []*held) []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		out = append(out, h)
	}
	return out
}

// drain ends every line and takes none any more.
func (s *lines) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
	for _, h := range s.all {
		h.end(endDraining)
	}
}
