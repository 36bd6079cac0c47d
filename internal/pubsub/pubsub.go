// Package pubsub passes publications of agents and other clients on to the agents that subscribe to them, with one of
// three delivery guarantees. It knows no protocol: a publication waits in the inboxes of its receivers, whose transports
// and protocols deliver it like every other message.
package pubsub

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/models"
	"comet/store"
	"comet/store/pubsub"
)

const (
	// MaxSubscribers limits the receivers of a publication.
	MaxSubscribers = 100_000
	// MaxPatterns limits the subscriptions of an agent.
	MaxPatterns = 100
	// MaxPayload limits a payload in bytes.
	MaxPayload = 1 << 20
	// MaxWaiting limits the unacknowledged publications of an agent.
	MaxWaiting = 1000
	// Window is the time for which a deduplication id is reserved, and for which an unacknowledged publication waits.
	Window = 24 * time.Hour
	// retention is the time for which a publication and its dead letters are kept.
	retention = 7 * 24 * time.Hour
	// batch is the number of receivers of a transaction.
	batch = 500
	// maxUnrecorded limits the agents whose deliveries are not recorded yet.
	maxUnrecorded = 100_000
	// distributeKind is the kind of the jobs that pass a publication on to further receivers.
	distributeKind = "publications.distribute"
	// priority is that of publications among the messages of an agent: normal.
	priority = 1
)

// Kind is the kind of the inbox messages. Their attempt counts the deliveries.
const Kind = "publication"

// The delivery guarantees.
const (
	// AtMostOnce reaches the connections that are open now. Nothing is stored.
	AtMostOnce = "at-most-once"
	// AtLeastOnce delivers a publication until the receiver acknowledges it or the last attempt fails.
	AtLeastOnce = "at-least-once"
	// ExactlyOnce is AtLeastOnce, and a repeated publication with the same deduplication id has no effect.
	ExactlyOnce = "exactly-once"
)

// EventData is the data of the event of a dead letter.
type EventData struct {
	PublicationID string `json:"publication_id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`                         // The publication's id.
	AgentID       string `json:"agent_id" example:"research-web-01"`                                                    // The receiver.
	Reason        string `json:"reason" enums:"unacknowledged,expired,queue_full,unsupported" example:"unacknowledged"` // Why it is a dead letter.
	Attempts      int    `json:"attempts" example:"5"`                                                                  // Number of deliveries.
} // @name PublicationEvent

// Options configures New; nil means defaults.
type Options struct {
	// Bus carries publications that are delivered at most once; without a bus they are rejected.
	Bus *bus.Bus
	// Wake is called with the agents that have new messages.
	Wake func(agentIDs []string)
	// Protocols are the protocols whose agents receive all publications of other senders until their subscriptions are set.
	Protocols []string
	// Feed has comet's own events, nil to publish none. Events are the types that agents can subscribe to, except reserved
	// ones, with the scopes that a token needs to set such a subscription.
	Feed   *events.Feed
	Events map[models.EventType]models.Scope
	// Registerer registers the metrics, nil for none.
	Registerer prometheus.Registerer
	// Logger receives the loss and return of the database; default discards.
	Logger *slog.Logger
}

// PubSub publishes events and stores subscriptions. It is safe for concurrent use.
type PubSub struct {
	store *store.Store
	opts  Options
	// cached holds short publications that were published or delivered here. They never change.
	cached *lru.Cache[string, models.Publication]
	// unrecorded holds deliveries until they are recorded.
	unrecorded *background.Batcher[sent]

	published *prometheus.CounterVec
	attempts  prometheus.Counter
	dead      *prometheus.CounterVec
	// Dropped counts the publications with AtMostOnce that were not delivered because a connection was too slow.
	Dropped prometheus.Counter
}

// The cache holds at most 256 publications of at most 64 KiB.
const maxCached, maxCachedBytes = 256, 64 << 10

// The reasons of dead letters.
const (
	// Unacknowledged: the agent has acknowledged none of the attempts.
	Unacknowledged = "unacknowledged"
	// Expired: the message was not acknowledged within Window.
	Expired = "expired"
	// QueueFull: MaxWaiting newer publications wait for the agent.
	QueueFull = "queue_full"
	// Unsupported: the agent's protocol has no form for publications.
	Unsupported = "unsupported"
)

// New returns publish/subscribe over a store.
func New(s *store.Store, opts *Options) *PubSub {
	p := &PubSub{store: s, opts: *cmp.Or(opts, &Options{})}
	p.opts.Logger = cmp.Or(p.opts.Logger, slog.New(slog.DiscardHandler))
	p.opts.Events = maps.Clone(p.opts.Events)
	maps.DeleteFunc(p.opts.Events, func(t models.EventType, _ models.Scope) bool { return isReserved(string(t)) })
	if p.opts.Wake == nil {
		p.opts.Wake = func([]string) {}
	}
	p.cached, _ = lru.New[string, models.Publication](maxCached) // New fails only for a size below 1
	p.unrecorded = background.NewBatcher(background.BatcherOptions{Task: "recording deliveries", Size: maxUnrecorded, MaxBatch: batch, MaxPending: maxUnrecorded}, p.record)
	create := promauto.With(p.opts.Registerer)
	p.published = create.NewCounterVec(prometheus.CounterOpts{Name: "comet_publications_total", Help: "Accepted publications."}, []string{"guarantee"})
	p.attempts = create.NewCounter(prometheus.CounterOpts{Name: "comet_publication_attempts_total", Help: "Deliveries of stored publications to agents."})
	p.dead = create.NewCounterVec(prometheus.CounterOpts{Name: "comet_publications_dead_total", Help: "Publications that an agent did not receive."}, []string{"reason"})
	p.Dropped = create.NewCounter(prometheus.CounterOpts{Name: "comet_publications_dropped_total", Help: "Publications delivered at most once that a slow connection missed."})
	for _, g := range []string{AtMostOnce, AtLeastOnce, ExactlyOnce} {
		p.published.WithLabelValues(g)
	}
	for _, reason := range []string{Unacknowledged, Expired, QueueFull, Unsupported} {
		p.dead.WithLabelValues(reason)
	}
	return p
}

