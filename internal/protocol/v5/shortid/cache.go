package shortid

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store"
)

// cacheSize is the maximum number of agents, and of tasks, in a Cache.
const cacheSize = 10_000

// Cache holds the numbers of agents and the short ids of tasks that were read or assigned last.
// They never change. It is safe for concurrent use.
type Cache struct {
	store   *store.Store
	numbers *lru.Cache[string, int64]
	agents  *lru.Cache[int64, string]
	ids     *lru.Cache[string, ID]
	tasks   *lru.Cache[ID, string]
}

// NewCache returns an empty cache of the short ids in a store.
func NewCache(s *store.Store) *Cache {
	return &Cache{s, newLRU[string, int64](), newLRU[int64, string](), newLRU[string, ID](), newLRU[ID, string]()}
}

func newLRU[K comparable, V any]() *lru.Cache[K, V] {
	c, _ := lru.New[K, V](cacheSize) // fails only for a size that is not positive
	return c
}

// cached returns the value of a key from the cache, or from read if the cache does not have it.
func cached[K comparable, V any](c *lru.Cache[K, V], key K, read func() (V, error)) (V, error) {
	if v, ok := c.Get(key); ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		c.Add(key, v)
	}
	return v, err
}

// AgentNumber returns the number of an agent, as the function AgentNumber does.
func (c *Cache) AgentNumber(ctx context.Context, agentID string) (int64, error) {
	return cached(c.numbers, agentID, func() (int64, error) { return AgentNumber(ctx, c.store, agentID) })
}

// AgentID returns the id of the agent with a number, or errs.NotFound.
func (c *Cache) AgentID(ctx context.Context, number int64) (string, error) {
	return cached(c.agents, number, func() (string, error) { return AgentID(ctx, c.store, number) })
}

// OfTask returns the short id of a task, and assigns one to a task that has none.
func (c *Cache) OfTask(ctx context.Context, taskID, sessionID string) (ID, error) {
	return cached(c.ids, taskID, func() (id ID, err error) {
		if id, err = Find(ctx, c.store, taskID); !errs.Is(err, errs.NotFound) {
			return id, err
		}
		err = c.store.Write(background.WithPlacement(ctx, nil), func(tx *store.Tx) error {
			id, err = Assign(tx, taskID, sessionID)
			return err
		})
		return id, err
	})
}

// TaskID returns the id of the task with a short id, or errs.NotFound.
func (c *Cache) TaskID(ctx context.Context, id ID) (string, error) {
	return cached(c.tasks, id, func() (string, error) {
		return store.Row[string](c.store.Reads(ctx), "SELECT task_id FROM v5_context_tasks WHERE context = ? AND number = ?", id.Context, id.Task)
	})
}

// AddAfterCommit adds the short id that a transaction assigns to a task.
func (c *Cache) AddAfterCommit(tx *store.Tx, taskID string, id ID) {
	tx.After(func() {
		c.ids.Add(taskID, id)
		c.tasks.Add(id, taskID)
	})
}
