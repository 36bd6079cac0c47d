package upstream

import "sync"

// Latest hands progress on from a goroutine of its own, the newest where several came
// meanwhile: who makes progress waits for nobody who is told of it.
type Latest struct {
	news chan Progress // has the newest that was not told
	over chan struct{}
	done sync.WaitGroup
}

// TellLatest returns what has tell told, until it is closed.
func TellLatest(tell func(Progress)) *Latest {
	l := &Latest{news: make(chan Progress, 1), over: make(chan struct{})}
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

// Put takes the place of what was not told yet. One goroutine at a time may call it.
func (l *Latest) Put(p Progress) {
	select {
	case <-l.news:
	default:
	}
	select {
	case l.news <- p:
	default:
	}
}

// Close waits until all has been told.
func (l *Latest) Close() {
	close(l.over)
	l.done.Wait()
}
