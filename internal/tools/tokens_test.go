package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokenCounter(t *testing.T) {
	t.Parallel()
	c := newTokenCounter()

	t.Run("counts like the tokenizer of the vocabulary", func(t *testing.T) {
		t.Parallel()
		require.EqualValues(t, 0, c.count())
		require.EqualValues(t, 0, c.count(""))
		require.EqualValues(t, 2, c.count("hello world")) // o200k_base: "hello", " world"
		require.EqualValues(t, 4, c.count("hello world", "hello world"))
		for text, tokens := range map[string]int64{
			"package main\n\nfunc main() {\n\tprintln(\"hi\")\n}\n":          13,
			`{"path": "/srv/data/report.json", "lines": [1, 20, 300, 4000]}`: 25,
			"Les élèves préfèrent l'été à Noël; ÇA SUFFIT":                   14,
			"日本語のテキスト и русский текст, مرحبا":                                12,
			"antidisestablishmentarianism'S xkcdqzv 🦊🦊 \u00a0\u200b  \r\n":   23,
			strings.Repeat("abcdefghijklmnop", 12):                           24,
		} {
			require.Equal(t, tokens, c.count(text), text)
		}
	})

	t.Run("has all tokens of the vocabulary", func(t *testing.T) {
		t.Parallel()
		sum := sha256.New()
		const tokens = 199_998
		for id := range uint(tokens) {
			token, err := c.codec().Decode([]uint{id})
			require.NoError(t, err)
			_, _ = fmt.Fprintf(sum, "%q\n", token)
		}
		_, err := c.codec().Decode([]uint{tokens})
		require.Error(t, err)
		// The checksum of the published github.com/tiktoken-go/tokenizer v0.10.0.
		require.Equal(t, "853cc171df1f36745b1818cfb67ba61a7d07e8e9b1d0300e2a5e328a64a39955", hex.EncodeToString(sum.Sum(nil)))
	})

	t.Run("extrapolates a long text from its beginning", func(t *testing.T) {
		t.Parallel()
		of := func(n int) int64 { return c.count(strings.Repeat("hello world ", n)) }
		short, long := of(1000), of(100_000)
		require.InEpsilon(t, 100*short, long, 0.02)
	})

	t.Run("counts any text within a bound", func(t *testing.T) {
		t.Parallel()
		for _, s := range []string{strings.Repeat("a", 1<<20), strings.Repeat("é", 200_000), strings.Repeat("\xff", 100_000), "\x00\xff\xfe"} {
			require.Positive(t, c.count(s))
			require.LessOrEqual(t, c.count(s), int64(3*len(s)))
		}
	})

	t.Run("is safe for concurrent use", func(t *testing.T) {
		t.Parallel()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					if n := c.count("hello world"); n != 2 {
						t.Errorf("counted %d", n)
					}
				}
			})
		}
		all.Wait()
	})
}

func BenchmarkTokenCounter(b *testing.B) {
	c, text := newTokenCounter(), strings.Repeat(`{"path": "/srv/data/report.json", "mode": "lecture"} `, 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c.count(text)
	}
}
