package pubsub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/jobs"
	"comet/models"
	"comet/store"
	"comet/store/pubsub"
)

// Draft is a publication that is to be published.
type Draft struct {
	// From is the name of a sender without an agent, default that of its token. It must not be that of an agent.
	From string
	// To is the only receiver, "" for all agents that subscribe to the type.
	To string
	// Type consists of words with dots between them, for example order.paid.
	Type, Name string
	// Payload is any JSON value.
	Payload json.RawMessage
	// SchemaVersion and ContentType describe the payload, default "1.0" and "application/json".
	SchemaVersion, ContentType string
	// Guarantee is at least once by default. DeduplicationID is required for exactly once.
	Guarantee       string
	DeduplicationID string
	// MaxAttempts is 1 to 20, default 5. InitialInterval is 100 ms to 1 h, default 10 s. Coefficient is 1 to 10, default 2.
	MaxAttempts     int
	InitialInterval time.Duration
	Coefficient     float64
	// MessageID, Meta and Trace are stored for the protocol that delivers it.
	MessageID string
	Meta      json.RawMessage
	Trace     string
	// With commits rows of the caller together with the publication, also if it is a repetition; nil for none.
	With func(*store.Tx) error
	// Once gives a repeated request the response of the first one, nil for none.
	Once *models.Idempotency
}

// Published is an accepted publication.
type Published struct {
	// ID is that of the first one if it is a repetition.
	ID string
	// Subscribers is the number of receivers.
	Subscribers int
	// Replayed says that the sender had published it before, with the same deduplication id.
	Replayed bool
}

