// Package a2a has the statements on tasks that were requested over A2A, and on their messages.
package a2a

import (
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/store"
	"comet/store/columns"
)

// Values of Task.State.
const (
	// InCore is a task whose state is that of the core's task, or of the workflow, with the same id.
	InCore = iota
	// Asking is a task that waits for the choice of a capability.
	Asking
	// Rejected is a task that the core did not accept.
	Rejected
	// Canceled is a task that was canceled while it asked.
	Canceled
)

// Source is the source of the workflows that were started over A2A.
const Source = "a2a"

// Task is a row of a2a_tasks.
type Task struct {
	ID string
	// Owner is the id of the token that requested it, and ContextID the session.
	Owner, ContextID string
	State            int
	// Reason says why it was rejected, "" otherwise.
	Reason string
	// Options are the agent and the capabilities to choose from, JSON, nil unless it has asked.
	Options json.RawMessage
	// UpdatedAt is the time of the last change outside of the core.
	CreatedAt, UpdatedAt time.Time
}

// TableName implements gorm's schema.Tabler.
func (Task) TableName() string { return "a2a_tasks" }

// Message is a row of task_messages.
type Message struct {
	TaskID string
	// Seq counts the messages of the task from 1.
	Seq int64
	// Owner is the token that sent it, "" for an agent.
	Owner, MessageID string
	// Digest is that of the content, "" for an agent's message.
	Digest  string
	Message json.RawMessage
	At      time.Time
}

// TableName implements gorm's schema.Tabler.
func (Message) TableName() string { return "task_messages" }

const taskColumns = "id, owner, context_id, state, reason, options, created_at, updated_at"

// MaxMessages limits the messages of a task.
const MaxMessages = 1000

// maxMessageBytes limits the bytes of the messages that are read together. A request has half of them.
const maxMessageBytes = 16 << 20

// maxReason is the longest reason that is stored, in bytes.
const maxReason = 4000

// Add stores a task and its first messages. It returns errs.Conflict for a message that the owner has sent before.
func Add(tx *store.Tx, t Task, messages ...Message) error {
	t.Reason = columns.Text(t.Reason, maxReason)
	if err := store.Insert(tx, "", t); err != nil {
		return err
	}
	return insert(tx, t.ID, 0, messages)
}

// insert stores messages of a task that has last messages.
func insert(tx *store.Tx, taskID string, last int, messages []Message) error {
	for i := range messages {
		messages[i].TaskID, messages[i].Seq, messages[i].At = taskID, int64(last+1+i), tx.Now()
	}
	return store.Insert(tx, "", messages...)
}

// AddMessages appends messages to those of a task. It returns errs.Conflict for a message that its owner has sent before, and
// errs.LimitReached if the task has MaxMessages.
func AddMessages(tx *store.Tx, taskID string, messages ...Message) error {
	if _, err := tx.Exec("UPDATE a2a_tasks SET updated_at = ? WHERE id = ?", tx.Now(), taskID); err != nil { // the lock that keeps seq unique
		return err
	}
	last, err := store.Row[int](tx, "SELECT coalesce(max(seq), 0) FROM task_messages WHERE task_id = ?", taskID)
	switch {
	case err != nil:
		return err
	case last+len(messages) > MaxMessages:
		return errs.New(errs.LimitReached, "the task %s has its limit of %d messages", taskID, MaxMessages)
	}
	return insert(tx, taskID, last, messages)
}

// Get returns a task, or errs.NotFound.
func Get(from store.Source, id string) (Task, error) {
	return store.Row[Task](from, "SELECT "+taskColumns+" FROM a2a_tasks WHERE id = ?", id)
}

// Sent returns the message that an owner has sent with an id, or errs.NotFound.
func Sent(from store.Source, owner, messageID string) (Message, error) {
	return store.Row[Message](from, "SELECT task_id, seq, owner, message_id, digest, '{}' AS message, at FROM task_messages WHERE owner = ? AND owner <> '' AND message_id = ?", owner, messageID)
}

