package events

import "context"

// Missed tells a reader that comes back whether it has missed something: events above
// its position were purged before it came, or the position is none of this database.
// resume is the position it goes on from, after itself where it has missed nothing.
func (f *Feed) Missed(ctx context.Context, after int64) (resume int64, missed bool, err error) {
	head, err := f.store.LastPosition(ctx)
	if err != nil || after == head {
		return after, false, err
	}
	if after > head {
		return head, true, nil
	}
	oldest, err := f.store.EventsAfter(ctx, after, 1)
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
