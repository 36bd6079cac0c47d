package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/places"
	"comet/models"
)

const eventsPath = "/api/v1/events"

const (
	// streamBatch is how many events are read at a time.
	streamBatch = 200
	// streamChunk is about how many bytes of them are sent at a time.
	streamChunk = 64 << 10
)

// streamEvents tells what happens.
//
//	@Summary		Follow the events
//	@Description	Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), until the client goes or the server stops. Each has its position as `id`, its type as `event`, and as `data` one JSON object in a line: `id`, `position`, `type`, `key`, `at` and `data`. They are in the order of their positions. A comment comes every 15 seconds, and an `id` without data, which is no event, where the stream stands.
//	@Description
//	@Description	Without a position the stream begins now. With `Last-Event-ID`, which a browser sends by itself when it comes back, it goes on behind that position, on any replica; 0 begins with the oldest event that is kept. Where events have been deleted since, the stream begins with `event: gap`, whose data is `{"after", "resumed_after"}`: the position asked for, and that behind which the stream goes on.
//	@Description
//	@Description	The events of tasks, sessions and workers need the scope `tasks:read`, those of agents `agents:read`, those of tokens and webhooks `admin`; without `types` a token hears of all that it may. `agent_id` selects what happens to an agent, what it does, and what becomes of what it asked for.
//	@Description
//	@Description	With `format=v5`, `data` is one line of text in PROTOCOL_V5's log format (§10.3), as its door would say what happened, whichever protocol the task is done in: `[TS] [LEVEL] [CTX] [TID] FROM>TO TYPE ERR DATA`, TS in milliseconds since 1970. Agents and tasks that have no short names yet get them.
//	@ID				streamEvents
//	@Tags			events
//	@Produce		text/event-stream
//	@Security		BearerAuth[tasks:read]
//	@Param			types			query	string	false	"Only events of these types, separated by commas"	maxlength(1000)	example(task.completed,task.failed)
//	@Param			agent_id		query	string	false	"Only events that concern this agent"	maxlength(64)	example(research-web-01)
//	@Param			task_id			query	string	false	"Only events of this task"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			format			query	string	false	"How an event is written: as JSON, or as a line of PROTOCOL_V5's log (§10.3)"	enums(json,v5)	default(json)
//	@Param			last_event_id	query	int		false	"What Last-Event-ID says, for clients that cannot send it; the header beats it"	minimum(0)	example(42)
//	@Param			Last-Event-ID	header	string	false	"The position of the last event you have"	example(42)
//	@Success		200	{string}	string	"The stream"
//	@Header			200	{string}	Cache-Control
//	@Failure		400	"A parameter is unknown or malformed"
//	@Failure		503	"The server serves as many streams as it may"
//	@Header			503	{integer}	Retry-After
//	@Router			/api/v1/events [get]
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "types", "agent_id", "task_id", "last_event_id", "format")
	write := s.eventEncoder(q)
	after := q.OptInt("last_event_id", 0, 1<<53)
	filter, err := readEventFilter(q, caller(r))
	if err != nil {
		return err
	}
	if after, err = lastEventID(r, after); err != nil {
		return err
	}
	return s.serveEvents(w, r, after, &eventStream{limit: s.streams, encode: write, filter: filter})
}

// serveEvents takes a place among the streams of a kind and tells one, from behind a position on,
// nil for from now on. What the teller has to say first comes behind where the stream stands.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, after *int, t *eventStream) error {
	release, err := t.limit.acquire(caller(r).TokenID)
	if err != nil {
		return err
	}
	defer release()
	kept, leave, err := s.eventCache.join(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	from, hello, err := s.startPosition(r.Context(), after)
	if err != nil {
		return err
	}
	t.recent, t.readPosition, t.sentPosition, t.buf = kept, from, from, append(hello, t.buf...)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // what a proxy collects comes late
	t.stream = s.newStream(w)
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		s.writeEvents(r, t)
	}
	return nil
}

// lastEventID returns the position that the header gives, or otherwise the query.
func lastEventID(r *http.Request, after *int) (*int, error) {
	lines := r.Header["Last-Event-Id"]
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return after, nil
	}
	n, err := strconv.ParseUint(lines[0], 10, 53)
	if err != nil || len(lines) > 1 {
		return nil, invalidHeader("Last-Event-ID", "event_id", "Last-Event-ID must be the id of an event of this stream, a whole number")
	}
	return new(int(n)), nil
}

