package api

import (
	"time"

	"comet/internal/words"
)

// OptTime returns a moment as RFC 3339 writes it, nil where it was not sent.
func (q *query) OptTime(name string) *time.Time {
	text, ok := q.one(name)
	if !ok {
		return nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil { // stricter than time.Parse
		q.Fail(name, "date_time", "%s must be a date and time such as 2026-01-10T15:30:00Z (RFC 3339; a + is written %%2B), not %s", name, words.Quote(text))
		return nil
	}
	return &t
}
