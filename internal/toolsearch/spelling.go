package toolsearch

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
	// minMistyped is the shortest, in letters, that is taken for mistyped, from surely on with
	// a mistake in its first letter too, and from twice on with two mistakes: a short word is
	// more often another one that no tool has.
	minMistyped, surely, twice = 4, 6, 8
	// hardly is what a word counts instead of guessed that is shorter than surely.
	hardly = 0.55
	// maxMistyped is how many words of a query are looked at for mistakes.
	maxMistyped = 8
)

// spelled is a word as tools or the vocabulary have it, folded: who mistypes does not
// mistype stems.
type spelled struct {
	word, stem string // of one of the vocabulary, the stem is the word with its accents
	letters    uint64
	language
	small bool // it says nothing
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
		out = append(out, spelled{word, stem, letters(word), unclear, false})
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

// resolve replaces the words of a query that no tool has by what they may be meant for: the
// words that begin so, or, where the vocabulary has no such word either, the nearest one of
// both. A word that means nothing to any tool is left without a group.
func (s *snapshot) resolve(w *words, list []wanted) []wanted {
	out := make([]wanted, 0, len(list))
	left := maxMistyped
	for _, one := range list {
		if s.has(one.group) {
			out = append(out, one)
			continue
		}
		if one.group = s.beginning(one.word); len(one.group) > 0 || one.bridged || left == 0 {
			out = append(out, one)
			continue
		}
		left--
		meant, found := s.mistyped(w, &one)
		if !found {
			meant = []wanted{one}
		}
		out = append(out, meant...)
	}
	return out
}

// has reports whether any tool has one of these terms.
func (s *snapshot) has(g group) bool {
	return slices.ContainsFunc(g, func(c choice) bool { return s.postings[c.term] != nil })
}

// mistyped returns what was meant by a word with a mistake, and whether there is anything
// like it; a small word that was meant is nothing to look for.
func (s *snapshot) mistyped(w *words, one *wanted) ([]wanted, bool) {
	meant, ok := s.nearestTo(w, one)
	if !ok || meant.small {
		return nil, ok
	}
	l, word := one.language, meant.stem
	if meant.language == unclear { // a tool's: it is as it is written there
		word = meant.word
	}
	found, _ := w.word(word, l)
	weight := float32(guessed)
	if len(one.word) < surely {
		weight = hardly
	}
	var out []wanted
	for _, g := range found {
		if !s.has(g) {
			continue
		}
		g = slices.Clone(g)
		for i := range g {
			g[i].weight *= weight
		}
		out = append(out, wanted{group: g, word: meant.word, plural: plural(meant.word), bridged: true, language: l, share: one.share})
	}
	return out, len(out) > 0
}

// nearestTo returns the word of the tools or of the vocabulary with the fewest mistakes
// between; of several a small one, one with the same first letter, and the one that most
// tools have, in this order.
func (s *snapshot) nearestTo(w *words, one *wanted) (best spelled, ok bool) {
	word := one.word
	if len(word) < minMistyped {
		return best, false
	}
	least, use := 1, -1
	if len(word) >= twice {
		least = 2
	}
	set := letters(word)
	for _, list := range [][]spelled{w.spelled, s.words} {
		for i := range list {
			k := &list[i]
			longer := len(k.word) - len(word)
			if longer > least || -longer > least || bits.OnesCount64(k.letters^set) > 2*least || len(k.word) < minMistyped {
				continue
			}
			if k.language == francais && one.language == anglais || k.word[0] != word[0] && len(word) < surely {
				continue
			}
			d := nearest.Distance(word, k.word)
			if d > least {
				continue
			}
			if u := s.use(k, word); d < least || u > use {
				best, ok, least, use = *k, true, d, u
			}
		}
	}
	return best, ok
}

// use is how likely one of several words is meant that are equally near.
func (s *snapshot) use(k *spelled, word string) int {
	const sameLetter, small = 1 << 24, 1 << 25
	n := len(s.postings[k.stem])
	if k.word[0] == word[0] {
		n += sameLetter
	}
	if k.small {
		n += small
	}
	return n
}
