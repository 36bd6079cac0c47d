package orchestrator

import (
	"sync"

	"comet/internal/errs"
)

// waiting bounds how many requests wait for tasks, of all and of each who waits: each
// of them costs a goroutine and a look at the database now and then.
type waiting struct {
	mu         sync.Mutex
	most, each int
	all        int
	of         map[string]int
}

func newWaiting(most, each int) *waiting {
	return &waiting{most: most, each: each, of: map[string]int{}}
}

// take returns what gives a place back, or errs.Busy where there is none. A who of ""
// needs none.
func (w *waiting) take(who string) (release func(), err error) {
	if who == "" {
		return func() {}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= w.most {
		return nil, errs.New(errs.Busy, "%d requests wait for tasks already", w.all)
	}
	if w.of[who] >= w.each {
		return nil, errs.New(errs.Busy, "the token has %d requests that wait for tasks already", w.each)
	}
	w.all++
	w.of[who]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if w.of[who]--; w.of[who] == 0 {
			delete(w.of, who)
		}
	}, nil
}
