package toolsearch

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// answerKey is all that a ranking depends on. Who asks and how much is not in it: both are
// looked at behind the cache.
type answerKey struct {
	text, context        string
	snap, graph, vectors uint64
}

// cache remembers rankings. Whoever finds it in use goes on without it, for to compute an
// answer costs little more than to wait for one.
type cache struct {
	mu  sync.Mutex
	lru *simplelru.LRU[answerKey, ranking] // nil for none
}

func newCache(size int) *cache {
	c := &cache{}
	if size > 0 {
		c.lru, _ = simplelru.NewLRU[answerKey, ranking](size, nil) // fails for sizes below 1 only
	}
	return c
}

func (c *cache) get(key answerKey) (ranking, bool) {
	if c.lru == nil || !c.mu.TryLock() {
		return ranking{}, false
	}
	defer c.mu.Unlock()
	return c.lru.Get(key)
}

func (c *cache) put(key answerKey, r ranking) {
	if c.lru == nil || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	r.graph = nil // it is kept alive by whoever uses it
	c.lru.Add(key, r)
}

// forget lets go of all rankings, whose snapshot nobody asks for any more.
func (c *cache) forget() {
	if c.lru == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lru.Purge()
}
