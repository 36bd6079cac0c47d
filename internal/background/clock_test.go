package background_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

func TestSteadyClock(t *testing.T) {
	t.Parallel()
	wall, elapsed := time.Date(2026, 1, 19, 4, 0, 0, 0, time.UTC), time.Duration(0)
	clock := background.SteadyClock(func() time.Time { return wall }, func() time.Duration { return elapsed })
	at := func(hour, minute, second int) time.Time {
		return time.Date(2026, 1, 19, hour, minute, second, 0, time.UTC)
	}
	pass := func(d time.Duration) { wall, elapsed = wall.Add(d), elapsed+d }
	require.Equal(t, at(4, 0, 0), clock())
	pass(time.Minute)
	require.Equal(t, at(4, 1, 0), clock())
	wall = wall.Add(-2 * time.Hour)
	require.Equal(t, at(4, 1, 0), clock(), "it does not go back")
	pass(3 * time.Second)
	require.Equal(t, at(4, 1, 3), clock(), "and continues")
	wall = wall.Add(3 * time.Hour)
	require.Equal(t, at(5, 1, 3), clock(), "it follows a wall clock that is ahead")
	pass(time.Second)
	require.Equal(t, at(5, 1, 4), clock())
}

func TestSteadyClockIgnoresTheMonotonicReading(t *testing.T) {
	t.Parallel()
	now, elapsed := time.Now(), time.Duration(0)
	clock := background.SteadyClock(func() time.Time { return now }, func() time.Duration { return elapsed })
	require.Equal(t, now.Round(0), clock())
	elapsed = time.Second
	require.Equal(t, now.Round(0).Add(time.Second), clock())
}
