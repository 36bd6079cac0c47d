package schedule

import (
	"strings"
	"time"
	_ "time/tzdata" // the time zones, which images without a system lack

	"comet/internal/input"
	"comet/store/schedules"
)

// Limits of times.
const (
	// MaxAhead limits how far in the future a single time may be, and the length of intervals.
	MaxAhead = 366 * 24 * time.Hour
	// MinInterval is the shortest interval.
	MinInterval = time.Second
	// maxMissed limits how many missed times are counted.
	maxMissed = 10_000
	maxCron   = 200
)

// Timing states when a schedule is due. Exactly one of At, Delay, Every and Cron is set.
type Timing struct {
	// At is the time of a single run. Delay is the same as a time from now.
	At    time.Time
	Delay time.Duration
	// Every is an interval that begins now.
	Every time.Duration
	// Cron has the fields minute, hour, day of the month, month and day of the week.
	Cron string
	// TimeZone is the IANA time zone of Cron, "" for UTC.
	TimeZone string
}

// over returns the timing that replaces a spec: an expression keeps the time zone, and a time zone the expression.
func (t Timing) over(before schedules.Spec) Timing {
	switch {
	case t == Timing{TimeZone: t.TimeZone}:
		t.Cron = before.Cron
	case t.Cron != "" && t.TimeZone == "":
		t.TimeZone = before.TimeZone
	}
	return t
}

// spec returns the spec of a timing, or errs.InvalidRequest.
func (t Timing) spec(now time.Time) (spec schedules.Spec, err error) {
	given := 0
	for _, set := range []bool{!t.At.IsZero(), t.Delay != 0, t.Every != 0, t.Cron != ""} {
		if set {
			given++
		}
	}
	at := t.At.UTC().Truncate(time.Microsecond)
	switch {
	case t.TimeZone != "" && t.Cron == "":
		err = input.Violated("/time_zone", "conflict", "time_zone is only for cron")
	case given != 1:
		err = input.Violated("/at", "exclusive", "exactly one of a time, a delay, an interval and a cron expression is required")
	case t.Delay != 0 && (t.Delay < time.Millisecond || t.Delay > MaxAhead):
		err = input.Violated("/delay_ms", "range", "delay_ms must be 1 to %d", MaxAhead.Milliseconds())
	case t.Every != 0 && (t.Every < MinInterval || t.Every > MaxAhead):
		err = input.Violated("/every_ms", "range", "every_ms must be %d to %d", MinInterval.Milliseconds(), MaxAhead.Milliseconds())
	case t.Delay != 0:
		spec.At = now.Add(t.Delay)
	case t.Every != 0:
		spec.EveryMS, spec.From = t.Every.Milliseconds(), now
	case t.Cron != "":
		spec.Cron, spec.TimeZone = strings.Join(strings.Fields(t.Cron), " "), t.TimeZone
		var due time.Time
		if due, err = next(spec, now); err == nil && due.IsZero() {
			err = input.Violated("/cron", "never", "%q is never due: no month has such a day", t.Cron)
		}
	case !at.After(now):
		err = input.Violated("/at", "future", "at must be in the future, not %s: the time of the server is %s", at.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
	case at.After(now.Add(MaxAhead)):
		err = input.Violated("/at", "max", "at must be at most %d days ahead", int(MaxAhead.Hours()/24))
	default:
		spec.At = at
	}
	return spec, err
}

// next returns the first due time after a time, the zero time for none. Its error is about the cron
// expression or the time zone.
func next(spec schedules.Spec, after time.Time) (time.Time, error) {
	switch {
	case spec.Cron != "":
		return nextCron(spec, after)
	case spec.EveryMS > 0:
		passed := max(after.Sub(spec.From), 0).Milliseconds() / spec.EveryMS
		return spec.From.Add(time.Duration((passed+1)*spec.EveryMS) * time.Millisecond), nil
	case spec.At.After(after):
		return spec.At, nil
	}
	return time.Time{}, nil
}

// following returns the first due time after now, and the number of due times after due that have passed.
func following(spec schedules.Spec, due, now time.Time) (at time.Time, missed int, err error) {
	at, err = next(spec, due)
	for err == nil && !at.IsZero() && !at.After(now) {
		if missed++; missed == maxMissed {
			at, err = next(spec, now)
			break
		}
		at, err = next(spec, at)
	}
	return at, missed, err
}

// nextCron returns the first due time of a cron expression after a time.
func nextCron(spec schedules.Spec, after time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil || spec.TimeZone == "Local" {
		return time.Time{}, input.Violated("/time_zone", "timezone", "time_zone must be the name of an IANA time zone such as Europe/Paris, not %s", input.Quote(spec.TimeZone))
	}
	parsed, err := parseCron(spec.Cron)
	if err != nil {
		return time.Time{}, err
	}
	if parsed.Hour&anyValue != 0 {
		return parsed.Next(after.In(zone)).UTC(), nil
	}
	wall := onClock(after.In(zone))
	for {
		if wall = parsed.Next(wall); wall.IsZero() {
			return wall, nil
		}
		if at := firstAt(wall, zone); at.After(after) {
			return at.UTC(), nil
		}
	}
}

// onClock returns what a clock shows at a local time, as a time in UTC.
func onClock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// firstAt returns the first time at which a clock in a zone shows wall. If the clock skips it, that is the
// time at which the clock is put forward.
func firstAt(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, zone)
	begin, end := t.ZoneBounds()
	switch shown := onClock(t); {
	case shown.After(wall):
		return begin
	case shown.Before(wall):
		return end
	case begin.IsZero():
		return t
	}
	_, offset := t.Zone()
	_, earlier := begin.Add(-1).Zone()
	if first := t.Add(time.Duration(offset-earlier) * time.Second); first.Before(begin) && first.Before(t) {
		return first
	}
	return t
}
