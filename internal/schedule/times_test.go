package schedule

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store/schedules"
)

// at parses a time.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return out
}

// TestCron covers the due times of cron expressions, with daylight saving time in both directions: in Paris
// 02:00 became 03:00 on 29 March 2026, and 03:00 became 02:00 on 25 October.
func TestCron(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cron, zone, after string
		due                     []string
	}{
		{"weekdays", "30 8 * * 1-5", "", "2026-01-09T08:30:00Z", []string{"2026-01-12T08:30:00Z", "2026-01-13T08:30:00Z"}},
		{"a leap day", "0 0 29 2 *", "", "2026-01-09T08:30:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"a day of the month or of the week", "0 12 1 * 1", "", "2026-01-28T00:00:00Z", []string{"2026-02-01T12:00:00Z", "2026-02-02T12:00:00Z"}},
		{"local time follows the season", "0 9 * * *", "Europe/Paris", "2026-03-28T08:00:00Z", []string{"2026-03-29T07:00:00Z", "2026-03-30T07:00:00Z"}},
		{"a skipped time is due when the clock is put forward", "30 2 * * *", "Europe/Paris", "2026-03-28T01:30:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"several skipped times are due once", "*/20 2 * * *", "Europe/Paris", "2026-03-28T01:40:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"a repeated time is due at first", "30 2 * * *", "Europe/Paris", "2026-10-24T00:30:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"also if it is asked between both", "30 2 * * *", "Europe/Paris", "2026-10-25T00:45:00Z", []string{"2026-10-26T01:30:00Z"}},
		{"any hour: minutes go on when the clock is put back", "*/30 * * * *", "Europe/Paris", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"}},
		{"any hour: and when it is put forward", "*/30 * * * *", "Europe/Paris", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"}},
		{"west of Greenwich, forward", "30 2 * * *", "America/New_York", "2026-03-07T07:30:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"west of Greenwich, back", "30 1 * * *", "America/New_York", "2026-10-31T05:30:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T15:45:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := at(t, c.after)
			for _, want := range c.due {
				got, err := next(schedules.Spec{Cron: c.cron, TimeZone: c.zone}, now)
				require.NoError(t, err)
				require.Equal(t, want, got.Format(time.RFC3339))
				now = got
			}
		})
	}
}

// TestCronOfEveryHour compares a year of due times with the rules, in zones with daylight saving time.
func TestCronOfEveryHour(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu"} {
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, spec := range []string{"30 0 * * *", "0 1 * * *", "15 2 * * *", "59 23 * * *"} {
			days, now := map[string]int{}, at(t, "2026-01-01T12:00:00Z")
			for range 365 {
				now, err = next(schedules.Spec{Cron: spec, TimeZone: zone}, now)
				require.NoError(t, err)
				days[now.In(location).Format(time.DateOnly)]++
			}
			require.Len(t, days, 365, "%s in %s: once a day", spec, zone)
		}
	}
}

// TestInvalidTimings covers the messages about timings.
func TestInvalidTimings(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-01-10T15:30:00Z")
	const (
		one    = "exactly one of a time, a delay, an interval and a cron expression is required"
		fields = `cron must have the five fields minute, hour, day of the month, month and day of the week, such as "30 8 * * 1-5", not `
		zone   = "time_zone must be the name of an IANA time zone such as Europe/Paris, not "
	)
	for _, c := range []struct {
		want   string
		timing Timing
	}{
		{one, Timing{}},
		{one, Timing{Delay: time.Second, Cron: "* * * * *"}},
		{"time_zone is only for cron", Timing{Delay: time.Second, TimeZone: "Europe/Paris"}},
		{"delay_ms must be 1 to 31622400000", Timing{Delay: 367 * 24 * time.Hour}},
		{"delay_ms must be 1 to 31622400000", Timing{Delay: -time.Hour}},
		{"every_ms must be 1000 to 31622400000", Timing{Every: 999 * time.Millisecond}},
		{"at must be in the future, not 2026-01-10T15:29:59Z: the time of the server is 2026-01-10T15:30:00Z", Timing{At: now.Add(-time.Second)}},
		{"at must be at most 366 days ahead", Timing{At: now.AddDate(2, 0, 0)}},
		{zone + `"Europe/Pari"`, Timing{Cron: "* * * * *", TimeZone: "Europe/Pari"}},
		{zone + `"../etc/passwd"`, Timing{Cron: "* * * * *", TimeZone: "../etc/passwd"}},
		{zone + `"Local"`, Timing{Cron: "* * * * *", TimeZone: "Local"}},
		{`"0 0 30 2 *" is never due: no month has such a day`, Timing{Cron: "0 0 30 2 *"}},
		{"time_zone is only for cron", Timing{TimeZone: "Europe/Paris"}},
		{fields + `"@daily"`, Timing{Cron: "@daily"}},
		{fields + `"TZ=UTC"`, Timing{Cron: "TZ=UTC"}},
		{fields + `"TZ=UTC 1 * * *"`, Timing{Cron: "TZ=UTC 1 * * *"}},
	} {
		_, err := c.timing.spec(now)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), c.want)
		require.ErrorContains(t, err, c.want)
	}
}

