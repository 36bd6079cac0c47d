package transport

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/strictjson"
	"comet/models"
)

const (
	// pollConnectionID is the name of every line that is asked for: which replica is asked
	// does not matter.
	pollConnectionID = "poll"
	// maxAckBody is how long a list of message ids may be, in bytes.
	maxAckBody = 1 << 20
	// maxInboxBytes is how long an answer may be, in bytes, unless its one message is longer.
	maxInboxBytes = MaxMessageBytes
)

// poller is what was handed over to an agent that asks for its inbox.
type poller struct {
	mu       sync.Mutex // one request after the other
	inFlight *inFlight
}

// inboxMessages is the answer to somebody who asks for an inbox.
type inboxMessages struct {
	Messages []jsontext.Value `json:"messages"`
}

// getInbox answers with what an agent is to be told, and waits for it where there is
// nothing yet. Asking is a sign of life and makes the agent one that takes work.
//
//	@Summary		Ask for the inbox
//	@Description	Answers with the messages there are, oldest first, or waits for one. Asking makes the agent one that takes work. A message that was handed over is not handed over again for 30 seconds (`links.redeliver_after`), and then until it is acknowledged. An answer is no longer than 8 MiB, unless one message is; what is left comes with the next. A second request of the same agent ends the first. For tokens that are bound to an agent; any other is 5004.
//	@ID				pollInbox
//	@Tags			agent door
//	@Produce		json
//	@Security		BearerAuth
//	@Param			wait		query	int		false	"For how many seconds the answer may wait for a message"	minimum(0)	maximum(60)	default(0)	example(30)
//	@Param			limit		query	int		false	"How many messages to answer with at most"	minimum(1)	maximum(1000)	default(100)
//	@Param			concurrency	query	int		false	"How many tasks the agent takes at a time"	minimum(1)	maximum(1000)	default(1)	example(4)
//	@Param			versions	query	string	false	"The versions of the protocol that the agent knows, separated by commas; the lowest common one is spoken"	example(1.0,2.0)
//	@Success		200	{object}	schema.InboxMessages	"What there is, nothing where the wait is over"
//	@Failure		400	"5003: a parameter is unknown or malformed, or the agent has no type"
//	@Failure		422	"5006: no version in common"
//	@Failure		503	"5002: this server holds as many lines as it may, or stops"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/inbox [get]
func (l *Server) getInbox(w http.ResponseWriter, r *http.Request, _ caller, agentID string) error {
	q := parseQuery(r, "wait", "limit", "concurrency", "versions")
	wait := time.Duration(q.intParam("wait", 0, int(maxWait/time.Second), 0)) * time.Second
	limit, places := q.intParam("limit", 1, maxInboxMessages, 100), q.intParam("concurrency", 1, orchestrator.MaxPlaces, 1)
	if q.err != nil {
		return q.err
	}
	if _, err := l.defaultProtocol.Negotiate(q.listParam("versions")); err != nil {
		return err
	}
	agent, err := l.acceptedAgent(r.Context(), l.defaultProtocol, agentID)
	if err != nil {
		return err
	}
	h := newConnection(agentID, Poll, l.defaultProtocol, places, l.opts.Clock())
	h.id, h.inFlight = pollConnectionID, l.pollerOf(agentID).inFlight
	if err := l.connections.add(h); err != nil {
		return err
	}
	defer l.connections.remove(h)
	extendDeadlines(w, wait)
	ctx, cancel := context.WithTimeout(r.Context(), wait+bodyTimeout)
	defer cancel()
	if err := l.joinPoller(ctx, h); err != nil {
		return err
	}
	out, err := l.waitForMessages(ctx, h, agent, limit, wait)
	if err != nil {
		return err
	}
	return writeJSON(w, inboxMessages{out})
}

// joinPoller shows that an agent that asks is there. It has to join only where it is not
// known as one that asks.
func (l *Server) joinPoller(ctx context.Context, h *connection) error {
	known := l.core.Work.CachedWorker(h.agentID)
	if known.ConnectionID == h.id && known.Transport == h.transport && known.Concurrency == h.concurrency && known.Protocol == h.protocol.Name() && known.State != models.WorkerOffline {
		offline, err := l.core.Work.Alive(ctx, []string{h.agentID})
		if err == nil && len(offline) == 0 {
			h.joined.Store(true)
			return nil
		}
	}
	_, err := l.join(ctx, h)
	h.joined.Store(err == nil)
	return err
}

