package background

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// Pending collects distinct keys until one receiver takes them. It is safe for concurrent use.
type Pending[K comparable] struct {
	Signal // is set when keys are added

	mu   sync.Mutex
	last int
	keys map[K]int // the number of the last Add
}

// NewPending returns a Pending without keys.
func NewPending[K comparable]() *Pending[K] {
	return &Pending[K]{Signal: NewSignal(), keys: map[K]int{}}
}

// Add adds keys and wakes the receiver. A key that is pending moves to the end.
func (p *Pending[K]) Add(keys ...K) {
	p.mu.Lock()
	for _, k := range keys {
		p.last++
		p.keys[k] = p.last
	}
	p.mu.Unlock()
	p.Set()
}

// Take returns the pending keys in the order in which they were last added, and removes them.
func (p *Pending[K]) Take() []K {
	p.mu.Lock()
	keys := p.keys
	p.keys = map[K]int{}
	p.mu.Unlock()
	return slices.SortedFunc(maps.Keys(keys), func(a, b K) int { return cmp.Compare(keys[a], keys[b]) })
}

// Len returns the number of pending keys.
func (p *Pending[K]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.keys)
}