// RegisterJobs registers the jobs that distribute publications and end those that are not acknowledged.
func (p *PubSub) RegisterJobs(r *jobs.Runner) {
	r.Handle(distributeKind, p.distribute, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Every("publications.purge", time.Minute, p.purge)
}

// Open returns a message with its publication and the number of the delivery that begins. ok is false if the last
// attempt has failed, or the publication was deleted: the message has then left the inbox.
func (p *PubSub) Open(ctx context.Context, m models.InboxMessage) (out models.InboxMessage, ok bool, err error) {
	publication, known := p.cached.Get(m.ID)
	if !known {
		row, err := pubsub.Get(p.store.Reads(ctx), m.ID)
		if errs.Is(err, errs.NotFound) {
			return m, false, nil
		}
		if err != nil {
			return m, false, err
		}
		publication = row.Publication
		p.remember(publication)
	}
	if m.Attempt >= publication.MaxAttempts {
		return m, false, p.End(ctx, m, Unacknowledged)
	}
	m.Attempt, m.Publication = m.Attempt+1, &publication
	return m, true, nil
}

func (p *PubSub) remember(publication models.Publication) {
	if len(publication.Payload)+len(publication.Meta) <= maxCachedBytes {
		p.cached.Add(publication.ID, publication)
	}
}

// sent are messages that were delivered to an agent.
type sent struct {
	agentID  string
	messages []models.InboxMessage
}

// Sent records that messages were delivered to an agent, as Open has returned them. Concurrent calls share a transaction.
func (p *PubSub) Sent(ctx context.Context, agentID string, messages []models.InboxMessage) error {
	p.attempts.Add(float64(len(messages)))
	if !p.unrecorded.Add(sent{agentID, messages}) {
		return errs.New(errs.Unavailable, "too many deliveries are not recorded yet")
	}
	return p.unrecorded.Flush(ctx)
}

// record records deliveries, in the order of the agents.
func (p *PubSub) record(ctx context.Context, deliveries []sent) (int, error) {
	if len(deliveries) == 0 {
		return 0, nil
	}
	ordered := slices.SortedFunc(slices.Values(deliveries), func(a, b sent) int { return cmp.Compare(a.agentID, b.agentID) })
	return 0, p.store.Write(ctx, func(tx *store.Tx) error {
		for _, d := range ordered {
			if err := recordDeliveries(tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordDeliveries records the deliveries to one agent, those with the same schedule in one statement.
func recordDeliveries(tx *store.Tx, d sent) error {
	type attempt struct {
		n    int
		wait time.Duration
		last bool
	}
	attempts := map[attempt][]string{}
	for _, m := range d.messages {
		a := attempt{m.Attempt, m.Publication.Wait(m.Attempt), m.Attempt >= m.Publication.MaxAttempts}
		attempts[a] = append(attempts[a], m.ID)
	}
	for a, ids := range attempts {
		if err := pubsub.Attempted(tx, d.agentID, ids, a.n, tx.Now().Add(a.wait), a.last); err != nil {
			return err
		}
	}
	return nil
}

// End turns a message into a dead letter.
func (p *PubSub) End(ctx context.Context, m models.InboxMessage, reason string) error {
	return p.store.Write(ctx, func(tx *store.Tx) error {
		dead, err := pubsub.Kill(tx, reason, pubsub.OfAgent+store.In(tx), []any{m.AgentID, store.Keys{m.ID}}, 1)
		return p.announce(tx, dead, err)
	})
}

// announce writes the events of new dead letters, and counts them after the commit.
func (p *PubSub) announce(tx *store.Tx, dead []pubsub.DeadLetter, err error) error {
	if err != nil || len(dead) == 0 {
		return err
	}
	drafts := make([]store.EventDraft, len(dead))
	for i, d := range dead {
		drafts[i] = store.EventDraft{Type: pubsub.EventDead, Key: d.PublicationID, Data: EventData{
			PublicationID: d.PublicationID, AgentID: d.AgentID, Reason: d.Reason, Attempts: d.Attempts,
		}}
	}
	tx.After(func() { p.dead.WithLabelValues(dead[0].Reason).Add(float64(len(dead))) })
	return tx.Events().EmitAll(drafts)
}

// purge ends the messages whose last attempt has failed or that have waited for too long, and deletes old publications.
func (p *PubSub) purge(ctx context.Context) error {
	end := func(reason, which string, at time.Time) func(*store.Tx, int) (int64, error) {
		return func(tx *store.Tx, limit int) (int64, error) {
			dead, err := pubsub.Kill(tx, reason, which, []any{at}, limit)
			return int64(len(dead)), p.announce(tx, dead, err)
		}
	}
	now := p.store.Now()
	return p.store.InBatches(ctx, end(Unacknowledged, pubsub.Ended, now), end(Expired, pubsub.Older, now.Add(-Window)), pubsub.Purge)
}