// startPosition returns the position behind which a stream begins, which is now for nil, and
// what it begins with: how long to wait before coming back, and where it stands.
func (s *Server) startPosition(ctx context.Context, after *int) (from int64, hello []byte, err error) {
	missed := false
	if after != nil {
		from, missed, err = s.feed.Missed(ctx, int64(*after))
	} else {
		var sub *events.Subscription
		if sub, err = s.feed.SubscribeNew(ctx); err == nil {
			from = sub.Position()
		}
	}
	at := strconv.FormatInt(from, 10)
	hello = []byte("retry: 1000\nid: " + at + "\n\n")
	if missed {
		hello = append(hello, "event: gap\nid: "+at+"\ndata: {\"after\":"+strconv.Itoa(*after)+",\"resumed_after\":"+at+"}\n\n"...)
	}
	return from, hello, err
}

// eventStream writes one stream.
type eventStream struct {
	*stream

	limit        *streamLimiter
	encode       eventEncoder
	filter       eventFilter
	recent       *recentEvents
	buf          []byte // that is being made
	readPosition int64  // position of the last event that was read
	sentPosition int64  // and of the last one the client knows of
}

// tokenCheckInterval is how often it is looked whether the token of a silent stream is still accepted.
const tokenCheckInterval = time.Second

// writeEvents writes events until the client goes, its token ends, or the server stops.
func (s *Server) writeEvents(r *http.Request, t *eventStream) {
	ctx, stop := t.limit.untilDrain(r.Context())
	batches := make(chan []models.Event)
	var reader sync.WaitGroup
	from := t.readPosition
	reader.Go(func() { s.readEvents(ctx, t.recent, from, batches) })
	defer reader.Wait()
	defer stop()
	alive := time.NewTicker(s.opts.Heartbeat)
	defer alive.Stop()
	look := time.NewTicker(tokenCheckInterval)
	defer look.Stop()
	for t.flushBuffer() == nil {
		select {
		case <-ctx.Done():
			return
		case batch := <-batches:
			if s.tokenRevoked(r) { // it is remembered for less than a second
				return
			}
			if s.appendEvents(ctx, t, batch) != nil {
				return
			}
		case <-look.C:
			if s.tokenRevoked(r) {
				return
			}
		case <-alive.C:
			t.heartbeat()
		}
	}
}

// readEvents hands over what happens behind a position until ctx ends.
func (s *Server) readEvents(ctx context.Context, kept *recentEvents, at int64, batches chan<- []models.Event) {
	for {
		batch, err := s.nextEvents(ctx, kept, at, streamBatch)
		if err != nil {
			return
		}
		at = batch[len(batch)-1].Position
		select {
		case batches <- batch:
		case <-ctx.Done():
			return
		}
	}
}

// eventView is an event as the stream tells it.
type eventView struct {
	ID       string           `json:"id"`
	Position int64            `json:"position"`
	Type     models.EventType `json:"type"`
	Key      string           `json:"key"`
	At       time.Time        `json:"at"`
	Data     any              `json:"data"`
}

func (s *Server) appendEvents(ctx context.Context, t *eventStream, batch []models.Event) error {
	for _, e := range batch {
		t.readPosition = e.Position
		if !t.filter.wants(e) {
			continue
		}
		data, err := t.encode(ctx, e)
		if err != nil {
			return err
		}
		t.buf = append(t.buf, "id: "+strconv.FormatInt(e.Position, 10)+"\nevent: "+string(e.Type)+"\ndata: "...)
		t.buf = append(append(t.buf, data...), "\n\n"...)
		t.sentPosition = e.Position
		if len(t.buf) >= streamChunk {
			if err := t.flushBuffer(); err != nil {
				return err
			}
		}
	}
	return nil
}

// heartbeat shows that the stream lives, and how far it is where what was read since was
// not for this client: an id without data is no event, but one to come back with.
func (t *eventStream) heartbeat() {
	t.buf = append(t.buf, ": alive\n"...)
	if t.readPosition > t.sentPosition {
		t.buf = append(t.buf, "id: "+strconv.FormatInt(t.readPosition, 10)+"\n"...)
		t.sentPosition = t.readPosition
	}
	t.buf = append(t.buf, '\n')
}

// flushBuffer sends the message that was made.
func (t *eventStream) flushBuffer() error {
	if len(t.buf) == 0 {
		return nil
	}
	_, err := t.Write(t.buf)
	t.buf = t.buf[:0]
	if err == nil {
		err = t.flush()
	}
	return err
}