// TestCronFields covers what the fields of expressions accept and how errors name them.
func TestCronFields(t *testing.T) {
	t.Parallel()
	for text, same := range map[string]string{
		"0 0 * * 7":                  "0 0 * * 0",
		"0 0 * * SUN":                "0 0 * * 0",
		"0 0 * * 5-7":                "0 0 * * 0,5,6",
		"0 0 * * fri-sun":            "0 0 * * 0,5,6",
		"0 0 * * 0-7":                "0 0 * * 0-6",
		"0 0 * * 1-7/2":              "0 0 * * 0,1,3,5",
		"0 0 * * */2":                "0 0 * * 0,2,4,6",
		"0 0 * * 4/2":                "0 0 * * 4,6",
		"0 0 ? JAN-Mar MON,wed,7":    "0 0 * 1,2,3 0,1,3",
		"0 0 1 dec *":                "0 0 1 12 *",
		"*/20 8-16/4 10-31/10 6/3 *": "0,20,40 8,12,16 10,20,30 6,9,12 *",
		"*/1 */1 */1 */1 */1":        "* * * * *",
		"05 007 * * *":               "5 7 * * *",
	} {
		got, err := parseCron(text)
		require.NoError(t, err, text)
		want, err := cron.ParseStandard(same)
		require.NoError(t, err)
		require.Equal(t, want, cron.Schedule(got), text)
	}
	const also = ", or *, ranges such as "
	for text, want := range map[string]string{
		"60 * * * *":          `the minute of cron, "60", is not valid at "60": it must be 0 to 59` + also + `1-3, lists such as 1,3, and steps such as */2`,
		"0 8-24 * * *":        `the hour of cron, "8-24", is not valid at "8-24": it must be 0 to 23` + also,
		"0 0 1,0 * *":         `the day of the month of cron, "1,0", is not valid at "0": it must be 1 to 31` + also,
		"0 0 * mai *":         `the month of cron, "mai", is not valid at "mai": it must be 1 to 12 or jan to dec` + also,
		"0 0 * * 8":           `the day of the week of cron, "8", is not valid at "8": it must be 0 to 6 or sun to sat (7 is Sunday, too)` + also,
		"0 0 * 13 *":          "the month of cron",
		"0 0 * 0 *":           "the month of cron",
		"*/0 * * * *":         "the minute of cron",
		"*/60 * * * *":        "the minute of cron",
		"5-1 * * * *":         "the minute of cron",
		"1, * * * *":          "the minute of cron",
		"1-2-3 * * * *":       "the minute of cron",
		"1/2/3 * * * *":       "the minute of cron",
		"-1 * * * *":          "the minute of cron",
		"+1 * * * *":          "the minute of cron",
		"jan * * * *":         "the minute of cron",
		"*-5 * * * *":         "the minute of cron",
		"* * * an *":          "the month of cron",
		"* * * * sunday":      "the day of the week of cron",
		"* * * * sat-mon":     "the day of the week of cron",
		"* * * * 7/2":         "the day of the week of cron",
		"* * * * *-7":         "the day of the week of cron",
		"* * * \x00 *":        "the month of cron",
		"99999999999 * * * *": "the minute of cron",
	} {
		_, err := parseCron(text)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), text)
		require.Equal(t, "/cron", errs.From(err).Fields[0].Pointer)
		require.ErrorContains(t, err, want)
	}
}

// FuzzCron compares the expressions that the parser of the library accepts with its result.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"30 8 * * 1-5", "*/5 1,2 3-4/2 jan sun", "0 0 ? * 0", "0 0 1/3 2 6"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseCron(text)
		want, wantErr := cron.ParseStandard(text)
		if err == nil && wantErr == nil {
			require.Equal(t, want, cron.Schedule(got))
		}
	})
}

// TestFollowing covers the times that a schedule has missed.
func TestFollowing(t *testing.T) {
	t.Parallel()
	from := at(t, "2026-01-10T15:30:00Z")
	every := schedules.Spec{EveryMS: 60_000, From: from}
	for _, c := range []struct {
		spec   schedules.Spec
		late   time.Duration
		next   time.Duration // after from
		missed int
	}{
		{every, 0, 2 * time.Minute, 0},
		{every, 59 * time.Second, 2 * time.Minute, 0},
		{every, time.Minute, 3 * time.Minute, 1},
		{every, 10*time.Minute + time.Second, 12 * time.Minute, 10},
		{schedules.Spec{EveryMS: 1000, From: from}, 48 * time.Hour, 48*time.Hour + 61*time.Second, maxMissed},
		{schedules.Spec{Cron: "* * * * *"}, 5 * time.Minute, 7 * time.Minute, 5},
	} {
		due := from.Add(time.Minute)
		got, missed, err := following(c.spec, due, due.Add(c.late))
		require.NoError(t, err)
		require.Equal(t, from.Add(c.next), got)
		require.Equal(t, c.missed, missed)
	}
	got, missed, err := following(schedules.Spec{At: from}, from, from.Add(time.Hour))
	require.NoError(t, err)
	require.Zero(t, got)
	require.Zero(t, missed)
}
