package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestTimestampsAreRFC3339(t *testing.T) {
	t.Parallel()
	good := bases()["status"]
	for text, want := range map[string]time.Time{
		"2026-01-19T04:21:04Z":             time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC),
		"2026-01-19t04:21:04z":             time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC),
		"2026-01-19T04:21:04.5+01:30":      time.Date(2026, 1, 19, 2, 51, 4, 5e8, time.UTC),
		"2026-01-19T04:21:04-00:00":        time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC),
		"2024-02-29T23:59:59.123456789Z":   time.Date(2024, 2, 29, 23, 59, 59, 123456789, time.UTC),
		"2026-01-19T04:21:04.1234567899Z":  time.Date(2026, 1, 19, 4, 21, 4, 123456789, time.UTC),
		"2026-01-19T04:21:04+23:59":        time.Date(2026, 1, 18, 4, 22, 4, 0, time.UTC),
		"9999-12-31T23:59:59.999999+00:00": time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
	} {
		e := parse(t, change(t, good, "timestamp", `"`+text+`"`))
		require.Equal(t, want, e.Timestamp, text)
	}
	for _, text := range []string{
		"", "now", "2026-01-19", "2026-01-19T04:21:04", "2026-01-19 04:21:04Z", "2026-01-19T4:21:04Z", "2026-01-19T04:21Z",
		"2026-01-19T04:21:04,5Z", "2026-01-19T04:21:04.Z", "2026-01-19T04:21:04+0100", "2026-01-19T04:21:04+24:00", "2026-01-19T04:21:04+01:60",
		"2026-01-19T04:21:04 Z", "2026-01-19T04:21:04Z ", "2026-02-29T04:21:04Z", "2026-13-01T00:00:00Z", "2026-01-19T24:00:00Z",
		"2016-12-31T23:59:60Z", "20260119T042104Z", "+2026-01-19T04:21:04Z", "1768796464", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00",
		"２026-01-19T04:21:04Z", "2026-01-19T04:21:04CET", "2026-01-19T04:21:04.5",
	} {
		_, err := envelope.Parse([]byte(change(t, good, "timestamp", `"`+text+`"`)))
		requireProblem(t, err, "timestamp", "must be an RFC 3339 time with an offset, such as 2026-01-19T04:21:04Z, not ")
	}
}

func TestNegotiateReturnsTheLowestCommonVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ theirs, ours, want string }{
		{"1.0", "1.0", "1.0"},
		{"1.0,2.0", "1.0,2.0", "1.0"},
		{"2.0,1.0", "2.0,1.0", "1.0"},
		{"1.0,2.0", "2.0,3.0", "2.0"},
		{"1.10,1.9", "1.9,1.10", "1.9"},
		{"10.0,2.0", "2.0,10.0", "2.0"},
		{"2.0,1.10", "1.10,2.0", "1.10"},
		{"1.0", "2.0", ""},
		{"", "1.0", ""},
		{"1.0", "", ""},
		{"1,v1.0,1.00,01.0,1.0.0, 1.0,1.,.0,-1.0,latest,2.0", "1,v1.0,1.00,01.0,1.0.0, 1.0,1.,.0,-1.0,latest,2.0", "2.0"},
		{"0.0", "0.0", "0.0"},
	} {
		version, ok := envelope.Negotiate(strings.Split(c.theirs, ","), strings.Split(c.ours, ","))
		require.Equal(t, c.want, version, c.theirs)
		require.Equal(t, c.want != "", ok)
	}
	_, ok := envelope.Negotiate(nil, nil)
	require.False(t, ok)
}
