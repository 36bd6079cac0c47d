package store

import (
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/models"
)

// Get returns the webhook with that id, or errs.NotFound.
func (r webhookReader) Get(id string) (models.Webhook, error) {
	return findWebhook(r.db(), id)
}

// List returns up to limit webhooks in the order of their ids, which is that of their creation, after the
// id after ("" starts at the first): those of the subtree of a principal that is bound to an agent, and those
// that its token or a descendant of the token created; all for other principals.
func (r webhookReader) List(by models.Principal, after string, limit int) ([]models.Webhook, error) {
	hooks, db := []models.Webhook{}, r.db().Where("task_id IS NULL AND id > ?", after).Order("id").Limit(limit)
	if by.AgentID != nil {
		db = db.Where("(agent_id "+InSubtree+" OR token_id <> '' AND token_id = ? OR token_id "+TokenTree+")", *by.AgentID, by.TokenID, by.TokenID)
	}
	return hooks, db.Find(&hooks).Error
}

// OfTask returns the webhooks of a task in the order of their creation.
func (r webhookReader) OfTask(id string) (hooks []models.Webhook, err error) {
	return hooks, r.db().Where("task_id = ?", id).Order("id").Find(&hooks).Error
}

// Lock returns the webhook with that id, or errs.NotFound, and locks it: until the
// transaction ends no other one changes it, creates deliveries for it or ends any.
func (tx Webhooks) Lock(id string) (models.Webhook, error) {
	return findWebhook(forUpdate(tx.db()), id)
}

// LockShared is Webhook with a lock that only keeps the webhook from changing: other
// transactions may create and end deliveries.
func (tx Webhooks) LockShared(id string) (models.Webhook, error) {
	return findWebhook(tx.db().Clauses(clause.Locking{Strength: "KEY SHARE"}), id)
}

func findWebhook(db *gorm.DB, id string) (w models.Webhook, err error) {
	err = db.Take(&w, "id = ?", id).Error
	return w, orMissing(err, "there is no webhook %q", id)
}

// LockAll serializes the transactions that create webhooks and returns how many there are, without those of tasks.
func (tx Webhooks) LockAll() (n int, err error) {
	if err = tx.lock(lockWebhooks); err == nil {
		n, err = one[int](tx.reader, "SELECT count(*) FROM webhooks WHERE task_id IS NULL")
	}
	return n, err
}

// CountEnabled returns how many webhooks are enabled, without those of tasks.
func (r webhookReader) CountEnabled() (int, error) {
	return one[int](r.reader, "SELECT count(*) FROM webhooks WHERE enabled = TRUE AND task_id IS NULL")
}

// Insert stores a new webhook. It returns errs.Conflict when its id is taken or its agent unknown.
func (tx Webhooks) Insert(w models.Webhook) error {
	return tx.change(func(db *gorm.DB) *gorm.DB { return db.Create(&w) })
}

// change stores a change of subscriptions.
func (tx Webhooks) change(save func(*gorm.DB) *gorm.DB) error {
	tx.state.wroteWebhooks = true
	if err := tx.saveDelivered(); err != nil {
		return err
	}
	return save(tx.db()).Error
}

// Save stores the changed form of a webhook that Webhook returned. It returns
// errs.Conflict when its agent is unknown.
func (tx Webhooks) Save(w models.Webhook) error {
	tx.state.wroteDeliveries = true // it may have been enabled
	return tx.change(func(db *gorm.DB) *gorm.DB { return db.Select("*").Updates(&w) })
}

// SaveFailing stores since when a webhook has failed, nil for one that works, and the number of
// failures since then.
func (tx Webhooks) SaveFailing(id string, since *time.Time, failures int) error {
	return tx.db().Model(&models.Webhook{}).Where("id = ?", id).Select("failing_since", "failures").
		Updates(models.Webhook{FailingSince: since, Failures: failures}).Error
}

// Delete deletes a webhook that Webhook returned, with its deliveries.
func (tx Webhooks) Delete(id string) error {
	return tx.db().Delete(&models.Webhook{}, "id = ?", id).Error
}

// Lease leases an enabled webhook to owner until the given time, or renews the
// owner's lease; ok is false while another owner holds it.
func (tx Webhooks) Lease(id, owner string, until time.Time) (w models.Webhook, ok bool, err error) {
	db := tx.db().Model(&w).Clauses(clause.Returning{}).
		Where("id = ? AND enabled = ? AND (lease_owner = '' OR lease_owner = ? OR lease_until <= ?)", id, true, owner, tx.now).
		Updates(map[string]any{"lease_owner": owner, "lease_until": until})
	return w, db.RowsAffected > 0, db.Error
}

// Release ends the owner's lease, if it still has it.
func (tx Webhooks) Release(id, owner string) error {
	tx.state.wroteDeliveries = true // another replica may continue
	return tx.run("UPDATE webhooks SET lease_owner = '', lease_until = 0 WHERE id = ? AND lease_owner = ?", id, owner)
}

// Subscription selects the events of an enabled webhook.
type Subscription struct {
	WebhookID  string
	Events     []models.EventType `gorm:"serializer:json"`
	AgentID    *string
	TaskID     *string // only events of this task, whatever Events are
	Subtree    bool
	Ordering   models.Ordering
	ConfinedTo []string `gorm:"serializer:json"` // only events of agents in the subtrees of all of them
}

// The subscriptions are read by hand: every numbering of events does that (BenchmarkWebhooks in
// internal/bench).

// Subscriptions returns those of every enabled webhook without a task, and one of a task if there is any, ordered by id.
func (r webhookReader) Subscriptions() ([]Subscription, error) {
	return list[Subscription](r.reader, selectSubscriptions+" AND task_id IS NULL UNION ALL SELECT * FROM ("+selectSubscriptions+" AND task_id IS NOT NULL LIMIT 1) AS one ORDER BY id")
}

// LockSubscriptions returns the subscriptions of the enabled webhooks among ids, which
// are in order, and locks them: until the transaction ends no other transaction changes
// these webhooks or ends deliveries of an ordered one.
func (tx Webhooks) LockSubscriptions(ids []string) ([]Subscription, error) {
	return list[Subscription](tx.reader, selectSubscriptions+" AND id "+tx.engine.in+" ORDER BY id"+tx.engine.forKeyShare, Keys(ids))
}

const selectSubscriptions = "SELECT id, events, agent_id, task_id, subtree, ordering, confined_to FROM webhooks WHERE enabled = TRUE"
