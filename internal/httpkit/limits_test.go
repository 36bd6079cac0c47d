package httpkit

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
)

func TestRateLimit(t *testing.T) {
	t.Parallel()
	type result struct{ limit, remaining, reset string }
	// count counts a request and returns the headers, and the seconds to wait if it is rejected.
	count := func(l *rateLimit, token string) (result, int) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		err := l.count(w, r, token)
		wait, _ := errs.From(err).Meta[retryAfter].(int)
		if err == nil {
			wait = 0
		}
		h := w.Header()
		return result{h.Get("RateLimit-Limit"), h.Get("RateLimit-Remaining"), h.Get("RateLimit-Reset")}, wait
	}

	t.Run("rejects requests over the limit of a token until retry_after has passed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			l := newRateLimit(3, time.Minute)
			time.Sleep(20 * time.Second) //nolint:forbidigo // advances the clock of the bubble
			for i, remaining := range []string{"2", "1", "0", "0"} {
				got, wait := count(l, "a")
				require.Equal(t, result{"3", remaining, "40"}, got)
				require.Equal(t, []int{0, 0, 0, 51}[i], wait)
			}
			_, wait := count(l, "b")
			require.Zero(t, wait, "another token has a limit of its own")
			time.Sleep(51 * time.Second) //nolint:forbidigo // advances the clock of the bubble
			_, wait = count(l, "a")
			require.Zero(t, wait)
		})
	})
	t.Run("never asks to retry too early", func(t *testing.T) {
		t.Parallel()
		for _, limit := range []int{1, 2, 7, 100} {
			synctest.Test(t, func(t *testing.T) {
				l := newRateLimit(limit, time.Minute)
				for i := range 5 * limit {
					if _, wait := count(l, "a"); wait > 0 {
						time.Sleep(time.Duration(wait) * time.Second) //nolint:forbidigo // advances the clock of the bubble
						_, wait = count(l, "a")
						require.Zero(t, wait, "limit %d, request %d", limit, i)
					}
					time.Sleep(time.Second) //nolint:forbidigo // advances the clock of the bubble
				}
			})
		}
	})
	t.Run("is off by default", func(t *testing.T) {
		t.Parallel()
		for range 5 {
			got, wait := count(NewLimits(nil).rate, "a")
			require.Equal(t, result{}, got)
			require.Zero(t, wait)
		}
	})
}

func TestFailureCounter(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)

	t.Run("throttles a key from its limit until the end of the minute", func(t *testing.T) {
		t.Parallel()
		c := newFailureCounter[string](2)
		c.add("a", start)
		require.Zero(t, c.wait("a", start))
		c.add("a", start.Add(10*time.Second))
		require.Equal(t, 50*time.Second, c.wait("a", start.Add(10*time.Second)))
		require.Zero(t, c.wait("b", start), "other keys are not affected")
		require.Zero(t, c.wait("a", start.Add(failureWindow)))
		c.add("a", start.Add(failureWindow))
		require.Zero(t, c.wait("a", start.Add(failureWindow)), "the next minute begins at 0")
	})
	t.Run("allows some attempts per second while it throttles", func(t *testing.T) {
		t.Parallel()
		c := newFailureCounter[string](1)
		c.add("a", start)
		for range attemptRate {
			require.True(t, c.allowAttempt("a", start))
		}
		require.False(t, c.allowAttempt("a", start))
		require.True(t, c.allowAttempt("a", start.Add(time.Second)))
	})
	t.Run("holds a bounded number of keys", func(t *testing.T) {
		t.Parallel()
		c := newFailureCounter[string](1)
		for i := range maxCounters + 100 {
			c.add(strconv.Itoa(i), start)
		}
		require.Equal(t, maxCounters, c.counts.Len())
		require.Zero(t, c.wait("0", start), "the oldest is forgotten")
		require.Positive(t, c.wait(strconv.Itoa(maxCounters+99), start))
	})
}
