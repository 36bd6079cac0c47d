package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"comet/internal/background"
)

const (
	// maxSessionEvents and maxEvents limit the stored events of one session and of all sessions, in bytes.
	maxSessionEvents = 16 << 20
	maxEvents        = 64 << 20
	// eventLifetime limits how long an event is stored.
	eventLifetime = 10 * time.Minute
	// streamOverhead and eventOverhead are the bytes of memory of a stream and of an event without its data.
	streamOverhead = 256
	eventOverhead  = 64
	// retryField tells clients to wait a second before they resume a stream.
	retryField = "retry: 1000\n"
	// primingVersion is the first protocol version whose streams begin with an event without data, which
	// has only an id.
	primingVersion = "2025-11-25"
)

// errNotKept is the error for a stream whose events are not stored, or not all of them.
var errNotKept = errors.New("the events are not kept")

// eventStore stores the events of the streams of sessions, so that clients can resume streams. It implements
// mcp.EventStore. At its limits it removes all events of the stream whose last event is the oldest.
type eventStore struct {
	clock                  func() time.Time
	maxBytes, maxOfSession int

	mu       sync.Mutex
	sessions map[string]*sessionEvents
	recent   *streamLRU
	bytes    int
}

// streamLRU orders the streams that have events by their last event.
type streamLRU = simplelru.LRU[*eventStream, struct{}]

// sessionEvents are the streams of a session by id.
type sessionEvents struct {
	streams map[string]*eventStream
	recent  *streamLRU
	bytes   int
}

// eventStream is the stream of a POST, or that of GET, whose id is "". eventStore.mu guards its fields.
type eventStream struct {
	id      string
	session *sessionEvents
	events  []storedEvent
	first   int // index of events[0]
	bytes   int
	usedAt  time.Time                  // time of its last event, or of its opening
	reader  weak.Pointer[streamReader] // weak, so that a finished request does not stay in memory
}

type storedEvent struct {
	data []byte
	at   time.Time
}

// streamReader is a request whose response is a stream; the context of the request contains it.
type streamReader struct {
	tokenID string
	cancel  context.CancelFunc
	ended   chan struct{}
}

type streamReaderKey struct{}

func newStreamLRU() *streamLRU {
	lru, _ := simplelru.NewLRU[*eventStream, struct{}](maxEvents, nil) // fails only for a size below 1
	return lru
}

func newEventStore(clock func() time.Time) *eventStore {
	limit := min(cmp.Or(background.MemoryLimit()/16, maxEvents), maxEvents)
	return &eventStore{clock: clock, maxBytes: int(limit), maxOfSession: maxSessionEvents, sessions: map[string]*sessionEvents{}, recent: newStreamLRU()}
}

// Open implements mcp.EventStore. The first stream of a session is that of GET.
func (s *eventStore) Open(ctx context.Context, session, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		s.sessions[session] = &sessionEvents{streams: map[string]*eventStream{}, recent: newStreamLRU()}
	}
	in := s.sessions[session]
	if in == nil { // the session has ended
		return nil
	}
	e := &eventStream{id: id, session: in}
	in.streams[id] = e
	if id == "" {
		e.first = 1 // index 0 is the priming event
		return nil
	}
	e.setReader(ctx)
	s.touch(e)
	return nil
}

// Append implements mcp.EventStore.
func (s *eventStore) Append(_ context.Context, session, id string, data []byte) error {
	s.removeExpired()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(session, id)
	if e == nil {
		return errNotKept
	}
	if bytes.HasSuffix(data, []byte(cancelledResponse)) { // clients would resume a stream without a response again and again
		s.remove(e)
		return errNotKept
	}
	now := s.clock()
	for len(e.events) > 0 && now.Sub(e.events[0].at) > eventLifetime {
		s.grow(e, -len(e.events[0].data)-eventOverhead)
		e.events[0] = storedEvent{}
		e.events = e.events[1:]
		e.first++
	}
	s.touch(e)
	e.events = append(e.events, storedEvent{data, now})
	s.grow(e, len(data)+eventOverhead)
	for e.session.bytes > s.maxOfSession {
		oldest, _, _ := e.session.recent.GetOldest()
		s.remove(oldest)
	}
	for s.bytes > s.maxBytes {
		oldest, _, _ := s.recent.GetOldest()
		s.remove(oldest)
	}
	if len(e.events) == 0 { // the stream alone exceeds a limit
		return errNotKept
	}
	return nil
}

// After implements mcp.EventStore.
func (s *eventStore) After(ctx context.Context, session, id string, index int) iter.Seq2[[]byte, error] {
	s.removeExpired()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(session, id)
	if e == nil || index+1 < e.first || index >= e.first+len(e.events) {
		return func(yield func([]byte, error) bool) { yield(nil, errNotKept) }
	}
	e.setReader(ctx)
	events := slices.Clone(e.events[index+1-e.first:])
	return func(yield func([]byte, error) bool) {
		for _, event := range events {
			if !yield(event.data, nil) {
				return
			}
		}
	}
}

// SessionClosed implements mcp.EventStore.
func (s *eventStore) SessionClosed(_ context.Context, session string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.sessions[session]; in != nil {
		for _, e := range in.streams {
			s.remove(e)
		}
		delete(s.sessions, session)
	}
	return nil
}

// removeExpired removes the events of streams without an event for eventLifetime.
func (s *eventStore) removeExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		e, _, ok := s.recent.GetOldest()
		if !ok || s.clock().Sub(e.usedAt) <= eventLifetime {
			return
		}
		s.remove(e)
	}
}

// find returns a stream, nil for none. The caller of it and of the following methods holds s.mu.
func (s *eventStore) find(session, id string) *eventStream {
	if in := s.sessions[session]; in != nil {
		return in.streams[id]
	}
	return nil
}

func (s *eventStore) grow(e *eventStream, by int) {
	e.bytes += by
	e.session.bytes += by
	s.bytes += by
}

// touch marks a stream as the most recently used one.
func (s *eventStore) touch(e *eventStream) {
	if !s.recent.Contains(e) {
		s.grow(e, streamOverhead)
	}
	e.usedAt = s.clock()
	s.recent.Add(e, struct{}{})
	e.session.recent.Add(e, struct{}{})
}

// remove removes the events of a stream. Only the stream of GET can be used further.
func (s *eventStore) remove(e *eventStream) {
	s.recent.Remove(e)
	e.session.recent.Remove(e)
	s.grow(e, -e.bytes)
	e.first += len(e.events)
	e.events = nil
	if e.id != "" {
		delete(e.session.streams, e.id)
	}
}

func (e *eventStream) setReader(ctx context.Context) {
	r, _ := ctx.Value(streamReaderKey{}).(*streamReader)
	e.reader = weak.Make(r)
}

// lastEvent returns the id of the last event for GET of a session, "" for an unknown session.
func (s *eventStore) lastEvent(session string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(session, ""); e != nil {
		return "_" + strconv.Itoa(e.first+len(e.events)-1)
	}
	return ""
}

// interrupt ends the request that reads the stream of an event, if it has the token, and waits for its end.
// The server may not know yet that the connection of this request is broken.
func (s *eventStore) interrupt(ctx context.Context, session, event, tokenID string) {
	id, _, _ := strings.Cut(event, "_")
	var r *streamReader
	s.mu.Lock()
	if e := s.find(session, id); e != nil {
		r = e.reader.Value()
	}
	s.mu.Unlock()
	if r == nil || r.tokenID != tokenID {
		return
	}
	r.cancel()
	select {
	case <-r.ended:
	case <-ctx.Done():
	}
}
