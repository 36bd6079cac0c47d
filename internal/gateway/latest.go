package gateway

import (
	"sync"

	"comet/internal/upstream"
)

// latest hands progress on from a goroutine of its own, the newest where several came
// meanwhile: who makes progress waits for nobody who is told of it.
type latest struct {
	news chan upstream.Progress // has the newest that was not told
	over chan struct{}
	done sync.WaitGroup
}

func tellLatest(tell func(upstream.Progress)) *latest {
	l := &latest{news: make(chan upstream.Progress, 1), over: make(chan struct{})}
	l.done.Go(func() {
		for {
			select {
			case p := <-l.news:
				tell(p)
			case <-l.over:
				select {
				case p := <-l.news: // the last word
					tell(p)
				default:
				}
				return
			}
		}
	})
	return l
}

// put takes the place of what was not told yet. One goroutine at a time may call it.
func (l *latest) put(p upstream.Progress) {
	select {
	case <-l.news:
	default:
	}
	select {
	case l.news <- p:
	default:
	}
}

// close waits until all has been told.
func (l *latest) close() {
	close(l.over)
	l.done.Wait()
}
