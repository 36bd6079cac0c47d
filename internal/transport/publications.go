package transport

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/pubsub"
	"comet/models"
)

// fleeting holds the publications that a connection gets at most once and has not sent yet. It is safe for concurrent use.
type fleeting struct {
	mu      sync.Mutex
	waiting []*models.Publication
	arrived background.Signal
}

// maxFleeting limits the publications that wait for a slow connection; further ones are dropped.
const maxFleeting = 100

// add adds a publication and reports whether there was room.
func (f *fleeting) add(p *models.Publication) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) >= maxFleeting {
		return false
	}
	f.waiting = append(f.waiting, p)
	f.arrived.Set()
	return true
}

// next returns the oldest publication, nil for none, after it has removed the previous one, which was sent.
func (f *fleeting) next(sent *models.Publication) *models.Publication {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent != nil {
		f.waiting = f.waiting[1:]
	}
	if len(f.waiting) == 0 {
		f.waiting = nil
		return nil
	}
	return f.waiting[0]
}

// receivePublications passes publications that are delivered at most once to the connections of this process, until ctx
// ends.
func (s *Server) receivePublications(ctx context.Context) {
	if s.core.Bus == nil || s.core.PubSub == nil {
		return
	}
	sub := s.subscribeTo(ctx, "subscribing to publications", func() (*bus.Subscription, error) {
		return s.core.Bus.Subscribe(string(bus.Publications), func(m bus.Message) {
			var p models.Publication
			if json.Unmarshal(m.Data, &p) == nil { // a replica has written it
				s.logWarning("cannot read the subscribers of a publication", p.From, s.passOn(ctx, &p))
			}
		})
	})
	if sub == nil {
		return
	}
	<-ctx.Done()
	sub.Unsubscribe()
}

// passOn passes a publication to those of the connected agents that receive it.
func (s *Server) passOn(ctx context.Context, p *models.Publication) error {
	var agents []string
	for _, c := range s.connections.appendAll(nil) {
		if c.joined.Load() {
			agents = append(agents, c.agentID)
		}
	}
	if len(agents) == 0 {
		return nil
	}
	receivers, err := s.core.PubSub.Among(ctx, *p, agents)
	for _, id := range receivers {
		if c := s.connections.get(id); c != nil && !c.fleeting.add(p) {
			s.core.PubSub.Dropped.Inc()
		}
	}
	return err
}

// deliverFleeting sends the publications that the connection gets at most once. One that cannot be rendered is dropped.
func (d *deliverer) deliverFleeting(ctx context.Context, send func(outbound) error) error {
	for p := d.conn.fleeting.next(nil); p != nil; p = d.conn.fleeting.next(p) {
		parts, err := d.render(ctx, models.InboxMessage{AgentID: d.conn.agentID, ID: p.ID, Kind: models.MessagePublication, Priority: 1, Attempt: 1, CreatedAt: p.CreatedAt, Publication: p})
		if err != nil || len(parts) == 0 {
			d.server.logWarning("cannot render a publication; it is dropped", d.conn.agentID, err)
			continue
		}
		if err := send(outbound{p.ID, parts}); err != nil {
			return err
		}
		d.server.metrics.messages.WithLabelValues(d.conn.peer.Transport, "out").Inc()
	}
	return nil
}

// open returns a publication that is due with its content, and the time until it is due otherwise. ok is false if it must
// not be delivered now.
func (d *deliverer) open(ctx context.Context, m models.InboxMessage, prev delivery, now time.Time) (out models.InboxMessage, wait time.Duration, ok bool) {
	if wait = max(m.NotBefore.Sub(now), prev.due.Sub(now)); wait > 0 || d.server.core.PubSub == nil {
		return m, wait, false
	}
	out, ok, err := d.server.core.PubSub.Open(ctx, m)
	if err != nil {
		d.server.logWarning("cannot read a publication; it stays in the inbox", m.AgentID, err)
		return m, time.Second, false
	}
	return out, 0, ok
}

// recordSent records the deliveries of publications that were not acknowledged meanwhile.
func (d *deliverer) recordSent(ctx context.Context, sent []models.InboxMessage) {
	var open []models.InboxMessage
	for _, m := range sent {
		if state, inFlight := d.conn.inFlight.get(m.ID); inFlight && !state.acked {
			open = append(open, m)
		}
	}
	if len(open) > 0 {
		err := d.server.core.PubSub.Sent(context.WithoutCancel(ctx), d.conn.agentID, open)
		d.server.logWarning("cannot record the delivery of publications", d.conn.agentID, err)
	}
}

// endUnsupported ends a publication that the protocol of the agent cannot express.
func (d *deliverer) endUnsupported(ctx context.Context, m models.InboxMessage) {
	d.server.logWarning("cannot end an unsupported publication", m.AgentID, d.server.core.PubSub.End(ctx, m, pubsub.Unsupported))
}