// Messages returns the newest messages of a task, at most limit and maxMessageBytes of them, the oldest one first.
func Messages(from store.Source, taskID string, limit int) ([]Message, error) {
	return store.Rows[Message](from, `SELECT task_id, seq, owner, message_id, digest, message, at FROM
		(SELECT *, sum(octet_length(message)) OVER (ORDER BY seq DESC) AS bytes FROM task_messages WHERE task_id = ? ORDER BY seq DESC LIMIT ?) AS newest
		WHERE bytes <= ? ORDER BY seq`, taskID, limit, maxMessageBytes)
}

// First returns the message that requested a task, or errs.NotFound.
func First(from store.Source, taskID string) (Message, error) {
	return store.Row[Message](from, "SELECT task_id, seq, owner, message_id, digest, message, at FROM task_messages WHERE task_id = ? AND seq = 1", taskID)
}

// Requested returns the message that requested a task, or the workflow of which it is an agent step, or errs.NotFound.
func Requested(from store.Source, taskID string) (Message, error) {
	return store.Row[Message](from, `SELECT task_id, seq, owner, message_id, digest, message, at FROM task_messages WHERE seq = 1 AND task_id IN
		(SELECT ? UNION ALL SELECT workflow_id FROM workflow_steps WHERE task_id = ? AND task_id <> '') LIMIT 1`, taskID, taskID)
}

// Move changes the state of a task that asks. ok is false if it no longer asks.
func Move(tx *store.Tx, id string, state int, reason string) (ok bool, err error) {
	n, err := tx.Exec("UPDATE a2a_tasks SET state = ?, reason = ?, updated_at = ? WHERE id = ? AND state = 1",
		state, columns.Text(reason, maxReason), tx.Now(), id)
	return n > 0, err
}

// Purge deletes tasks that were last changed before a time and are unknown to the core, and their messages.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM a2a_tasks WHERE id IN (SELECT a.id FROM a2a_tasks AS a LEFT JOIN tasks AS t ON t.id = a.id LEFT JOIN workflows AS w ON w.id = a.id
		WHERE t.id IS NULL AND w.id IS NULL AND a.updated_at < ? LIMIT ?)`, before, limit)
}

// Enabled returns how many webhooks of tasks are enabled, at most limit.
func Enabled(from store.Source, limit int) (int, error) {
	return store.Row[int](from, "SELECT count(*) FROM (SELECT 1 FROM webhooks WHERE task_id IS NOT NULL AND enabled = TRUE LIMIT ?) AS pushing", limit)
}

// Subscriptions returns those of the enabled webhooks of tasks that have an event with a position in (after, upTo].
func Subscriptions(from store.Source, after, upTo int64) ([]store.Subscription, error) {
	return store.Rows[store.Subscription](from, `SELECT id, events, agent_id, task_id, subtree, ordering, confined_to FROM webhooks
		WHERE task_id IN (SELECT key FROM events WHERE position > ? AND position <= ?) AND enabled = TRUE ORDER BY id`, after, upTo)
}

// LockEnded locks a task and reports whether it has ended, which no other transaction changes until this one ends. outside is the
// result for a task that the core does not have.
func LockEnded(tx *store.Tx, id string, outside bool) (ended bool, err error) {
	ended, err = store.Row[bool](tx, "SELECT state > 1 FROM tasks WHERE id = ?"+store.ForUpdate(tx), id)
	if errs.Is(err, errs.NotFound) {
		ended, err = store.Row[bool](tx, "SELECT state > 1 FROM workflows WHERE id = ?"+store.ForUpdate(tx), id)
	}
	if errs.Is(err, errs.NotFound) {
		ended, err = outside, nil
	}
	if err == nil {
		_, err = store.Rows[string](tx, "SELECT id FROM a2a_tasks WHERE id = ?"+store.ForUpdate(tx), id)
	}
	return ended, err
}
