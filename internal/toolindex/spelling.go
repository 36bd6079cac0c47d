package toolindex

import (
	"math/bits"
	"slices"
	"strings"

	"comet/internal/nearest"
)

const (
	// guessed is what a word counts that may be meant by one that no tool has.
	guessed = 0.7
	// minTyped is the shortest word, in bytes, that is taken for the beginning of another,
	// and maxGuesses how many may begin so.
	minTyped   = 4
	maxGuesses = 8
	// minMistyped is the shortest that is taken for mistyped: a short word is more often
	// another one that no tool has.
	minMistyped = 6
)

// spelled is a word as tools have it, and its stem: who mistypes does not mistype stems.
type spelled struct {
	word, stem string
	letters    uint64
}

// spellings returns the words of all tools, sorted.
func spellings(docs []*document) []spelled {
	all := map[string]string{}
	for _, d := range docs {
		for word, stem := range d.words {
			all[word] = stem
		}
	}
	out := make([]spelled, 0, len(all))
	for word, stem := range all {
		out = append(out, spelled{word, stem, letters(word)})
	}
	slices.SortFunc(out, func(a, b spelled) int { return strings.Compare(a.word, b.word) })
	return out
}

// letters is a set of the letters of a word, to see quickly that two are far apart.
func letters(word string) uint64 {
	var set uint64
	for i := range len(word) {
		set |= 1 << (word[i] % 64)
	}
	return set
}

// beginning returns what a word may be the beginning of.
func (s *snapshot) beginning(word string) (out group) {
	if len(word) < minTyped {
		return nil
	}
	at, _ := slices.BinarySearchFunc(s.words, word, func(known spelled, w string) int { return strings.Compare(known.word, w) })
	for _, known := range s.words[at:] {
		if !strings.HasPrefix(known.word, word) || len(out) == maxGuesses {
			break
		}
		out = append(out, choice{known.stem, guessed})
	}
	return out
}

// mistyped returns what was meant by a word with a mistake that is not in its first letter.
func (s *snapshot) mistyped(word string) group {
	if len(word) < minMistyped {
		return nil
	}
	set := letters(word)
	stems, near := map[string]string{}, []string(nil)
	for i := range s.words {
		const apart = 2 // letters that one has and the other has not, where one is wrong
		known := &s.words[i]
		longer := len(known.word) - len(word)
		if longer <= 1 && longer >= -1 && bits.OnesCount64(known.letters^set) <= apart && known.word[0] == word[0] {
			stems[known.word], near = known.stem, append(near, known.word)
		}
	}
	if best, ok := nearest.Word(word, near); ok {
		return group{{stems[best], guessed}}
	}
	return nil
}
