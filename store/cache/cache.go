// Package cache keeps committed rows of a database that no other process writes, so that the requests
// and transactions that follow a commit do not read what this process has just written: the newest
// tasks, and the inboxes of the agents.
package cache

import (
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
	tasks  map[string]Task
	purged bool
	// assigned has the messages of tasks, without an id for a task that is no message any more.
	assigned map[string]models.InboxMessage
	stored   []string // agents that got messages which are no tasks
}

// Cache is safe for concurrent use. The writer alone changes it: it calls Forget before a commit and
// Publish after it. A nil Cache knows nothing.
type Cache struct {
	tasks *lru.Cache[string, Task]
	// dirty has the tasks that the open transaction has changed, also those of members that failed.
	dirty   map[string]bool
	inboxes inboxes
}

// New returns an empty cache.
func New() (*Cache, error) {
	tasks, err := lru.New[string, Task](maxTasks)
	return &Cache{tasks: tasks, dirty: map[string]bool{}}, err
}

// Task returns a task as the transaction with the changes own sees it, nil for a reader outside of one.
func (c *Cache) Task(own *Change, id string) Task {
	if c == nil {
		return Task{}
	}
	if own != nil {
		if row, changed := own.tasks[id]; changed || c.dirty[id] {
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
	own.tasks[id], c.dirty[id] = row, true
}

// PurgeTasks records that a transaction deletes tasks.
func (c *Cache) PurgeTasks(own *Change) { own.purged = true }

// Forget removes the tasks that transactions have changed, before their commit: others read them from
// the database until Publish, so that no task is older than in the database.
func (c *Cache) Forget(changes ...*Change) {
	if c == nil {
		return
	}
	c.inboxes.begin()
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
	clear(c.dirty)
	for _, change := range changes {
		if change.purged {
			c.tasks.Purge()
		}
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
