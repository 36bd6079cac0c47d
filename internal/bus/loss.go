package bus

// loss tracks messages that were dropped because a subscription's handler was too slow.
type loss struct {
	counted    int  // messages counted so far
	unreported bool // dropped since the last report
	backlogged bool // dropped since the backlog was last empty
	handled    int  // messages handled since the last report
}

// update takes the number of messages dropped so far and the number waiting. It returns how many
// were dropped since the last call, and whether to report them: at the first one, when the backlog has
// been handled, and every limit handled messages in between.
func (l *loss) update(dropped, waiting, limit int) (lost int, isDue bool) {
	lost = dropped - l.counted
	l.counted = dropped
	l.unreported = l.unreported || lost > 0
	isDue = l.unreported && (!l.backlogged || waiting == 0 || l.handled >= limit)
	l.backlogged = waiting > 0 && (l.backlogged || lost > 0)
	if isDue {
		l.unreported, l.handled = false, 0
	}
	return lost, isDue
}
