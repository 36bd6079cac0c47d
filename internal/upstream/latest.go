package upstream

import "sync"

// LatestProgress hands progress on from a goroutine of its own, the newest where several came
// meanwhile: who makes progress waits for nobody who is told of it.
type LatestProgress struct {
	pending chan Progress // has the newest that was not told
	closed  chan struct{}
	running sync.WaitGroup
}

// NewLatestProgress returns what has tell told, until it is closed.
func NewLatestProgress(tell func(Progress)) *LatestProgress {
	l := &LatestProgress{pending: make(chan Progress, 1), closed: make(chan struct{})}
	l.running.Go(func() {
		for {
			select {
			case p := <-l.pending:
				tell(p)
			case <-l.closed:
				select {
				case p := <-l.pending: // the last word
					tell(p)
				default:
				}
				return
			}
		}
	})
	return l
}

// Update takes the place of what was not told yet. One goroutine at a time may call it.
func (l *LatestProgress) Update(p Progress) {
	select {
	case <-l.pending:
	default:
	}
	select {
	case l.pending <- p:
	default:
	}
}

// Close waits until all has been told.
func (l *LatestProgress) Close() {
	close(l.closed)
	l.running.Wait()
}
