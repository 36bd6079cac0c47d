package bus

// loss is what a subscription knows of the messages that were dropped because its
// handler was too slow.
type loss struct {
	counted int  // messages that were counted
	untold  bool // some of those since OnGap was last told
	behind  bool // some of those since nothing waited
	handled int  // messages handled since OnGap was last told
}

// note takes the number of messages dropped so far, and how many wait. It returns how
// many were dropped since, and whether it is time to tell: at the first one, when what
// waited has been handled, so that nothing is dropped after the last time, and every
// limit messages as long as it never ends.
func (l *loss) note(dropped, waiting, limit int) (lost int, tell bool) {
	lost = dropped - l.counted
	l.counted = dropped
	l.untold = l.untold || lost > 0
	tell = l.untold && (!l.behind || waiting == 0 || l.handled >= limit)
	l.behind = waiting > 0 && (l.behind || lost > 0)
	if tell {
		l.untold, l.handled = false, 0
	}
	return lost, tell
}

// lookForDropped counts and tells what was dropped since it was last called. handled
// says that the handler has just returned.
func (s *Subscription) lookForDropped(handled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, err := s.nats.Dropped()
	if err != nil {
		return // it is over
	}
	waiting, _, err := s.nats.Pending()
	if err != nil {
		return
	}
	if handled { // it counts as waiting until we return
		waiting = max(0, waiting-1)
		s.loss.handled++
	}
	lost, tell := s.loss.note(dropped, waiting, s.bus.opts.PendingMessages)
	s.bus.counts.dropped.Add(uint64(max(0, lost)))
	if tell {
		s.bus.gaps.raise(Gap{Reason: Dropped, Subject: s.nats.Subject})
	}
}
