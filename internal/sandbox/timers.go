package sandbox

import (
	"container/heap"
	"time"
)

// timers are those of the code, the next one first. The zero value has none.
type timers struct{ heap timerHeap }

type timer struct {
	id int
	at time.Time
}

func (t *timers) set(id int, at time.Time) { heap.Push(&t.heap, timer{id, at}) }

// clear forgets a timer that was set.
func (t *timers) clear(id int) {
	for i := range t.heap {
		if t.heap[i].id == id {
			heap.Remove(&t.heap, i)
			return
		}
	}
}

// next is when the next timer fires.
func (t *timers) next() (at time.Time, ok bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].at, true
}

// due takes out the next timer, if its time has come.
func (t *timers) due(now time.Time) (id int, ok bool) {
	if at, ok := t.next(); !ok || at.After(now) {
		return 0, false
	}
	return heap.Pop(&t.heap).(timer).id, true
}

// timerHeap implements heap.Interface. Timers of one moment fire in the order they were set.
type timerHeap []timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].id < h[j].id
	}
	return h[i].at.Before(h[j].at)
}

func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
