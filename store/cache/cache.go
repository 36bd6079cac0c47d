// Package cache keeps committed rows of a database that no other process writes, so that the requests
// and transactions that follow a commit do not read what this process has just written: the newest
// tasks, and the inboxes of the agents.
package cache

import (
	"maps"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/models"
)

// maxTasks limits the tasks: one with its input takes at most 12 KB, usually 2 KB.
const maxTasks = 4096

// Task is the row of a task; Task is nil if it is not known, Input if it is not known or long.
type Task struct {
	Task  *models.Task
	Input *models.TaskInput
}

// Change is what a transaction has changed.
type Change struct {
	tasks map[string]Task
	// assigned has the messages of tasks, without an id for a task that is no message any more.
	assigned map[string]models.InboxMessage
	stored   []string // agents that got messages which are no tasks
	queued   int64    // how many more tasks are queued
}

// Cache is safe for concurrent use. The writer alone changes it: it calls Join after each member of a
// batch that succeeded, Forget before the commit and Publish after it. A nil Cache knows nothing.
type Cache struct {
	tasks   *lru.Cache[string, Task]
	queued  atomic.Int64 // tasks that wait for an agent
	inboxes inboxes

	// What the members of the open batch have changed, for the later ones.
	batch       map[string]Task
	batchQueued bool // a task was queued
}

// New returns an empty cache.
func New() (*Cache, error) {
	tasks, err := lru.New[string, Task](maxTasks)
	return &Cache{tasks: tasks, batch: map[string]Task{}}, err
}

// Task returns a task as the transaction with the changes own sees it, nil for a reader outside of one.
func (c *Cache) Task(own *Change, id string) Task {
	if c == nil {
		return Task{}
	}
	if own != nil {
		if row, changed := own.tasks[id]; changed {
			return row
		}
		if row, changed := c.batch[id]; changed {
			return row
		}
	}
	row, _ := c.tasks.Get(id)
	return row
}

// SetTask records a row that a transaction has written, the zero value if only SQL knows it.
func (c *Cache) SetTask(own *Change, id string, row Task) {
	if c == nil {
		return
	}
	if own.tasks == nil {
		own.tasks = map[string]Task{}
	}
	own.tasks[id] = row
}

// Queue records that n more tasks are queued.
func (c *Cache) Queue(own *Change, n int64) { own.queued += n }

// NoneQueued reports whether it is known that no task is queued.
func (c *Cache) NoneQueued(own *Change) bool {
	return c != nil && c.queued.Load() == 0 && (own == nil || own.queued <= 0 && !c.batchQueued)
}

// Join shows the changes of a member of a batch to the later ones.
func (c *Cache) Join(change *Change) {
	if c == nil {
		return
	}
	maps.Copy(c.batch, change.tasks)
	c.batchQueued = c.batchQueued || change.queued > 0
}

// Forget removes the tasks that transactions have changed, before their commit: others read them from
// the database until Publish, as they read the inboxes that change, so that nothing is older than in the
// database.
func (c *Cache) Forget(changes ...*Change) {
	if c == nil {
		return
	}
	c.inboxes.begin(changes)
	for _, change := range changes {
		for id := range change.tasks {
			c.tasks.Remove(id)
		}
	}
}

// Publish makes what transactions have committed visible to others, in their order. It is called
// without changes if the commit failed.
func (c *Cache) Publish(changes ...*Change) {
	if c == nil {
		return
	}
	clear(c.batch)
	c.batchQueued = false
	for _, change := range changes {
		c.queued.Add(change.queued)
		for id, row := range change.tasks {
			if row.Task == nil {
				c.tasks.Remove(id)
			} else {
				c.tasks.Add(id, row)
			}
		}
	}
	c.inboxes.publish(changes)
}
