package transport

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/models"
)

const (
	// pollConnectionID is the connection id of every polling agent: any replica may serve the next
	// poll.
	pollConnectionID = "poll"
	// maxAckBody is the longest list of message ids, in bytes.
	maxAckBody = 1 << 20
	// maxInboxBytes limits a response, in bytes, unless its only message is longer.
	maxInboxBytes = MaxMessageBytes
)

// poller holds the delivered messages of an agent that polls.
type poller struct {
	mu       sync.Mutex // serializes the requests of the agent
	inFlight *inFlight
}

// inboxMessages is the response to a poll.
type inboxMessages struct {
	Messages []jsontext.Value `json:"messages"` // The messages, oldest first.
}

// textMessage is how a response contains a message of a protocol whose messages are text.
type textMessage struct {
	MessageID string `json:"message_id"`
	Text      string `json:"text"`
}

// pollInbox returns the messages of an agent and waits for one if there is none. A poll counts as a
// heartbeat and makes the agent available for tasks.
//
//	@Summary		Poll the inbox
//	@Description	Returns the messages in the inbox, oldest first, or waits for one. Polling makes the agent available for tasks. A delivered message is not returned again for 30 seconds (`transport.redeliver_after`); after that it is returned again until it is acknowledged. A response is at most 8 MiB long, unless a single message is longer; the next poll returns the rest. A message of a protocol whose messages are text is an object with its `message_id` and its `text`. A second request of the same agent ends the first one. Only tokens bound to an agent are accepted; any other is 5004.
//	@Param			wait		query	int		false	"How many seconds to wait for a message"	minimum(0)	maximum(60)	default(0)	example(30)
//	@Param			limit		query	int		false	"The maximum number of messages to return"	minimum(1)	maximum(1000)	default(100)
//	@Success		200	{object}	schema.InboxMessages	"The messages; empty if none arrived in time"
//	@Failure		400	"5003: a parameter is unknown or malformed, or the agent has no type"
//	@Failure		422	"5006: no version in common"
//	@Failure		503	"5002: the server has reached its connection limit, or is shutting down"
//	@Router			/api/agent/inbox [get]
func (s *Server) pollInbox(w http.ResponseWriter, r *http.Request, _ httpkit.Identity, agentID string) error {
	q := httpkit.NewQuery(r, "wait", "limit", "concurrency", "versions", "protocol")
	wait := time.Duration(q.Int("wait", 0, int(maxWait/time.Second), 0)) * time.Second
	limit := q.Int("limit", 1, maxInboxMessages, 100)
	c, _, err := s.requestedConnection(r, q, Poll, agentID)
	if err != nil {
		return err
	}
	c.id, c.inFlight = pollConnectionID, s.pollerOf(agentID).inFlight
	if err := s.connections.add(c); err != nil {
		return err
	}
	defer s.connections.remove(c)
	extendDeadlines(w, wait)
	ctx, cancel := context.WithTimeout(r.Context(), wait+bodyTimeout)
	defer cancel()
	if err := s.joinPoller(ctx, c); err != nil {
		return err
	}
	out, err := s.waitForMessages(ctx, c, limit, wait)
	if err != nil {
		return err
	}
	return writeJSON(w, inboxMessages{out})
}

// joinPoller records that a polling agent is alive. The agent joins only if it is not known as a
// polling agent already.
func (s *Server) joinPoller(ctx context.Context, c *connection) error {
	worker := s.core.Work.CachedWorker(c.agentID)
	if worker.ConnectionID == c.id && worker.Transport == Poll && worker.Concurrency == c.concurrency && worker.Protocol == c.protocol.info.Name && worker.State != models.WorkerOffline {
		offline, err := s.core.Work.KeepAlive(ctx, []string{c.agentID})
		if err == nil && len(offline) == 0 {
			c.joined.Store(true)
			return nil
		}
	}
	return s.join(ctx, c)
}

// waitForMessages waits until a message can be delivered and returns the deliverable messages. A
// message is not returned again for a while, not even to another request. The result is empty when
// wait is over, the request ends or the connection is replaced.
func (s *Server) waitForMessages(ctx context.Context, c *connection, limit int, wait time.Duration) ([]jsontext.Value, error) {
	inboxChanged, stop := s.core.Work.Inbox(c.agentID)
	defer stop()
	timeout := time.After(wait)
	for {
		out, next, err := s.collectMessages(ctx, c, limit)
		if err != nil || len(out) > 0 || wait == 0 {
			return out, err
		}
		c.alive.Store(true) // the request is still open
		select {
		case <-inboxChanged:
		case <-c.wakeUp:
		case <-c.fleeting.arrived:
		case <-time.After(minPositive(s.opts.Heartbeat, next)):
		case <-timeout:
			wait = 0 // check once more, then return
		case <-c.done.Done():
			return []jsontext.Value{}, nil
		case <-ctx.Done():
			return []jsontext.Value{}, nil
		}
	}
}

