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
	write := s.eventForm(q)
	after := q.OptInt("last_event_id", 0, 1<<53)
	filter, err := readEventFilter(q, caller(r))
	if err != nil {
		return err
	}
	if after, err = lastEventID(r, after); err != nil {
		return err
	}
	return s.follow(w, r, after, &teller{of: s.streams, write: write, filter: filter})
}

// follow takes a place among the streams of a kind and tells one, from behind a position on,
// nil for from now on. What the teller has to say first comes behind where the stream stands.
func (s *Server) follow(w http.ResponseWriter, r *http.Request, after *int, t *teller) error {
	release, err := t.of.take(caller(r).TokenID)
	if err != nil {
		return err
	}
	defer release()
	kept, leave, err := s.news.join(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	from, hello, err := s.begin(r.Context(), after)
	if err != nil {
		return err
	}
	t.kept, t.read, t.told, t.message = kept, from, from, append(hello, t.message...)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // what a proxy collects comes late
	t.stream = s.newStream(w)
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		s.tell(r, t)
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

// begin returns the position behind which a stream begins, which is now for nil, and
// what it begins with: how long to wait before coming back, and where it stands.
func (s *Server) begin(ctx context.Context, after *int) (from int64, hello []byte, err error) {
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

// teller writes one stream.
type teller struct {
	*stream

	of      *streams
	write   eventForm
	filter  eventFilter
	kept    *newest
	message []byte // that is being made
	read    int64  // position of the last event that was read
	told    int64  // and of the last one the client knows of
}

// lookAtToken is how often it is looked whether the token of a silent stream is still accepted.
const lookAtToken = time.Second

// tell writes events until the client goes, its token ends, or the server stops.
func (s *Server) tell(r *http.Request, t *teller) {
	ctx, stop := t.of.until(r.Context())
	batches := make(chan []models.Event)
	var reader sync.WaitGroup
	from := t.read
	reader.Go(func() { s.readEvents(ctx, t.kept, from, batches) })
	defer reader.Wait()
	defer stop()
	alive := time.NewTicker(s.opts.Heartbeat)
	defer alive.Stop()
	look := time.NewTicker(lookAtToken)
	defer look.Stop()
	for t.send() == nil {
		select {
		case <-ctx.Done():
			return
		case batch := <-batches:
			if s.revoked(r) { // it is remembered for less than a second
				return
			}
			if s.addEvents(ctx, t, batch) != nil {
				return
			}
		case <-look.C:
			if s.revoked(r) {
				return
			}
		case <-alive.C:
			t.heartbeat()
		}
	}
}

// readEvents hands over what happens behind a position until ctx ends.
func (s *Server) readEvents(ctx context.Context, kept *newest, at int64, batches chan<- []models.Event) {
	for {
		batch, err := s.next(ctx, kept, at, streamBatch)
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

func (s *Server) addEvents(ctx context.Context, t *teller, batch []models.Event) error {
	for _, e := range batch {
		t.read = e.Position
		if !t.filter.wants(e) {
			continue
		}
		data, err := t.write(ctx, e)
		if err != nil {
			return err
		}
		t.message = append(t.message, "id: "+strconv.FormatInt(e.Position, 10)+"\nevent: "+string(e.Type)+"\ndata: "...)
		t.message = append(append(t.message, data...), "\n\n"...)
		t.told = e.Position
		if len(t.message) >= streamChunk {
			if err := t.send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// heartbeat shows that the stream lives, and how far it is where what was read since was
// not for this client: an id without data is no event, but one to come back with.
func (t *teller) heartbeat() {
	t.message = append(t.message, ": alive\n"...)
	if t.read > t.told {
		t.message = append(t.message, "id: "+strconv.FormatInt(t.read, 10)+"\n"...)
		t.told = t.read
	}
	t.message = append(t.message, '\n')
}

// send sends the message that was made.
func (t *teller) send() error {
	if len(t.message) == 0 {
		return nil
	}
	_, err := t.Write(t.message)
	t.message = t.message[:0]
	if err == nil {
		err = t.flush()
	}
	return err
}

// eventForm writes an event as a stream tells it, in one line.
type eventForm func(ctx context.Context, e models.Event) ([]byte, error)

// asJSON is an event as one JSON object.
func (s *Server) asJSON(_ context.Context, e models.Event) ([]byte, error) {
	return s.encode(newEventView(e))
}

// eventForm reads in which form a stream is asked for.
func (s *Server) eventForm(q *query) eventForm {
	if q.Enum("format", "json", "json", "v5") == "json" {
		return s.asJSON
	}
	if s.opts.V5 == nil {
		q.Fail("format", "enum", "format must be json: this server does not speak PROTOCOL_V5")
	}
	return func(ctx context.Context, e models.Event) ([]byte, error) {
		line, err := s.opts.V5(ctx, e)
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

// unless leaves a middleware out for the requests that is selects.
func unless(is func(*http.Request) bool, middleware func(http.Handler) http.Handler) func(http.Handler) http.Handler {
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

// streams bounds how many streams there are, of all tokens and of each, and ends them
// all when the server stops.
type streams struct {
	most, each int
	places     *places.Places
	over       context.Context
	drain      context.CancelFunc
}

// newStreams has room for most streams, a tenth of them for one token.
func newStreams(most int) *streams {
	s := &streams{most: most, each: max(most/10, 1)}
	s.places = places.New(s.most, s.each)
	s.over, s.drain = context.WithCancel(context.Background())
	return s
}

// take returns what gives the place of a token's stream back, or errs.Busy where there
// is none.
func (s *streams) take(tokenID string) (release func(), err error) {
	release, room := s.places.Take(tokenID)
	switch room {
	case places.Full:
		return nil, errs.New(errs.Busy, "the server serves %d streams already", s.most)
	case places.FullForOne:
		return nil, errs.New(errs.Busy, "the token has %d streams already", s.each)
	}
	return release, nil
}

// until returns a context that ends with ctx and when the server stops.
func (s *streams) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.over, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ending reports whether the server stops.
func (s *streams) ending() bool { return s.over.Err() != nil }

// stream is an answer that is written piece by piece.
type stream struct {
	w        http.ResponseWriter
	out      *http.ResponseController
	patience time.Duration
}

// newStream takes the time limits of the server off the connection: that for reading,
// too, because a connection whose read deadline has passed ends its request.
func (s *Server) newStream(w http.ResponseWriter) *stream {
	out := &stream{w: w, out: http.NewResponseController(innermost(w)), patience: s.opts.StreamPatience}
	_ = out.out.SetReadDeadline(time.Time{}) // only a test's writer cannot do this
	return out
}

// Write sends bytes within the time a client has to take them.
func (s *stream) Write(p []byte) (int, error) {
	_ = s.out.SetWriteDeadline(time.Now().Add(s.patience))
	return s.w.Write(p)
}

// flush sends what was written, or the headers alone.
func (s *stream) flush() error {
	_ = s.out.SetWriteDeadline(time.Now().Add(s.patience))
	return s.out.Flush()
}

// revoked judges the token of a stream anew, which may have been revoked, or have
// expired, since it began. A database that does not answer says nothing about it.
func (s *Server) revoked(r *http.Request) bool {
	secret, err := bearer(r.Header["Authorization"])
	if err == nil {
		_, err = s.auth.Verify(r.Context(), secret)
	}
	class := errs.CodeOf(err).Class()
	return err != nil && (class == errs.ClassUnauthenticated || class == errs.ClassForbidden)
}
