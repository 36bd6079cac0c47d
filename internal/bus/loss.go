package bus

// loss tracks messages that were dropped because a subscription's handler was too slow.
type loss struct {
	counted    int  // messages counted so far
	unreported bool // dropped since the last report
	backlogged bool // dropped since the backlog was last empty
	handled    int  // messages handled since the last report
}

// note takes the number of messages dropped so far and the number waiting. It returns how many
// were dropped since, and whether to report them: at the first one, when the backlog has been
// handled, and every limit messages while it lasts.
func (l *loss) note(dropped, waiting, limit int) (lost int, tell bool) {
	lost = dropped - l.counted
	l.counted = dropped
	l.unreported = l.unreported || lost > 0
	tell = l.unreported && (!l.backlogged || waiting == 0 || l.handled >= limit)
	l.backlogged = waiting > 0 && (l.backlogged || lost > 0)
	if tell {
		l.unreported, l.handled = false, 0
	}
	return lost, tell
}

// lookForDropped counts and reports what was dropped since the last call. handled says that the
// handler has just returned.
func (s *Subscription) lookForDropped(handled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, err := s.nats.Dropped()
	if err != nil {
		return // the subscription has ended
	}
	waiting, _, err := s.nats.Pending()
	if err != nil {
		return
	}
	if handled { // it counts as waiting until this function returns
		waiting = max(0, waiting-1)
		s.loss.handled++
	}
	lost, tell := s.loss.note(dropped, waiting, s.bus.opts.PendingMessages)
	s.bus.counts.dropped.Add(uint64(max(0, lost)))
	if tell {
		s.bus.gaps.raise(Gap{Reason: Dropped, Subject: s.nats.Subject})
	}
}
