package store

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"comet/models"
)

// taskCache keeps the newest committed rows of tasks, so that the requests and the operations that
// follow a commit do not read what this process has just written. Only SQLite has one, because no
// other process writes there. Its writer is the only goroutine that changes it.
type taskCache struct {
	committed *lru.Cache[string, cachedTask]
	// dirty has the tasks that the open transaction has changed, also those of members that failed.
	dirty map[string]bool
}

// maxCachedTasks limits the cache: a task with its input takes at most 12 KB, usually 2 KB.
const maxCachedTasks = 4096

// cachedTask is the row of a task; task is nil if it is not known, input if it is not known or long.
type cachedTask struct {
	task  *models.Task
	input *models.TaskInput
}

func newTaskCache() (*taskCache, error) {
	committed, err := lru.New[string, cachedTask](maxCachedTasks)
	return &taskCache{committed: committed, dirty: map[string]bool{}}, err
}

// publish makes what transactions have committed visible to others, in their order.
func (c *taskCache) publish(txs []*Tx) {
	if c == nil {
		return
	}
	clear(c.dirty)
	for _, tx := range txs {
		if tx.state.purgedTasks {
			c.committed.Purge()
		}
		for id, row := range tx.state.tasks {
			if row.task == nil {
				c.committed.Remove(id)
			} else {
				c.committed.Add(id, row)
			}
		}
	}
}

// cached returns the row of a task as the reader sees it.
func (r taskReader) cached(id string) cachedTask {
	c := r.store.tasks
	if c == nil {
		return cachedTask{}
	}
	if r.state != nil {
		if own, changed := r.state.tasks[id]; changed || c.dirty[id] {
			return own
		}
	}
	row, _ := c.committed.Get(id)
	return row
}

// changed records the row of a task that the transaction has written, the zero value if only SQL
// knows it.
func (tx Tasks) changed(id string, row cachedTask) {
	c := tx.store.tasks
	if c == nil {
		return
	}
	if tx.state.tasks == nil {
		tx.state.tasks = map[string]cachedTask{}
	}
	tx.state.tasks[id], c.dirty[id] = row, true
}
