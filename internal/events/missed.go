package events

import "context"

// Missed reports whether a returning reader missed events: events above its position were purged,
// or this database has not reached the position. resume is the position from which it continues,
// after itself if it missed nothing.
func (f *Feed) Missed(ctx context.Context, after int64) (resume int64, missed bool, err error) {
	head, err := f.store.Events(ctx).LastPosition()
	if err != nil || after == head {
		return after, false, err
	}
	if after > head {
		return head, true, nil
	}
	oldest, err := f.store.Events(ctx).After(after, 1)
	switch {
	case err != nil:
		return after, false, err
	case len(oldest) == 0:
		return head, true, nil
	case oldest[0].Position > after+1:
		return oldest[0].Position - 1, true, nil
	}
	return after, false, nil
}
