// Package pubsub has the statements on publications, on subscriptions, and on publications that were not delivered.
// The messages that wait for agents are rows of inbox.
package pubsub

import (
	"strings"
	"time"

	"comet/models"
	"comet/store"
	"comet/store/columns"
	"comet/store/filter"
)

// The events of publish/subscribe.
const (
	// EventDead is sent when an agent does not receive a publication; the key is the publication's id.
	EventDead models.EventType = "publication.dead"
	// EventSubscribed is sent when the subscriptions of an agent are set; the key is the agent's id.
	EventSubscribed models.EventType = "subscriptions.changed"
)

// Publication is a row of publications.
type Publication struct {
	models.Publication
	// Sender is the agent or the token within which the deduplication id is unique.
	Sender string
	// Digest is that of the content.
	Digest [32]byte
	// Subscribers is the number of agents whose inbox has received it. Cursor is the last of them while it is being
	// distributed, "" afterwards.
	Subscribers int
	Cursor      string
	ExpiresAt   time.Time
}

// TableName implements gorm's schema.Tabler.
func (Publication) TableName() string { return "publications" }

// Subscription is a row of subscriptions.
type Subscription struct {
	AgentID string
	// Pattern is "" for an agent whose list of subscriptions was set to an empty one.
	Pattern string
	// FromName is the only sender, "" for all other agents.
	FromName  string
	CreatedAt time.Time
}

// DeadLetter is a publication that an agent has not received.
type DeadLetter struct {
	AgentID       string
	PublicationID string
	Attempts      int
	Reason        string
	DeadAt        time.Time
}

// TableName implements gorm's schema.Tabler.
func (DeadLetter) TableName() string { return "dead_letters" }

// Subscribe replaces the subscriptions of an agent.
func Subscribe(tx *store.Tx, agentID string, all []Subscription) error {
	if _, err := tx.Exec("DELETE FROM subscriptions WHERE agent_id = ?", agentID); err != nil {
		return err
	}
	return store.Insert(tx, "ON CONFLICT DO NOTHING", all...)
}

// Subscriptions returns the subscriptions of an agent, none if they were never set.
func Subscriptions(from store.Source, agentID string) ([]Subscription, error) {
	return store.Rows[Subscription](from, columns.Of[Subscription]().Selects+"WHERE agent_id = ? ORDER BY pattern, from_name", agentID)
}

// OfSender returns the subscriptions of an agent, "" for all agents, to publications of one sender.
func OfSender(from store.Source, name, agentID string) ([]Subscription, error) {
	var where filter.Clause
	where.Optional("agent_id = ?", agentID)
	where.And("from_name = ?", name)
	return store.Rows[Subscription](from, columns.Of[Subscription]().Selects+where.SQL(), where.Args...)
}

// Audience selects the receivers of a publication: active agents that subscribe to it.
type Audience struct {
	// Patterns match the type of the publication; From is its sender.
	Patterns []string
	From     string
	// Protocols are the protocols whose agents receive everything until their subscriptions are set.
	Protocols []string
	// Among are the only candidates, nil for all agents.
	Among []string
}

// query returns the ids of up to limit receivers after an id, in their order. Each part of the union reads at most limit
// rows of an index.
func (a Audience) query(from store.Source, after string, limit int) (query string, args []any) {
	var parts []string
	part := func(table, condition string, values ...any) {
		among := ""
		if a.Among != nil {
			among = " AND r.agent_id " + store.In(from)
			values = append(values, store.Keys(a.Among))
		}
		parts = append(parts, "SELECT * FROM (SELECT DISTINCT r.agent_id FROM "+table+" AS r JOIN agents AS a ON a.id = r.agent_id AND a.is_active WHERE r.agent_id > ? AND "+
			condition+among+" ORDER BY r.agent_id LIMIT ?) AS part")
		args = append(append(append(args, after), values...), limit)
	}
	for _, pattern := range a.Patterns {
		part("subscriptions", "r.pattern = ? AND (r.from_name = ? OR r.from_name = '' AND r.agent_id <> ?)", pattern, a.From, a.From)
	}
	for _, protocol := range a.Protocols {
		part("workers", "r.protocol = ? AND r.agent_id <> ? AND NOT EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.agent_id = r.agent_id)", protocol, a.From)
	}
	return "SELECT agent_id FROM (" + strings.Join(parts, " UNION ") + ") AS receivers ORDER BY agent_id LIMIT ?", append(args, limit)
}

