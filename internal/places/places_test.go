package places_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/places"
)

// takes has somebody take a place that must be there.
func takes(t *testing.T, p *places.Places, who string) (release func()) {
	t.Helper()
	release, room := p.Take(who)
	require.Equal(t, places.Free, room)
	return release
}

// finds has somebody find none.
func finds(t *testing.T, p *places.Places, who string, want places.Room) {
	t.Helper()
	release, room := p.Take(who)
	require.Equal(t, want, room)
	require.Nil(t, release)
}

func TestPlaces(t *testing.T) {
	t.Parallel()

	t.Run("are bounded for each and for all", func(t *testing.T) {
		t.Parallel()
		p := places.New(3, 2)
		takes(t, p, "a")
		takes(t, p, "a")
		finds(t, p, "a", places.FullForOne)
		takes(t, p, "b")
		finds(t, p, "b", places.Full)
		finds(t, p, "a", places.Full)
	})

	t.Run("can be taken again once they are given back", func(t *testing.T) {
		t.Parallel()
		p := places.New(2, 1)
		release := takes(t, p, "a")
		takes(t, p, "b")
		finds(t, p, "c", places.Full)
		release()
		takes(t, p, "a")
		finds(t, p, "c", places.Full)
	})

	t.Run("are not taken by who finds none", func(t *testing.T) {
		t.Parallel()
		p := places.New(2, 1)
		takes(t, p, "a")
		for range 5 {
			finds(t, p, "a", places.FullForOne)
		}
		takes(t, p, "b")
	})

	t.Run("hold no more than there are when everybody comes at once", func(t *testing.T) {
		t.Parallel()
		p := places.New(5, 3)
		var in, most atomic.Int64
		var group sync.WaitGroup
		for i := range 40 {
			who := string(rune('a' + i%4))
			group.Go(func() {
				for range 200 {
					release, room := p.Take(who)
					if room != places.Free {
						continue
					}
					for n := in.Add(1); ; {
						if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
							break
						}
					}
					in.Add(-1)
					release()
				}
			})
		}
		group.Wait()
		require.LessOrEqual(t, most.Load(), int64(5))
		require.Positive(t, most.Load())
		for _, who := range []string{"a", "b"} { // all of them came back
			takes(t, p, who)
			takes(t, p, who)
		}
		takes(t, p, "c")
		finds(t, p, "d", places.Full)
	})
}