var types = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$`)

// Publish publishes a draft. With a stored guarantee the first receivers and the publication are committed when it
// returns; further receivers follow in a job. It returns errs.InvalidRequest for an invalid draft, errs.NotFound or
// errs.AgentInactive for the receiver, errs.ForeignAgent if From is the id of an agent, errs.Conflict for a deduplication
// id that the sender has used for other content, and errs.LimitReached for more than MaxSubscribers.
func (p *PubSub) Publish(ctx context.Context, by models.Principal, d Draft) (Published, error) {
	row, err := p.newPublication(ctx, by, d)
	if err != nil {
		return Published{}, err
	}
	out := Published{ID: row.ID}
	if row.Guarantee == AtMostOnce {
		if out.Subscribers, err = p.count(p.store.Reads(ctx), row.Publication); err == nil {
			err = p.broadcast(ctx, row.Publication, out, d)
		}
	} else {
		out, err = p.save(ctx, row, d)
	}
	if err == nil {
		p.published.WithLabelValues(row.Guarantee).Inc()
	}
	return out, err
}

// count returns the number of receivers of a publication, or errs.LimitReached.
func (p *PubSub) count(from store.Source, publication models.Publication) (int, error) {
	if publication.To != "" {
		return 1, nil
	}
	n, err := pubsub.CountReceivers(from, p.audience(publication), MaxSubscribers+1)
	if n > MaxSubscribers {
		err = errs.New(errs.LimitReached, "more than %d agents subscribe to %s; the limit of a publication is %d", MaxSubscribers, publication.Type, MaxSubscribers)
	}
	return n, err
}

// newPublication returns the row of a valid draft.
func (p *PubSub) newPublication(ctx context.Context, by models.Principal, d Draft) (out pubsub.Publication, err error) {
	if by.AgentID == nil && !by.Has(models.ScopeMessagesSend) {
		return out, errs.New(errs.MissingScope, "the token %q lacks the scope %q and is bound to no agent", by.Name, models.ScopeMessagesSend).With("scope", models.ScopeMessagesSend)
	}
	d.Guarantee, d.SchemaVersion, d.ContentType = cmp.Or(d.Guarantee, AtLeastOnce), cmp.Or(d.SchemaVersion, "1.0"), cmp.Or(d.ContentType, "application/json")
	d.MaxAttempts, d.InitialInterval, d.Coefficient = cmp.Or(d.MaxAttempts, 5), cmp.Or(d.InitialInterval, 10*time.Second), cmp.Or(d.Coefficient, 2)
	if err := d.check(); err != nil {
		return out, err
	}
	from := cmp.Or(d.From, by.Name)
	if by.AgentID != nil {
		from = *by.AgentID
	}
	if by.AgentID != nil && d.From != "" && d.From != from {
		return out, errs.New(errs.ForeignAgent, "the token is bound to the agent %q and cannot publish from %s", from, input.Quote(d.From))
	}
	if _, own := p.opts.Events[models.EventType(d.Type)]; own && by.AgentID != nil && from == models.RootAgentID {
		return out, input.Violated("/type", "reserved", "type must not be %s, because subscribers would mistake it for an event of comet; choose another one, or publish as another sender", d.Type)
	}
	if by.AgentID == nil {
		_, err := p.store.Agents(ctx).Get(from)
		if err == nil {
			return out, errs.New(errs.ForeignAgent, "%s is an agent; publish with its token, or from another name", input.Quote(from))
		}
		if !errs.Is(err, errs.NotFound) {
			return out, err
		}
	}
	if d.To != "" {
		agent, err := p.store.Agents(ctx).Get(d.To)
		if err != nil {
			return out, err
		}
		if !agent.IsActive {
			return out, errs.New(errs.AgentInactive, "the agent %q is deactivated", d.To)
		}
	}
	id, err := uuid.NewV7()
	now := p.store.Now()
	out = pubsub.Publication{Publication: models.Publication{
		ID: id.String(), From: from, To: d.To, Type: d.Type, Name: d.Name, Payload: d.Payload, SchemaVersion: d.SchemaVersion, ContentType: d.ContentType,
		Guarantee: d.Guarantee, DeduplicationID: d.DeduplicationID, MaxAttempts: d.MaxAttempts, InitialInterval: d.InitialInterval, Coefficient: d.Coefficient,
		MessageID: d.MessageID, Meta: d.Meta, Trace: d.Trace, CreatedAt: now,
	}, Sender: senderOf(by), ExpiresAt: now.Add(retention)}
	content, _ := json.Marshal([]string{from, d.To, d.Type, d.Name, string(input.Canonical(d.Payload)), d.SchemaVersion, d.ContentType, d.Guarantee}) // strings never fail
	out.Digest = sha256.Sum256(content)
	return out, err
}

// senderOf returns the agent or the token within which a deduplication id is unique.
func senderOf(by models.Principal) string {
	if by.AgentID != nil {
		return *by.AgentID
	}
	return "token:" + by.TokenID
}

// check returns errs.InvalidRequest with the pointer of the first wrong field.
func (d Draft) check() error {
	for _, text := range []struct {
		pointer, value string
		limit          int
	}{
		{"/from", d.From, input.MaxID}, {"/name", d.Name, 200}, {"/type", d.Type, 200}, {"/metadata/schema_version", d.SchemaVersion, 64}, {"/metadata/content_type", d.ContentType, 128},
		{"/deduplication_id", d.DeduplicationID, 200}, {"/id", d.MessageID, 200}, {"/meta", string(d.Meta), MaxPayload}, {"/trace", d.Trace, 200},
	} {
		if !isText(text.value, text.limit) {
			return input.Violated(text.pointer, "max", "%s must be text of at most %d bytes", input.Field(text.pointer), text.limit)
		}
	}
	switch {
	case !types.MatchString(d.Type):
		return input.Violated("/type", "type", "type must be 1 to 8 words of letters, digits, _ and - with dots between them, such as order.paid, not %s", input.Quote(d.Type))
	case isReserved(d.Type):
		return input.Violated("/type", "reserved", "type must not be %s, which is reserved for comet, like all types that begin with “message.”; choose another one", input.Quote(d.Type))
	case len(d.Payload) > MaxPayload:
		return input.Violated("/payload", "max", "payload must have at most %d bytes, not %d", MaxPayload, len(d.Payload))
	case !json.Valid(d.Payload):
		return input.Violated("/payload", "json", "payload must be a JSON value; it may be null")
	case d.Guarantee != AtMostOnce && d.Guarantee != AtLeastOnce && d.Guarantee != ExactlyOnce:
		return input.Violated("/guarantee", "enum", "guarantee must be at-most-once, at-least-once or exactly-once, not %s", input.Quote(d.Guarantee))
	case d.Guarantee == ExactlyOnce && d.DeduplicationID == "":
		return input.Violated("/deduplication_id", "required", "deduplication_id is required for exactly-once")
	case d.MaxAttempts < 1 || d.MaxAttempts > 20:
		return input.Violated("/retry/max_attempts", "range", "retry.max_attempts must be 1 to 20, not %d", d.MaxAttempts)
	case d.InitialInterval < 100*time.Millisecond || d.InitialInterval > time.Hour:
		return input.Violated("/retry/initial_interval_ms", "range", "retry.initial_interval_ms must be 100 ms to 1 h, not %s", d.InitialInterval)
	case !(d.Coefficient >= 1 && d.Coefficient <= 10):
		return input.Violated("/retry/backoff_coefficient", "range", "retry.backoff_coefficient must be 1 to 10, not %v", d.Coefficient)
	}
	return nil
}

// isReserved reports whether messages of comet itself have a type, such as acknowledgements.
func isReserved(typ string) bool { return strings.HasPrefix(typ, "message.") || typ == "task.progress" }

// broadcast sends a publication to all replicas, at most once.
func (p *PubSub) broadcast(ctx context.Context, publication models.Publication, out Published, d Draft) error {
	if p.opts.Bus == nil {
		return errs.New(errs.Unavailable, "at-most-once needs the message bus, which this server does not have")
	}
	if d.With != nil || d.Once != nil {
		err := p.store.Once(ctx, d.Once, func(tx *store.Tx) (any, error) {
			if d.With == nil {
				return out, nil
			}
			return out, d.With(tx)
		})
		if err != nil || d.Once != nil && d.Once.Replay != nil {
			return err
		}
	}
	var message bytes.Buffer
	to := json.NewEncoder(&message)
	to.SetEscapeHTML(false)
	if err := to.Encode(publication); err != nil {
		return err
	}
	return p.opts.Bus.Publish(bus.Publications.Of(""), message.Bytes())
}

// save stores a publication, and the messages to its first receivers.
func (p *PubSub) save(ctx context.Context, row pubsub.Publication, d Draft) (out Published, err error) {
	var receivers []string
	err = p.store.Once(ctx, d.Once, func(tx *store.Tx) (any, error) {
		out = Published{ID: row.ID}
		if receivers, err = p.next(tx, &row, ""); err != nil {
			return nil, err
		}
		if out.Subscribers = len(receivers); row.Cursor != "" {
			if out.Subscribers, err = p.count(tx, row.Publication); err != nil {
				return nil, err
			}
		}
		row.Subscribers = len(receivers)
		stored, err := pubsub.Add(tx, row, tx.Now().Add(-Window))
		switch {
		case err != nil:
			return nil, err
		case stored.Digest != row.Digest:
			return nil, errs.New(errs.Conflict, "the deduplication id %s belongs to another publication, %s; use a new one for other content", input.Quote(row.DeduplicationID), stored.ID).
				With("publication_id", stored.ID)
		case stored.ID != row.ID:
			out, receivers = Published{ID: stored.ID, Subscribers: stored.Subscribers, Replayed: true}, nil
		case row.Cursor != "":
			_, err = tx.Jobs().Enqueue(store.Job{Kind: distributeKind, Key: row.ID})
		}
		if err == nil {
			err = p.enqueue(tx, row.ID, receivers)
		}
		if err == nil && d.With != nil {
			err = d.With(tx)
		}
		return out, err
	})
	if err == nil && !out.Replayed {
		p.remember(row.Publication)
		p.opts.Wake(receivers)
	}
	return out, err
}

// next returns the receivers of a publication after an agent, at most batch, and sets the cursor: "" if there are no more.
func (p *PubSub) next(from store.Source, row *pubsub.Publication, after string) (receivers []string, err error) {
	if row.Cursor = ""; row.To != "" {
		return []string{row.To}, nil
	}
	receivers, err = pubsub.Receivers(from, p.audience(row.Publication), after, batch+1)
	if len(receivers) > batch {
		receivers = receivers[:batch]
		row.Cursor = receivers[batch-1]
	}
	return receivers, err
}

// enqueue puts a publication into the inboxes of agents, and ends the oldest ones of those that have too many.
func (p *PubSub) enqueue(tx *store.Tx, id string, agentIDs []string) error {
	if len(agentIDs) == 0 {
		return nil
	}
	if err := tx.Inbox().EnqueueAll(agentIDs, models.InboxMessage{ID: id, Kind: Kind, Priority: priority}); err != nil {
		return err
	}
	dead, err := pubsub.KillOldest(tx, QueueFull, agentIDs, MaxWaiting)
	return p.announce(tx, dead, err)
}

// distribute is the job that delivers a publication to its further receivers, some in each transaction.
func (p *PubSub) distribute(ctx context.Context, job *jobs.Job) error {
	for ended := false; !ended; {
		var receivers []string
		err := p.store.Write(ctx, func(tx *store.Tx) error {
			row, err := pubsub.Lock(tx, job.Key)
			receivers, ended = nil, errs.Is(err, errs.NotFound)
			if err == nil && row.Cursor != "" {
				receivers, err = p.next(tx, &row, row.Cursor)
			}
			if err == nil {
				err = pubsub.Distributed(tx, row.ID, len(receivers), row.Cursor)
			}
			if err == nil {
				err = p.enqueue(tx, row.ID, receivers)
			}
			if ended = ended || row.Cursor == ""; ended && (err == nil || errs.Is(err, errs.NotFound)) {
				err = job.Finish(tx)
			}
			return err
		})
		if err != nil {
			return err
		}
		p.opts.Wake(receivers)
	}
	return nil
}

// isText reports whether all databases can store a text of at most limit bytes.
func isText(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