// Receivers returns the ids of up to limit receivers after an id, in their order.
func Receivers(from store.Source, a Audience, after string, limit int) ([]string, error) {
	query, args := a.query(from, after, limit)
	return store.Rows[string](from, query, args...)
}

// CountReceivers returns the number of receivers, but at most limit.
func CountReceivers(from store.Source, a Audience, limit int) (int, error) {
	query, args := a.query(from, "", limit)
	return store.Row[int](from, "SELECT count(*) FROM ("+query+") AS counted", args...)
}

// Add stores a publication unless its sender has used the deduplication id since a time. It returns the publication with
// that id: p, or the earlier one.
func Add(tx *store.Tx, p Publication, since time.Time) (Publication, error) {
	if p.DeduplicationID == "" {
		return p, store.Insert(tx, "", p)
	}
	_, err := tx.Exec("UPDATE publications SET deduplication_id = '' WHERE sender = ? AND deduplication_id = ? AND created_at <= ?", p.Sender, p.DeduplicationID, since)
	if err == nil {
		err = store.Insert(tx, "ON CONFLICT (sender, deduplication_id) WHERE deduplication_id <> '' DO NOTHING", p)
	}
	if err != nil {
		return p, err
	}
	return store.Row[Publication](tx, columns.Of[Publication]().Selects+"WHERE sender = ? AND deduplication_id = ?", p.Sender, p.DeduplicationID)
}

// Get returns a publication, or errs.NotFound.
func Get(from store.Source, id string) (Publication, error) {
	return store.Row[Publication](from, columns.Of[Publication]().Selects+"WHERE id = ?", id)
}

// Lock is Get for a transaction that changes the publication.
func Lock(tx *store.Tx, id string) (Publication, error) {
	return store.Row[Publication](tx, columns.Of[Publication]().Selects+"WHERE id = ?"+store.ForUpdate(tx), id)
}

// Distributed records that further agents have received a publication, the last of them cursor, "" if there are no more.
func Distributed(tx *store.Tx, id string, agents int, cursor string) error {
	return tx.Run("UPDATE publications SET subscribers = subscribers + ?, cursor = ? WHERE id = ?", agents, cursor, id)
}

// Counts are the numbers of receivers of a publication that have not acknowledged it.
type Counts struct{ Waiting, Dead int }

// Count returns the counts of a publication.
func Count(from store.Source, id string) (Counts, error) {
	return store.Row[Counts](from, `SELECT (SELECT count(*) FROM inbox WHERE kind = 'publication' AND id = ?) AS waiting,
		(SELECT count(*) FROM dead_letters WHERE publication_id = ?) AS dead`, id, id)
}

// Attempted records the n-th delivery of messages to an agent. The next one follows at a time, or, if it was the last
// one, the messages end then.
func Attempted(tx *store.Tx, agentID string, ids []string, n int, next time.Time, last bool) error {
	ends := time.Time{}
	if last {
		ends = next
	}
	return tx.Run("UPDATE inbox SET attempt = ?, not_before = ?, ends_at = ? WHERE agent_id = ? AND kind = 'publication' AND id "+store.In(tx), n, next, ends, agentID, store.Keys(ids))
}

// Kill turns up to limit messages into dead letters and returns them. which is a condition on inbox, and may end with an order.
func Kill(tx *store.Tx, reason, which string, args []any, limit int) ([]DeadLetter, error) {
	dead, err := deleteMessages(tx, reason, which, args, limit)
	if err != nil || len(dead) == 0 {
		return nil, err
	}
	return dead, insertDead(tx, dead)
}

// insertDead inserts dead letters.
func insertDead(tx *store.Tx, dead []DeadLetter) error {
	return store.Insert(tx, "ON CONFLICT DO NOTHING", dead...)
}

// deleteMessages deletes messages as Kill does and returns their dead letters, which it does not insert.
func deleteMessages(tx *store.Tx, reason, which string, args []any, limit int) ([]DeadLetter, error) {
	all, err := store.Rows[DeadLetter](tx, `DELETE FROM inbox WHERE (agent_id, id) IN (SELECT agent_id, id FROM inbox WHERE kind = 'publication' AND `+which+` LIMIT ?)
		RETURNING agent_id, id, attempt, '', 0`, append(args, limit)...)
	for i := range all {
		all[i].Reason, all[i].DeadAt = reason, tx.Now()
	}
	return all, err
}

