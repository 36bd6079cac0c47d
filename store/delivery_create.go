package store

import (
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"comet/models"
)

// Subscription is what decides which events an enabled webhook hears of.
type Subscription struct {
	WebhookID string
	Events    []models.EventType
	AgentID   *string
	Subtree   bool
	Ordering  models.Ordering
}

// Subscriptions returns those of every enabled webhook, ordered by id.
func (tx *Tx) Subscriptions() (out []Subscription, err error) {
	err = tx.subscriptions("", "", nil, &out)
	return out, err
}

// KeepSubscriptions returns those of the enabled ones among some webhooks, as they
// stay until the transaction ends: nobody changes the webhooks, and nobody ends
// deliveries of an ordered one meanwhile. ids are in order.
func (tx *Tx) KeepSubscriptions(ids []string) (out []Subscription, err error) {
	err = eachKeys(anys(ids), 1, func(list string, args []any) error {
		return tx.subscriptions(" AND id IN "+list, tx.store.dialect.forKeyShare, args, &out)
	})
	return out, err
}

func (tx *Tx) subscriptions(where, lock string, args []any, out *[]Subscription) error {
	return tx.query("SELECT id, events, agent_id, subtree, ordering FROM webhooks WHERE "+tx.store.dialect.isTrue("enabled")+where+
		" ORDER BY id"+lock, args,
		func(rows *sql.Rows) error {
			var s Subscription
			var events string
			var subtree any
			if err := rows.Scan(&s.WebhookID, &events, &s.AgentID, &subtree, &s.Ordering); err != nil {
				return err
			}
			s.Subtree = truth(subtree)
			var err error
			s.Events, err = decodeTypes(events)
			*out = append(*out, s)
			return err
		})
}

// Chains returns, for each of the agents that exist, the agent itself and those above
// it, as they stand now.
func (tx *Tx) Chains(ids []string) (map[string][]string, error) {
	chains := make(map[string][]string, len(ids))
	err := eachKeys(anys(ids), 1, func(list string, args []any) error {
		return tx.query(`WITH RECURSIVE chain (leaf, cid, pid, depth) AS (
				SELECT id, id, parent_id, 0 FROM agents WHERE id IN `+list+`
				UNION ALL
				SELECT leaf, a.id, a.parent_id, depth + 1 FROM agents a JOIN chain ON a.id = chain.pid WHERE depth < 8)
			SELECT leaf, cid FROM chain`, args,
			func(rows *sql.Rows) error {
				var leaf, id string
				err := rows.Scan(&leaf, &id)
				chains[leaf] = append(chains[leaf], id)
				return err
			})
	})
	return chains, err
}

// UnfinishedKeys adds to into those of the keys that an ordered webhook has unfinished
// deliveries of.
func (tx *Tx) UnfinishedKeys(webhookID string, keys []string, into map[string]bool) error {
	return eachKeys(anys(keys), 1, func(list string, args []any) error {
		return tx.query("SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND "+inLine+" AND key IN "+list, append([]any{webhookID}, args...),
			func(rows *sql.Rows) error {
				var key string
				err := rows.Scan(&key)
				into[key] = true
				return err
			})
	})
}

// NewDelivery is an event's delivery to one webhook that is to be written.
type NewDelivery struct {
	WebhookID string
	Event     *models.Event
	// Ordered is set in an ordered webhook, Waiting where an earlier event of the key
	// goes first.
	Ordered, Waiting bool
}

const newDeliveryColumns = "webhook_id, id, event_id, position, type, key, event_at, data, due, created_at, state, in_line"

// InsertDeliveries writes deliveries that are due at once. One that is there already,
// of the same event to the same webhook, is left as it is.
func (tx *Tx) InsertDeliveries(all []NewDelivery) error {
	const width = 12
	args := make([]any, 0, width*len(all))
	now := micros(tx.now)
	for _, d := range all {
		state, line := stateReady, 0
		if d.Waiting {
			state = stateWaiting
		}
		if d.Ordered {
			line = 1
		}
		e := d.Event
		args = append(args, d.WebhookID, uuid7(tx.now, e.Position), e.ID, e.Position, string(e.Type), e.Key, micros(e.At), string(e.Data),
			now, now, state, line)
	}
	tx.wroteDeliveries = tx.wroteDeliveries || len(all) > 0
	return tx.insertRows("INSERT INTO deliveries ("+newDeliveryColumns+")", "ON CONFLICT (webhook_id, event_id) DO NOTHING", width, args)
}

// InsertTest writes a delivery that has ended with its only attempt and returns it
// with its id. It returns errs.Conflict where there is no such webhook.
func (tx *Tx) InsertTest(d models.Delivery, a models.DeliveryAttempt) (models.Delivery, error) {
	state := stateDead
	if d.State == models.DeliverySucceeded {
		state = stateSucceeded
	}
	d.ID, d.CreatedAt, d.EndedAt, d.Attempts, d.Tries = uuid7(tx.now, 0), tx.now, &tx.now, 1, 1
	now := micros(tx.now)
	args := append([]any{d.WebhookID, d.ID, d.EventID, string(d.Type), d.Key, micros(d.EventAt), string(d.Data), now, now, state}, lastAttempt(a)...)
	_, err := tx.exec("INSERT INTO deliveries ("+newDeliveryColumns+`, last_at, last_ms, last_status, last_error, last_response, attempts, tries)
		VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 1, 1)`, args...)
	return d, err
}

// uuid7 returns a UUIDv7 of a time (RFC 9562 §5.7); those of one millisecond are in
// the order of n, as far as its lowest 26 bits tell.
func uuid7(at time.Time, n int64) string {
	var id uuid.UUID
	_, _ = rand.Read(id[10:]) // never fails
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|0x7<<12|uint64(n>>14)&0xfff)
	binary.BigEndian.PutUint16(id[8:10], 0x8000|uint16(n&0x3fff))
	return id.String()
}

// firstUUID7 sorts before every UUIDv7 of the time or later.
func firstUUID7(at time.Time) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, at.UnixMilli()))<<16)
	return id.String()
}
