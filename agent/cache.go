package agent

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// How long, and of how many requests, the answers are kept unless told otherwise.
const (
	keepFor     = 24 * time.Hour
	keepAnswers = 10_000
)

// Key names a request: two askers may use the same request id for different tasks, and
// another attempt at a task has both as they were.
type Key struct{ Request, Task uuid.UUID }

// Cache remembers how requests ended (Chiffon §Idempotency). Its methods may be called
// concurrently, those about one request are not.
type Cache interface {
	// Begin returns what is known of a request and notes that its work begins, unless it
	// has ended.
	Begin(request Key) (Known, error)
	// End keeps the answer to a request. It must not return before the answer is safe:
	// it is sent afterwards.
	End(request Key, answer []byte) error
	// Forget makes a request unknown.
	Forget(request Key) error
}

// Known is what a Cache knows of a request.
type Known struct {
	// Answer is what End was given, nil where the request has not ended.
	Answer []byte
	// Interrupted is a request that had begun and had not ended when a process did.
	Interrupted bool
}

// MemoryCache is a Cache that ends with the process.
type MemoryCache struct {
	count int
	now   func() time.Time

	mu      sync.Mutex
	answers map[Key]kept
	order   []Key // oldest first; may hold what was forgotten
}

type kept struct {
	answer []byte
	at     time.Time
}

// NewMemoryCache returns a cache of up to count answers, 0 is 10,000, for 24 hours.
func NewMemoryCache(count int) *MemoryCache {
	if count <= 0 {
		count = keepAnswers
	}
	return &MemoryCache{count: count, now: time.Now, answers: map[Key]kept{}}
}

// Begin implements Cache.
func (c *MemoryCache) Begin(request Key) (Known, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.answers[request]; ok && c.now().Sub(k.at) < keepFor {
		return Known{Answer: k.answer}, nil
	}
	return Known{}, nil
}

// End implements Cache.
func (c *MemoryCache) End(request Key, answer []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[request] = kept{answer, c.now()}
	c.order = append(c.order, request)
	for len(c.order) > 0 {
		oldest := c.order[0]
		k, ok := c.answers[oldest]
		if ok && len(c.order) <= c.count && c.now().Sub(k.at) < keepFor {
			break
		}
		delete(c.answers, oldest)
		c.order = c.order[1:]
	}
	return nil
}

// Forget implements Cache.
func (c *MemoryCache) Forget(request Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, request)
	return nil
}