// The conditions of Kill, with their arguments.
const (
	// OfAgent selects messages of an agent by store.Keys of their ids; the condition of In follows.
	OfAgent = "agent_id = ? AND id "
	// Ended selects the messages whose last attempt has failed, at a time.
	Ended = "ends_at > 0 AND ends_at <= ?"
	// Older selects the messages that have waited since before a time.
	Older = "task_id IS NULL AND created_at < ?"
)

// KillOldest is Kill for all but the newest messages of each of several agents. It counts the messages first: with outdated
// statistics, PostgreSQL chose a plan for a single statement with a join that took seconds.
func KillOldest(tx *store.Tx, reason string, agentIDs []string, most int) (dead []DeadLetter, err error) {
	type full struct {
		AgentID string
		Excess  int
	}
	all, err := store.Rows[full](tx, "SELECT agent_id, count(*) - ? FROM inbox WHERE kind = 'publication' AND agent_id "+store.In(tx)+
		" GROUP BY agent_id HAVING count(*) > ? ORDER BY agent_id", most, store.Keys(agentIDs), most)
	for _, agent := range all { // the agent may have acknowledged messages since then
		const oldest = "agent_id = ? AND id <= (SELECT id FROM inbox WHERE kind = 'publication' AND agent_id = ? ORDER BY id DESC LIMIT 1 OFFSET ?) ORDER BY id"
		killed, err := deleteMessages(tx, reason, oldest, []any{agent.AgentID, agent.AgentID, most}, agent.Excess)
		if err != nil {
			return nil, err
		}
		dead = append(dead, killed...)
	}
	if len(dead) > 0 {
		err = insertDead(tx, dead)
	}
	return dead, err
}

// DeadQuery selects dead letters.
type DeadQuery struct {
	AgentID, PublicationID, Type string // "" for any
	// After is the last one of the previous page.
	After DeadLetter
	Limit int
}

// ListedLetter is a dead letter with the type, the name and the sender of its publication.
type ListedLetter struct {
	DeadLetter
	Type, Name, FromName string
}

// DeadLetters returns dead letters, ordered by publication and agent.
func DeadLetters(from store.Source, q DeadQuery) ([]ListedLetter, error) {
	var where filter.Clause
	where.And("(d.publication_id, d.agent_id) > (?, ?)", q.After.PublicationID, q.After.AgentID)
	for _, c := range []struct{ condition, value string }{{"d.agent_id = ?", q.AgentID}, {"d.publication_id = ?", q.PublicationID}, {"p.type = ?", q.Type}} {
		where.Optional(c.condition, c.value)
	}
	return store.Rows[ListedLetter](from, `SELECT d.agent_id, d.publication_id, d.attempts, d.reason, d.dead_at, p.type, p.name, p.from_name
		FROM dead_letters AS d JOIN publications AS p ON p.id = d.publication_id`+where.SQL()+" ORDER BY d.publication_id, d.agent_id LIMIT ?", append(where.Args, q.Limit)...)
}

// Revive deletes the dead letters of a publication to agents and returns these agents. The publication is kept until a time.
func Revive(tx *store.Tx, publicationID string, agentIDs []string, until time.Time) ([]string, error) {
	if _, err := tx.Exec("UPDATE publications SET expires_at = ? WHERE id = ? AND expires_at < ?", until, publicationID, until); err != nil {
		return nil, err
	}
	return store.Rows[string](tx, "DELETE FROM dead_letters WHERE publication_id = ? AND agent_id "+store.In(tx)+" RETURNING agent_id", publicationID, store.Keys(agentIDs))
}

// Purge deletes publications that have expired, with their messages and dead letters.
func Purge(tx *store.Tx, limit int) (int64, error) {
	ids, err := store.Rows[string](tx, "DELETE FROM publications WHERE id IN (SELECT id FROM publications WHERE expires_at <= ? LIMIT ?) RETURNING id", tx.Now(), limit)
	if err == nil {
		err = tx.Run("DELETE FROM inbox WHERE kind = 'publication' AND id "+store.In(tx), store.Keys(ids))
	}
	return int64(len(ids)), err
}
