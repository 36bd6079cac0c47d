package main

import (
	"testing"
	"time"

	"comet/cmd/comet/viewtext"

	"github.com/stretchr/testify/require"
)

func TestRelativeTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 10, 15, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-01-10T14:59:57Z": "3s ago", "2026-01-10T14:57:30Z": "2m ago", "2026-01-09T12:30:00Z": "26h ago",
		"2026-01-10T15:00:05Z": "in 5s", "2026-01-10T16:30:00Z": "in 1h",
		"2026-01-01T00:00:00Z": "2026-01-01T00:00:00Z", "finance": "finance", "": "",
	} {
		require.Equal(t, want, viewtext.RelativeTime(text, now), text)
	}
}

func TestTimeOrAgo(t *testing.T) {
	t.Parallel()
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for text, want := range map[string]string{
		"2026-01-10": "2026-01-10T00:00:00Z", "2026-01-10T15:00:00+02:00": "2026-01-10T15:00:00+02:00",
		"yesterday": today.AddDate(0, 0, -1).Format(time.RFC3339),
	} {
		got, err := parseTimeOrAgo(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	day, err := parseTime("2026-01-10")
	require.NoError(t, err)
	require.Equal(t, "2026-01-10T00:00:00Z", day)
}