// eventEncoder writes an event as a stream tells it, in one line.
type eventEncoder func(ctx context.Context, e models.Event) ([]byte, error)

// encodeEventJSON is an event as one JSON object.
func (s *Server) encodeEventJSON(_ context.Context, e models.Event) ([]byte, error) {
	return s.encode(newEventView(e))
}

// eventEncoder reads in which form a stream is asked for.
func (s *Server) eventEncoder(q *query) eventEncoder {
	if q.Enum("format", "json", "json", "v5") == "json" {
		return s.encodeEventJSON
	}
	if s.opts.FormatV5Event == nil {
		q.Fail("format", "enum", "format must be json: this server does not speak PROTOCOL_V5")
	}
	return func(ctx context.Context, e models.Event) ([]byte, error) {
		line, err := s.opts.FormatV5Event(ctx, e)
		return []byte(line), err
	}
}

// isStream selects the answers that go on for as long as their client wants. They have
// no time limit, and are not compressed, because they must leave at once.
func isStream(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return r.URL.Path == eventsPath || strings.HasPrefix(r.URL.Path, tasksPath+"/") && strings.HasSuffix(r.URL.Path, "/output")
}

// skipIf leaves a middleware out for the requests that is selects.
func skipIf(is func(*http.Request) bool, middleware func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		within := middleware(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if is(r) {
				next.ServeHTTP(w, r)
				return
			}
			within.ServeHTTP(w, r)
		})
	}
}

// streamLimiter bounds how many streams there are, of all tokens and of each, and ends them
// all when the server stops.
type streamLimiter struct {
	max, maxPerToken int
	limiter          *places.Places
	draining         context.Context
	drain            context.CancelFunc
}

// newStreamLimiter has room for most streams, a tenth of them for one token.
func newStreamLimiter(most int) *streamLimiter {
	s := &streamLimiter{max: most, maxPerToken: max(most/10, 1)}
	s.limiter = places.New(s.max, s.maxPerToken)
	s.draining, s.drain = context.WithCancel(context.Background())
	return s
}

// acquire returns what gives the place of a token's stream back, or errs.Busy where there
// is none.
func (s *streamLimiter) acquire(tokenID string) (release func(), err error) {
	release, room := s.limiter.Take(tokenID)
	switch room {
	case places.Full:
		return nil, errs.New(errs.Busy, "the server serves %d streams already", s.max)
	case places.FullForOne:
		return nil, errs.New(errs.Busy, "the token has %d streams already", s.maxPerToken)
	}
	return release, nil
}

// untilDrain returns a context that ends with ctx and when the server stops.
func (s *streamLimiter) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.draining, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// isDraining reports whether the server stops.
func (s *streamLimiter) isDraining() bool { return s.draining.Err() != nil }

// stream is an answer that is written piece by piece.
type stream struct {
	w            http.ResponseWriter
	controller   *http.ResponseController
	writeTimeout time.Duration
}

// newStream takes the time limits of the server off the connection: that for reading,
// too, because a connection whose read deadline has passed ends its request.
func (s *Server) newStream(w http.ResponseWriter) *stream {
	out := &stream{w: w, controller: http.NewResponseController(innermost(w)), writeTimeout: s.opts.StreamWriteTimeout}
	_ = out.controller.SetReadDeadline(time.Time{}) // only a test's writer cannot do this
	return out
}

// Write sends bytes within the time a client has to take them.
func (s *stream) Write(p []byte) (int, error) {
	_ = s.controller.SetWriteDeadline(time.Now().Add(s.writeTimeout))
	return s.w.Write(p)
}

// flush sends what was written, or the headers alone.
func (s *stream) flush() error {
	_ = s.controller.SetWriteDeadline(time.Now().Add(s.writeTimeout))
	return s.controller.Flush()
}

// tokenRevoked judges the token of a stream anew, which may have been revoked, or have
// expired, since it began. A database that does not answer says nothing about it.
func (s *Server) tokenRevoked(r *http.Request) bool {
	secret, err := bearer(r.Header["Authorization"])
	if err == nil {
		_, err = s.auth.Verify(r.Context(), secret)
	}
	class := errs.CodeOf(err).Class()
	return err != nil && (class == errs.ClassUnauthenticated || class == errs.ClassForbidden)
}
