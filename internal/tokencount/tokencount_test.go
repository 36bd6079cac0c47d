package tokencount_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/tokencount"
)

func TestCount(t *testing.T) {
	t.Parallel()
	c := tokencount.New()

	t.Run("as the tokenizer of the vocabulary does", func(t *testing.T) {
		t.Parallel()
		require.EqualValues(t, 0, c.Count())
		require.EqualValues(t, 0, c.Count(""))
		require.EqualValues(t, 2, c.Count("hello world")) // o200k_base: "hello", " world"
		require.EqualValues(t, 4, c.Count("hello world", "hello world"))
	})

	t.Run("a long text is counted like its beginning", func(t *testing.T) {
		t.Parallel()
		of := func(n int) int64 { return c.Count(strings.Repeat("hello world ", n)) }
		short, long := of(1000), of(100_000)
		require.InEpsilon(t, 100*short, long, 0.02)
	})

	t.Run("no text is too strange or costs without bound", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{strings.Repeat("a", 1<<20), strings.Repeat("é", 200_000), strings.Repeat("\xff", 100_000), "\x00\xff\xfe"} {
			require.Positive(t, c.Count(s))
			require.LessOrEqual(t, c.Count(s), int64(3*len(s)))
		}
	})

	t.Run("by several at a time", func(t *testing.T) {
		t.Parallel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					if n := c.Count("hello world"); n != 2 {
						t.Errorf("counted %d", n)
					}
				}
			})
		}
		all.Wait()
	})
}

func BenchmarkCount(b *testing.B) {
	c, text := tokencount.New(), strings.Repeat(`{"path": "/srv/data/report.json", "mode": "lecture"} `, 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c.Count(text)
	}
}
