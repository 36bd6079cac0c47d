package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/events"
	"comet/internal/httpkit"
	"comet/models"
)

const eventsPath = "/api/v1/events"

const (
	// streamBatch is the number of events that one read returns at most.
	streamBatch = 200
	// streamChunk is the size in bytes from which buffered events are sent.
	streamChunk = 64 << 10
)

// streamEvents streams events to the client.
//
//	@Summary		Stream events
//	@Description	Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) until the client disconnects or the server stops. The `id` of an event is its position, `event` its type, and `data` one JSON object: `id`, `position`, `type`, `key`, `at` and `data`. Events arrive in the order of their positions. Every 15 seconds the stream contains a comment and, if events were filtered out, an `id` without data that moves the position forward.
//	@Description
//	@Description	Without a position the stream starts with the next event. With `Last-Event-ID`, which browsers send when they reconnect, it resumes after that position, on any replica; 0 starts with the oldest stored event. If events after that position have been deleted, the stream starts with `event: gap`, whose data is `{"after", "resumed_after"}`: the requested position and the position after which the stream resumes.
//	@Description
//	@Description	Events of tasks, sessions, workers and schedules require the scope `tasks:read`, those of agents `agents:read`, those of tool calls `tools:call`, those of workflows `tools:call` or `workflows:approve`, and all others `admin`. Without `admin`, a token with `tools:call` receives events of tool calls and workflows only if its own agent pays for them. A token with `workflows:approve` receives the events of workflows with an `approver`; if it is bound to an agent, only of those that an agent of its subtree pays for. With `workflow_id` it receives the events of any workflow that it may read. Without `types` the stream contains all events that the token may see. `agent_id` selects events about an agent, its work, and the tasks it requested.
//	@Description
//	@Description	`usage.changed` is not stored: it has no `id` and no `position`, does not move the position of the stream, and is not in `GET /api/v1/events/history` or in webhooks. A stream contains it at most once a second for each agent and replica, after changes of the agent's usage, reservations or additional budgets. Its `data` has `agent_id`, `used_today`, `subtree_used_today` (if the budget limits the subtree), `reserved`, `token_budget`, `additional_budget` and `version`, which increases with each change of the usage: no earlier version follows a later one. A client that reads slowly may miss it; read the agent's usage again.
//	@Description
//	@Description	With `format=v5`, `data` is one line of PROTOCOL_V5's log format (§10.3), for tasks of every protocol: `[TS] [LEVEL] [CTX] [TID] FROM>TO TYPE ERR DATA`. TS is in milliseconds since 1970. Agents and tasks without short ids get them.
//	@Produce		text/event-stream
//	@Param			types			query	string	false	"Only events of these types, separated by commas; `task.*` selects all types of this kind that the token may see"	maxlength(1000)	example(task.completed,task.failed)
//	@Param			agent_id		query	string	false	"Only events about this agent, its work, or the tasks it requested"	maxlength(64)	example(research-web-01)
//	@Param			task_id			query	string	false	"Only events of this task"	maxlength(64)	example(01890a5d-ac96-774b-bcce-b302099a8057)
//	@Param			workflow_id		query	string	false	"Only events of this workflow"	maxlength(64)	example(wf_034530bbngmsf6j6dh3xtmbr4g)
//	@Param			format			query	string	false	"Format of the data: `json`, or `v5` for lines of PROTOCOL_V5's log (§10.3)"	enums(json,v5)	default(json)
//	@Param			last_event_id	query	int		false	"Position of the last event you received, for clients that cannot send the header; the header takes precedence"	minimum(0)	example(42)
//	@Param			Last-Event-ID	header	string	false	"Position of the last event you received; the stream resumes after it"	example(42)
//	@Success		200	{string}	string	"The event stream"
//	@Header			200	{string}	Cache-Control
//	@Failure		503	"The server has reached its limit of concurrent streams"
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "types", "agent_id", "task_id", "workflow_id", "last_event_id", "format")
	write := s.eventEncoder(q)
	after := q.OptInt("last_event_id", 0, 1<<53)
	filter, err := s.newEventFilter(r, q)
	if err != nil {
		return err
	}
	if after, err = lastEventID(r, after); err != nil {
		return err
	}
	return s.serveEvents(w, r, after, &eventStream{limit: s.streams, encode: write, filter: filter})
}

