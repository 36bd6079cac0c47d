package tools

import (
	"crypto/sha256"
	"sync"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/tiktoken-go/tokenizer/codec"
)

const (
	// factKind is the kind of tool calls in the breakdown of an agent's usage.
	factKind = "tool_calls"
	// tokenChunk is how many bytes are tokenized at a time: long words take disproportionate time.
	tokenChunk = 16 << 10
	// countedExactly is how many bytes of a text are tokenized; the rest is extrapolated.
	countedExactly = 256 << 10
	// maxCounts is the number of cached texts, about 2 MB, and minCached the shortest, in bytes.
	maxCounts, minCached = 16 << 10, 8
)

// tokenCounter counts tokens with o200k_base, the vocabulary of OpenAI's current models. Tool
// calls are charged by it, because a tool does not report a cost. It is safe for concurrent use.
type tokenCounter struct {
	codec func() *codec.Codec // loads the vocabulary at its first call, which takes 60 ms and 9 MB of memory
	// counts caches the numbers of tokens of recent texts, by SHA-256: agents read the same files and
	// repeat the same arguments, and counting takes a hundred times as long as hashing.
	counts *lru.Cache[[sha256.Size]byte, int64]
}

func newTokenCounter() *tokenCounter {
	counts, _ := lru.New[[sha256.Size]byte, int64](maxCounts) // fails only for a size that is not positive
	return &tokenCounter{sync.OnceValue(codec.NewO200kBase), counts}
}

// count returns the tokens of all texts. Of one over 256 KiB only the beginning is tokenized.
func (c *tokenCounter) count(texts ...string) (n int64) {
	for _, s := range texts {
		if len(s) < minCached {
			n += c.countText(s)
			continue
		}
		sum := sha256.Sum256([]byte(s))
		tokens, known := c.counts.Get(sum)
		if !known {
			tokens = c.countText(s)
			c.counts.Add(sum, tokens)
		}
		n += tokens
	}
	return n
}

func (c *tokenCounter) countText(s string) (n int64) {
	size := len(s)
	if size > countedExactly {
		s = s[:runeBoundary(s, countedExactly)]
	}
	counted := len(s)
	for len(s) > 0 {
		end := runeBoundary(s, tokenChunk)
		tokens, err := c.codec().Count(s[:end])
		if err != nil { // the regular expression failed; a token has four bytes on average
			tokens = end/4 + 1
		}
		n, s = n+int64(tokens), s[end:]
	}
	if counted < size {
		n = n * int64(size) / int64(counted)
	}
	return n
}

// runeBoundary returns the last position between two characters within the first limit bytes.
func runeBoundary(s string, limit int) int {
	if len(s) <= limit {
		return len(s)
	}
	for end := limit; end > limit-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return end
		}
	}
	return limit
}

// estimateTokens returns the approximate number of tokens of n bytes, at least 1.
func estimateTokens(bytes int) int64 { return int64(bytes)/4 + 1 }
