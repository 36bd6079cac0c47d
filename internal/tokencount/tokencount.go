// Package tokencount counts the tokens of a text, as a model's tokenizer cuts it. It is what
// calls of tools are charged by, whose own cost nobody states.
package tokencount

import (
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

const (
	// piece is how many bytes are counted at a time: what the tokenizer does with one long
	// word grows faster than the word.
	piece = 16 << 10
	// exact is how many bytes of a text are counted; the rest is taken to be like them.
	exact = 256 << 10
)

// Counter counts with o200k_base, the vocabulary of OpenAI's current models; others cut a
// text a little differently, and none publishes the same for all. It is safe for concurrent
// use.
type Counter struct{ codec *codec.Codec }

// New returns a counter. It takes some 30 ms, in which the vocabulary is read.
func New() *Counter { return &Counter{codec.NewO200kBase()} }

// Count returns how many tokens the texts have together. Of one longer than 256 KiB the
// beginning is counted.
func (c *Counter) Count(texts ...string) (n int64) {
	for _, s := range texts {
		n += c.one(s)
	}
	return n
}

func (c *Counter) one(s string) (n int64) {
	whole := len(s)
	if whole > exact {
		s = s[:cut(s, exact)]
	}
	counted := len(s)
	for len(s) > 0 {
		end := cut(s, piece)
		tokens, err := c.codec.Count(s[:end])
		if err != nil { // of the regular expression; a token has four bytes on average
			tokens = end/4 + 1
		}
		n, s = n+int64(tokens), s[end:]
	}
	if counted < whole {
		n = n * int64(whole) / int64(counted)
	}
	return n
}

// cut returns where a text can be cut, at most bytes from its beginning.
func cut(s string, most int) int {
	if len(s) <= most {
		return len(s)
	}
	for end := most; end > most-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return end
		}
	}
	return most
}

// Estimate returns about how many tokens so many bytes are, at least 1.
func Estimate(bytes int) int64 { return int64(bytes)/4 + 1 }