// collectMessages returns the messages that can be delivered now, and the time until another one is
// due.
func (s *Server) collectMessages(ctx context.Context, c *connection, limit int) (out []jsontext.Value, next time.Duration, err error) {
	p := s.pollerOf(c.agentID)
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &deliverer{server: s, conn: c, redeliverAfter: s.opts.Redeliver}
	out, size := []jsontext.Value{}, 0
	send := func(p outbound) error {
		for _, part := range p.parts {
			size += len(part)
		}
		if len(out) > 0 && size > maxInboxBytes {
			return errResponseFull
		}
		for _, part := range p.parts {
			if c.protocol.isText() {
				var err error
				if part, err = json.Marshal(textMessage{p.id, string(part)}); err != nil {
					return err
				}
			}
			out = append(out, part)
		}
		return nil
	}
	if err = d.deliverFleeting(ctx, send); err == nil {
		next, err = d.deliverPending(ctx, limit, send)
	}
	if err == errResponseFull { //nolint:errorlint // errResponseFull is never wrapped
		err = nil
	}
	return out, next, err
}

// errResponseFull stops collecting messages once the response is long enough.
var errResponseFull = errs.New(errs.BodyTooLarge, "the response is full")

// pollerOf returns the poller of an agent, a new one if there is none.
func (s *Server) pollerOf(agentID string) *poller {
	p := &poller{inFlight: &inFlight{}}
	if known, ok, _ := s.pollers.PeekOrAdd(agentID, p); ok {
		s.pollers.Get(agentID) // marks it as recently used
		return known
	}
	return p
}

// acknowledgement is the request body of POST …/inbox/ack.
type acknowledgement struct {
	MessageIDs []string `json:"message_ids" validate:"required" example:"019bd3a1-6c1e-7c4e-9d55-2f6f6f0d3f10"` // The ids of the messages.
}

// acknowledged is its response.
type acknowledged struct {
	// How many of the messages were in the inbox.
	Acknowledged int64 `json:"acknowledged" example:"1"`
}

// acknowledgeInbox acknowledges messages of the agent's inbox.
//
//	@Summary		Acknowledge messages
//	@Description	Removes messages from the inbox: they are not delivered again. Acknowledge a message when the agent has stored it, not when its task is done. Ids that are not in the inbox are ignored. Only tokens bound to an agent are accepted; any other is 5004.
//	@Param			ids	body	acknowledgement	true	"The messages' ids"
//	@Success		200	{object}	acknowledged	"The messages were removed"
//	@Failure		400	"5003: the body is malformed"
//	@Router			/api/agent/inbox/ack [post]
func (s *Server) acknowledgeInbox(w http.ResponseWriter, r *http.Request, _ httpkit.Identity, agentID string) error {
	raw, err := readBody(w, r, maxAckBody)
	if err != nil {
		return err
	}
	var ack acknowledgement
	if err := input.DecodeJSON(raw, &ack); err != nil {
		return err
	}
	if ack.MessageIDs == nil {
		return input.Violated("/message_ids", "required", "message_ids is required")
	}
	n, err := s.acknowledgeAll(r.Context(), agentID, ack.MessageIDs)
	if err != nil {
		return err
	}
	return writeJSON(w, acknowledged{n})
}

// acknowledgeAll removes messages from the inbox and from the in-flight messages.
func (s *Server) acknowledgeAll(ctx context.Context, agentID string, ids []string) (int64, error) {
	n, err := s.core.Work.Acknowledge(ctx, agentID, ids)
	if err == nil {
		s.forgetAcked(agentID, ids)
	}
	return n, err
}

// forgetAcked removes acknowledged messages from the in-flight messages, and wakes the agent's
// connection, which may have capacity again.
func (s *Server) forgetAcked(agentID string, ids []string) {
	if p, ok := s.pollers.Peek(agentID); ok {
		p.inFlight.markAcked(ids)
	}
	if c := s.connections.get(agentID); c != nil {
		c.inFlight.markAcked(ids)
		c.wakeUp.Set()
	}
}
