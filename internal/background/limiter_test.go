package background_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	acquire := func(t *testing.T, l *background.Limiter[string], key string) (release func()) {
		t.Helper()
		release, err := l.Acquire(key)
		require.NoError(t, err)
		return release
	}
	refused := func(t *testing.T, l *background.Limiter[string], key string, want error) {
		t.Helper()
		release, err := l.Acquire(key)
		require.ErrorIs(t, err, want)
		require.Nil(t, release)
	}

	t.Run("limits each key and all together", func(t *testing.T) {
		t.Parallel()
		l := background.NewLimiter[string](3, 2)
		acquire(t, l, "a")
		acquire(t, l, "a")
		refused(t, l, "a", background.ErrKeyFull)
		acquire(t, l, "b")
		refused(t, l, "b", background.ErrFull)
		refused(t, l, "a", background.ErrFull)
	})

	t.Run("a released slot can be taken again", func(t *testing.T) {
		t.Parallel()
		l := background.NewLimiter[string](2, 1)
		release := acquire(t, l, "a")
		acquire(t, l, "b")
		refused(t, l, "c", background.ErrFull)
		release()
		acquire(t, l, "a")
		refused(t, l, "c", background.ErrFull)
	})

	t.Run("a refused request takes no slot", func(t *testing.T) {
		t.Parallel()
		l := background.NewLimiter[string](2, 1)
		acquire(t, l, "a")
		for range 5 {
			refused(t, l, "a", background.ErrKeyFull)
		}
		acquire(t, l, "b")
	})

	t.Run("holds its limits under concurrent use", func(t *testing.T) {
		t.Parallel()
		l := background.NewLimiter[string](5, 3)
		var taken, peak atomic.Int64
		var all sync.WaitGroup
		for i := range 40 {
			key := string(rune('a' + i%4))
			all.Go(func() {
				for range 200 {
					release, err := l.Acquire(key)
					if err != nil {
						continue
					}
					for n := taken.Add(1); ; {
						if old := peak.Load(); n <= old || peak.CompareAndSwap(old, n) {
							break
						}
					}
					taken.Add(-1)
					release()
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, peak.Load(), int64(5))
		require.Positive(t, peak.Load())
		for _, key := range []string{"a", "b"} { // all slots are free again
			acquire(t, l, key)
			acquire(t, l, key)
		}
		acquire(t, l, "c")
		refused(t, l, "d", background.ErrFull)
	})
}