// serveEvents writes one stream, from the position after, nil for the next event. The buffer of t
// is sent after the stream's position.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, after *int, t *eventStream) error {
	release, err := t.limit.Acquire(caller(r).TokenID)
	if err != nil {
		return err
	}
	defer release()
	from, hello, err := s.startPosition(r.Context(), after)
	if err != nil {
		return err
	}
	t.readPosition, t.sentPosition, t.buf = from, from, append(hello, t.buf...)
	t.Stream = httpkit.NewEventStream(w, s.opts.StreamWriteTimeout)
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		s.writeEvents(r, t)
	}
	return nil
}

// lastEventID returns the position in the header, or the one in the query.
func lastEventID(r *http.Request, after *int) (*int, error) {
	lines := r.Header["Last-Event-Id"]
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return after, nil
	}
	n, err := strconv.ParseUint(lines[0], 10, 53)
	if err != nil || len(lines) > 1 {
		return nil, invalidHeader("Last-Event-ID", "event_id", "Last-Event-ID must be one integer, the id of an event of this stream")
	}
	return new(int(n)), nil
}

// startPosition returns the position after which a stream starts, and its first bytes: the
// reconnection time and the position. A nil after is the current position.
func (s *Server) startPosition(ctx context.Context, after *int) (from int64, hello []byte, err error) {
	missed := false
	if after != nil {
		from, missed, err = s.core.Feed.Missed(ctx, int64(*after))
	} else {
		var sub *events.Subscription
		if sub, err = s.core.Feed.SubscribeNew(ctx); err == nil {
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

// eventStream is the state of one stream.
type eventStream struct {
	*httpkit.Stream

	limit        *httpkit.StreamLimits
	encode       eventEncoder
	filter       eventFilter
	buf          []byte // bytes to send
	readPosition int64  // position of the last event that was read
	sentPosition int64  // position that the client knows
}

// tokenCheckInterval is the interval at which the token of an idle stream is checked. A stream ends within
// two seconds of the end of its token or login, on every replica: a look-up is cached for less than a second.
const tokenCheckInterval = 500 * time.Millisecond

// writeEvents writes events until the client disconnects, its token becomes invalid, or the server
// stops.
func (s *Server) writeEvents(r *http.Request, t *eventStream) {
	ctx, stop := t.limit.UntilDrain(r.Context())
	batches := make(chan []models.Event)
	var reader sync.WaitGroup
	sub := s.core.Feed.Subscribe(t.readPosition)
	reader.Go(func() { readEvents(ctx, sub, batches) })
	defer reader.Wait()
	defer stop()
	alive := time.NewTicker(s.opts.Heartbeat)
	defer alive.Stop()
	look := time.NewTicker(tokenCheckInterval)
	defer look.Stop()
	unstored, unsubscribe := s.subscribeLive(r, t)
	defer unsubscribe()
	for t.flushBuffer() == nil {
		select {
		case <-ctx.Done():
			return
		case batch := <-batches:
			// The look-up of the token is cached for less than a second.
			if s.tokenRevoked(r) || s.appendEvents(ctx, t, batch) != nil {
				return
			}
		case batch := <-unstored:
			if s.tokenRevoked(r) || s.appendLive(t, batch) != nil {
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

// readEvents sends the events of a subscription to batches until ctx ends.
func readEvents(ctx context.Context, sub *events.Subscription, batches chan<- []models.Event) {
	for {
		batch, err := sub.Next(ctx, streamBatch)
		if err != nil {
			return
		}
		select {
		case batches <- batch:
		case <-ctx.Done():
			return
		}
	}
}

// eventView is an event as JSON.
type eventView struct {
	ID       string           `json:"id"`       // The event's id.
	Position int64            `json:"position"` // The position in the order of all events.
	Type     models.EventType `json:"type"`     // The type of the event.
	Key      string           `json:"key"`      // What the event is about, such as the id of an agent or a task.
	At       time.Time        `json:"at"`       // When the event occurred.
	Data     any              `json:"data"`     // The event's data, an object.
}

func (s *Server) appendEvents(ctx context.Context, t *eventStream, batch []models.Event) error {
	picked, err := t.filter.pick(batch)
	if err != nil {
		return err
	}
	t.readPosition = batch[len(batch)-1].Position
	for _, e := range picked {
		data, err := t.encode(ctx, e)
		if err != nil {
			return err
		}
		t.buf = httpkit.AppendEvent(t.buf, strconv.FormatInt(e.Position, 10), string(e.Type), data)
		t.sentPosition = e.Position
		if len(t.buf) >= streamChunk {
			if err := t.flushBuffer(); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveView is an event that is not stored, as JSON: it has neither an id nor a position.
type liveView struct {
	Type models.EventType `json:"type"`
	Key  string           `json:"key"`
	At   time.Time        `json:"at"`
	Data jsontext.Value   `json:"data"`
}

// appendLive appends events that are not stored. They do not move the position of the stream.
func (s *Server) appendLive(t *eventStream, batch []models.Event) error {
	picked, err := t.filter.pick(batch)
	if err != nil {
		return err
	}
	for _, e := range picked {
		data, err := s.encode(liveView{e.Type, e.Key, e.At, jsontext.Value(e.Data)})
		if err != nil {
			return err
		}
		if t.buf = httpkit.AppendEvent(t.buf, "", string(e.Type), data); len(t.buf) >= streamChunk {
			if err := t.flushBuffer(); err != nil {
				return err
			}
		}
	}
	return nil
}

// heartbeat appends a comment, and the position if events were filtered out since the last one: an
// id without data is not an event, but is sent back on reconnection.
func (t *eventStream) heartbeat() {
	t.buf = append(t.buf, ": alive\n"...)
	if t.readPosition > t.sentPosition {
		t.buf = append(t.buf, "id: "+strconv.FormatInt(t.readPosition, 10)+"\n"...)
		t.sentPosition = t.readPosition
	}
	t.buf = append(t.buf, '\n')
}

// flushBuffer sends the buffered bytes.
func (t *eventStream) flushBuffer() error {
	if len(t.buf) == 0 {
		return nil
	}
	_, err := t.Write(t.buf)
	t.buf = t.buf[:0]
	if err == nil {
		err = t.Flush()
	}
	return err
}

// eventEncoder encodes an event as one line.
type eventEncoder func(ctx context.Context, e models.Event) ([]byte, error)

// encodedEvents has the newest events as JSON, indexed by position modulo its length, so that all streams send the same bytes.
type encodedEvents [1024]atomic.Pointer[encodedEvent]

type encodedEvent struct {
	position int64
	line     []byte
}

// maxEncodedEvent is the maximum size in bytes of an encoded event that is kept.
const maxEncodedEvent = 8 << 10

func (s *Server) encodeEventJSON(_ context.Context, e models.Event) ([]byte, error) {
	slot := &s.encoded[e.Position%int64(len(s.encoded))]
	if known := slot.Load(); known != nil && known.position == e.Position {
		return known.line, nil
	}
	line, err := s.encode(newEventView(e))
	if err == nil && len(line) <= maxEncodedEvent {
		slot.Store(&encodedEvent{e.Position, line})
	}
	return line, err
}

// isStream selects responses without a time limit. They are not compressed, because compression
// delays their data.
func isStream(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return r.URL.Path == eventsPath || strings.HasPrefix(r.URL.Path, tasksPath+"/") && strings.HasSuffix(r.URL.Path, "/output")
}

// skipIf skips a middleware for the requests that is selects.
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

// tokenRevoked reports whether the token or the login of a stream has ended.
func (s *Server) tokenRevoked(r *http.Request) bool { return s.authenticator.Ended(r) }