// waitForMessages waits until there is something to hand over, and returns it. A message is not
// handed over again for a while, also not to another request. Where wait is over, the
// request gone or the line replaced, there is nothing.
func (l *Server) waitForMessages(ctx context.Context, h *connection, agent models.Agent, limit int, wait time.Duration) ([]jsontext.Value, error) {
	news, stop := l.core.Work.Inbox(h.agentID)
	defer stop()
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		out, later, err := l.collectMessages(ctx, h, agent, limit)
		if err != nil || len(out) > 0 || wait == 0 {
			return out, err
		}
		h.alive.Store(true) // the request is still there
		again := time.NewTimer(minPositive(l.opts.Heartbeat, later))
		select {
		case <-news:
		case <-h.wakeUp:
		case <-again.C:
		case <-over.C:
			wait = 0 // a last look
		case <-h.done:
			again.Stop()
			return []jsontext.Value{}, nil
		case <-ctx.Done():
			again.Stop()
			return []jsontext.Value{}, nil
		}
		again.Stop()
	}
}

// collectMessages returns what can be handed over now, and when there will be something again.
func (l *Server) collectMessages(ctx context.Context, h *connection, agent models.Agent, limit int) (out []jsontext.Value, later time.Duration, err error) {
	a := l.pollerOf(h.agentID)
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &deliverer{server: l, conn: h, agent: agent, redeliverAfter: l.opts.Redeliver}
	out, size := []jsontext.Value{}, 0
	later, err = c.deliverPending(ctx, limit, func(p outbound) error {
		if size += p.size(); len(out) > 0 && size > maxInboxBytes {
			return errResponseFull
		}
		for _, part := range p.parts {
			out = append(out, part)
		}
		return nil
	})
	if err == errResponseFull { //nolint:errorlint // it is ours and comes as it is
		err = nil
	}
	return out, later, err
}

// errResponseFull ends a round whose answer is long enough.
var errResponseFull = errs.New(errs.BodyTooLarge, "the answer is full")

// pollerOf returns what is remembered of an agent that asks.
func (l *Server) pollerOf(agentID string) *poller {
	fresh := &poller{inFlight: &inFlight{}}
	if known, ok, _ := l.pollers.PeekOrAdd(agentID, fresh); ok {
		l.pollers.Get(agentID) // it was used
		return known
	}
	return fresh
}

// acknowledgement is the body of POST …/inbox/ack.
type acknowledgement struct {
	MessageIDs []string `json:"message_ids" validate:"required" example:"019bd3a1-6c1e-7c4e-9d55-2f6f6f0d3f10"`
}

// acknowledged is the answer to it.
type acknowledged struct {
	// How many of them were in the inbox.
	Acknowledged int64 `json:"acknowledged" example:"1"`
}

// ackInbox removes messages from the inbox of an agent that has them.
//
//	@Summary		Acknowledge messages
//	@Description	Takes messages out of the inbox: they do not come again. Do it when they are safe where the agent is, not when the work is done. Ids that are not in the inbox are passed over. For tokens that are bound to an agent; any other is 5004.
//	@ID				acknowledgeInbox
//	@Tags			agent door
//	@Accept			json
//	@Produce		json
//	@Security		BearerAuth
//	@Param			ids	body	acknowledgement	true	"The messages' ids"
//	@Success		200	{object}	acknowledged	"They are out of the inbox"
//	@Failure		400	"5003: the body cannot be read"
//	@x-comet-failures	"ErrorEnvelope"
//	@Router			/api/agent/inbox/ack [post]
func (l *Server) ackInbox(w http.ResponseWriter, r *http.Request, _ caller, agentID string) error {
	raw, err := readBody(w, r, maxAckBody)
	if err != nil {
		return err
	}
	var ack acknowledgement
	if err := strictjson.Decode(raw, &ack); err != nil {
		return err
	}
	n, err := l.acknowledgeAll(r.Context(), agentID, ack.MessageIDs)
	if err != nil {
		return err
	}
	return writeJSON(w, acknowledged{n})
}

// acknowledgeAll removes messages from an inbox, forgets that they were handed over, and
// has the agent's line look whether there is room for more.
func (l *Server) acknowledgeAll(ctx context.Context, agentID string, ids []string) (int64, error) {
	n, err := l.core.Work.Acknowledge(ctx, agentID, ids)
	if err != nil {
		return n, err
	}
	if a, ok := l.pollers.Peek(agentID); ok {
		a.inFlight.markAcked(ids)
	}
	if h := l.connections.get(agentID); h != nil {
		h.inFlight.markAcked(ids)
		h.wake()
	}
	return n, nil
}
