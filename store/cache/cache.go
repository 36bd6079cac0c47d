// Package cache keeps committed rows, so that the requests and transactions that follow a commit do not
// read what this process has just written. For a database that no other process writes it has the
// newest tasks and the inboxes of the agents; for a shared one only the tasks as this process wrote them.
package cache

import (
	"maps"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/models"
)

// maxTasks limits the tasks and the inputs: a task takes usually 1 KB, and an input at most 8 KB.
const maxTasks = 4096

// Change contains the changes of one transaction.
type Change struct {
	tasks map[string]*models.Task // nil for a row that only SQL knows
	// assigned contains the messages of changed tasks; the id is empty if the task is no longer a
	// message.
	assigned map[string]models.InboxMessage
	stored   []string // agents that got messages other than tasks
	queued   int64    // change of the number of queued tasks
}

// Cache is safe for concurrent use. Transactions publish their changes after the commit. If no other
// process writes, the one writer also calls Join after each member of a batch that succeeded, and Forget
// before the commit.
type Cache struct {
	tasks      *lru.Cache[string, *models.Task]
	inputs     *lru.Cache[inputKey, models.TaskInput]
	shared     bool // other processes write
	publishing sync.Mutex
	queued     atomic.Int64 // tasks that wait for an agent
	inboxes    inboxes

	// What the members of the open batch have changed, for the later ones.
	batch       map[string]*models.Task
	batchQueued bool // a task was queued
}

// New returns an empty cache. shared tells that other processes write to the database.
func New(shared bool) (*Cache, error) {
	tasks, err := lru.New[string, *models.Task](maxTasks)
	if err != nil {
		return nil, err
	}
	inputs, err := lru.New[inputKey, models.TaskInput](maxTasks)
	return &Cache{tasks: tasks, inputs: inputs, shared: shared, batch: map[string]*models.Task{}}, err
}

// inputKey is the key of the input of a task: the id of a purged task may be used again.
type inputKey struct {
	taskID    string
	createdAt int64
}

// Input returns the input of a committed task, which never changes; ok is false if it is not known.
func (c *Cache) Input(t models.Task) (in models.TaskInput, ok bool) {
	return c.inputs.Get(inputKey{t.ID, t.CreatedAt.UnixMicro()})
}

// AddInput records the input of a committed task.
func (c *Cache) AddInput(t models.Task, in models.TaskInput) {
	c.inputs.Add(inputKey{t.ID, t.CreatedAt.UnixMicro()}, in)
}

// Task returns a task as a transaction with the changes own sees it, or nil if it is not known. own
// is nil for a reader outside of a transaction.
func (c *Cache) Task(own *Change, id string) *models.Task {
	if own != nil {
		if row, changed := own.tasks[id]; changed {
			return row
		}
	}
	if c.shared {
		return nil
	}
	if own != nil {
		if row, changed := c.batch[id]; changed {
			return row
		}
	}
	return c.Committed(id)
}

// Committed returns a task as this process has committed it last, nil if it is not known. Another process
// may have changed it since.
func (c *Cache) Committed(id string) *models.Task {
	row, _ := c.tasks.Get(id)
	return row
}

// SetTask records a row that a transaction has written, nil if only SQL knows it.
func (c *Cache) SetTask(own *Change, id string, row *models.Task) {
	if own.tasks == nil {
		own.tasks = map[string]*models.Task{}
	}
	own.tasks[id] = row
}

// Queue records that n more tasks are queued.
func (c *Cache) Queue(own *Change, n int64) { own.queued += n }

// NoneQueued reports whether it is known that no task is queued.
func (c *Cache) NoneQueued(own *Change) bool {
	return !c.shared && c.queued.Load() == 0 && (own == nil || own.queued <= 0 && !c.batchQueued)
}

// Join makes the changes of a batch member visible to later members.
func (c *Cache) Join(change *Change) {
	maps.Copy(c.batch, change.tasks)
	c.batchQueued = c.batchQueued || change.queued > 0
}

// Forget removes changed tasks before their commit. Until Publish, other readers read these tasks
// and the changed inboxes from the database, so that they never get data older than the database.
func (c *Cache) Forget(changes ...*Change) {
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
	c.publishing.Lock()
	defer c.publishing.Unlock()
	for _, change := range changes {
		c.queued.Add(change.queued)
		for id, row := range change.tasks {
			if row == nil {
				c.tasks.Remove(id)
			} else if now, known := c.tasks.Peek(id); !known || row.Version >= now.Version || row.CreatedAt != now.CreatedAt {
				c.tasks.Add(id, row)
			}
		}
	}
	if !c.shared {
		clear(c.batch)
		c.batchQueued = false
		c.inboxes.publish(changes)
	}
}
