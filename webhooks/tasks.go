package webhooks

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	pushes "comet/store/a2a"
	"comet/webhooks/signature"
)

// Limits of the webhooks of tasks.
const (
	// MaxPerTask limits the webhooks of a task.
	MaxPerTask = 10
	// maxOfTasks limits the enabled webhooks of all tasks. They are disabled when their tasks have ended.
	maxOfTasks = 10_000
)

// reasonEnded is why the webhook of a task is disabled after it has received the end.
const reasonEnded = "the task has ended"

// TaskDraft is a request for a webhook of a task, which receives the events of the task in order.
type TaskDraft struct {
	// ConfigID is its name in the task. An earlier webhook with that name is replaced.
	ConfigID, URL string
	// Headers are sent with every delivery, and Format names the form of the bodies for Options.Render.
	Headers map[string]string
	Format  string
}

// CheckTask validates a webhook of a task. It returns errs.InvalidRequest or errs.AddressRefused.
func (w *Webhooks) CheckTask(d TaskDraft) error {
	var v errs.Violations
	w.checkURL(&v, d.URL)
	checkHeaders(&v, d.Headers)
	return v.Err()
}

// SetTask stores a webhook that CheckTask has accepted for a task of a2a_tasks, whose row the transaction has locked. It is
// disabled if the task has ended. It returns errs.LimitReached for too many webhooks.
func (w *Webhooks) SetTask(tx *store.Tx, by models.Principal, taskID string, ended bool, d TaskDraft) error {
	all, err := tx.Webhooks().OfTask(taskID)
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	hook := models.Webhook{
		ID: id.String(), Events: []models.EventType{}, ConfinedTo: []string{}, TaskID: &taskID, ConfigID: d.ConfigID, Ordering: models.OrderingAgent, RetrySeconds: []int{},
		Keys: models.WebhookKeys{Secret: signature.NewSecret(), PreviousKeys: []models.PreviousKeys{}}, Version: 1, CreatedAt: tx.Now(),
	}
	earlier := slices.IndexFunc(all, func(h models.Webhook) bool { return h.ConfigID == d.ConfigID })
	if earlier >= 0 {
		if hook, err = tx.Webhooks().Lock(all[earlier].ID); err != nil {
			return err
		}
	}
	hook.URL, hook.Headers, hook.Format, hook.TokenID, hook.CreatedBy, hook.UpdatedAt = d.URL, d.Headers, d.Format, by.TokenID, by.Name, tx.Now()
	if hook.Enabled, hook.DisabledReason, hook.DisabledAt = !ended, "", nil; ended {
		hook.DisabledReason, hook.DisabledAt = reasonEnded, new(tx.Now())
	}
	hook.FailingSince, hook.Failures = nil, 0
	if earlier >= 0 {
		return save(tx, &hook)
	}
	if len(all) >= MaxPerTask {
		return errs.New(errs.LimitReached, "the task %s has %d configurations of push notifications, and it may have no more; delete one first", taskID, len(all))
	}
	if n, err := pushes.Enabled(tx, maxOfTasks); err != nil {
		return err
	} else if n >= maxOfTasks {
		return errs.New(errs.LimitReached, "%d configurations of push notifications are in use, and there may be no more; try again later, or poll the task", n)
	}
	return tx.Webhooks().Insert(hook)
}

// OfTask returns the webhooks of a task in the order of their creation.
func (w *Webhooks) OfTask(ctx context.Context, taskID string) ([]models.Webhook, error) {
	return w.store.Webhooks(ctx).OfTask(taskID)
}

// endsTask reports whether a webhook of a task has received the end of the task, or never will. Deliveries of a task are attempted
// one after the other.
func endsTask(hook models.Webhook, all []result, ended []string) bool {
	return hook.TaskID != nil && len(ended) > 0 && slices.ContainsFunc(all, func(r result) bool {
		return slices.Contains([]models.EventType{events.TaskCompleted, events.TaskFailed, events.TaskCancelled, events.WorkflowEnded}, r.delivery.Type)
	})
}

// endTask disables the webhook of a task that has ended.
func endTask(tx *store.Tx, id string) error {
	hook, err := tx.Webhooks().Lock(id)
	if err != nil {
		return err
	}
	hook.Enabled, hook.DisabledReason, hook.DisabledAt = false, reasonEnded, new(tx.Now())
	return save(tx, &hook)
}
