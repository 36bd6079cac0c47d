package toolsearch

import (
	"math/bits"
	"slices"
	"strings"

	"comet/internal/input"
)

const (
	// correctionWeight is the factor for the terms of a word that was corrected.
	correctionWeight = 0.7
	// Words of minCorrected letters may have one mistake, from manyLetters on also in the first
	// letter, from veryManyLetters on two. A shorter word is more often one that no tool has.
	minCorrected, manyLetters, veryManyLetters = 4, 6, 8
	// maxCorrected is how many words of a query are corrected.
	maxCorrected = 8
)

// spelling is a word as tools or the vocabulary have it, without accents.
type spelling struct {
	plain, word string // word has accents; it is empty for a stop word
	term        string
	letters     uint64
	language
}

// toolSpellings returns the words of all tools, sorted.
func toolSpellings(docs []*document) []spelling {
	all := map[string]string{}
	for _, d := range docs {
		for word, term := range d.words {
			all[word] = term
		}
	}
	out := make([]spelling, 0, len(all))
	for word, term := range all {
		out = append(out, spelling{word, word, term, letterSet(word), inUnknown})
	}
	return sortSpellings(out)
}

// vocabularySpellings returns the single words of the vocabulary and the stop words, sorted.
func (v *vocabulary) vocabularySpellings() []spelling {
	var out []spelling
	for l := range language(2) {
		for plain, word := range v.words[l] {
			out = append(out, spelling{plain, word, stem(word, inEnglish), letterSet(plain), l})
		}
		for plain := range v.stopWords[l] {
			out = append(out, spelling{plain, "", "", letterSet(plain), l})
		}
	}
	return sortSpellings(out)
}

func sortSpellings(all []spelling) []spelling {
	slices.SortFunc(all, func(a, b spelling) int { return strings.Compare(a.plain, b.plain) })
	return all
}

// letterSet returns the letters of a word as bits, to skip words that are far apart.
func letterSet(word string) uint64 {
	var set uint64
	for i := range len(word) {
		set |= 1 << (word[i] % 64)
	}
	return set
}

// correct replaces the words of a query that neither a tool nor the vocabulary has by the
// nearest word of both. A stop word is dropped, and a word without a near one keeps no terms.
func (s *snapshot) correct(v *vocabulary, list []queryTerm) []queryTerm {
	out := make([]queryTerm, 0, len(list))
	left := maxCorrected
	for i := range list {
		t := list[i]
		if s.has(t.alternatives) {
			out = append(out, t)
			continue
		}
		t.alternatives = nil
		if t.known || left == 0 {
			out = append(out, t)
			continue
		}
		left--
		meant, ok := s.nearestSpelling(v, &t)
		corrected := s.corrected(v, &t, &meant)
		switch {
		case !ok, len(corrected) == 0 && meant.word != "":
			out = append(out, t)
		default:
			out = append(out, corrected...)
		}
	}
	return out
}

// has reports whether any tool has one of these terms.
func (s *snapshot) has(g alternatives) bool {
	return slices.ContainsFunc(g, func(t weightedTerm) bool { return s.postings[t.text] != nil })
}

// corrected returns the terms of a word that was meant, as far as tools have them.
func (s *snapshot) corrected(v *vocabulary, mistyped *queryTerm, meant *spelling) (out []queryTerm) {
	if meant.word == "" {
		return nil
	}
	groups, _ := v.lookup(meant.word, mistyped.language)
	for _, g := range groups {
		if !s.has(g) {
			continue
		}
		g = slices.Clone(g)
		for i := range g {
			g[i].weight *= correctionWeight
		}
		out = append(out, newQueryTerms([]alternatives{g}, meant.plain, true, mistyped.language)...)
	}
	return out
}

// nearestSpelling returns the word with the fewest mistakes. Of several, it prefers stop words,
// then words with the same first letter, then the word that most tools have.
func (s *snapshot) nearestSpelling(v *vocabulary, mistyped *queryTerm) (best spelling, ok bool) {
	word := mistyped.word
	if len(word) < minCorrected {
		return best, false
	}
	fewest, bestUse := 1, -1
	if len(word) >= veryManyLetters {
		fewest = 2
	}
	set := letterSet(word)
	for _, list := range [][]spelling{v.spellings, s.spellings} {
		for i := range list {
			k := &list[i]
			longer := len(k.plain) - len(word)
			switch {
			case max(longer, -longer) > fewest, bits.OnesCount64(k.letters^set) > 2*fewest, len(k.plain) < minCorrected:
				continue
			case k.language == inFrench && mistyped.language == inEnglish, k.plain[0] != word[0] && len(word) < manyLetters:
				continue
			}
			d := input.Distance(word, k.plain)
			if d > fewest {
				continue
			}
			if use := s.useOf(k, word); d < fewest || use > bestUse {
				best, ok, fewest, bestUse = *k, true, d, use
			}
		}
	}
	return best, ok
}

// useOf ranks spellings that are equally near to a word.
func (s *snapshot) useOf(k *spelling, word string) int {
	const sameFirstLetter, stopWord = 1 << 24, 1 << 25
	use := len(s.postings[k.term])
	if k.plain[0] == word[0] {
		use += sameFirstLetter
	}
	if k.word == "" {
		use += stopWord
	}
	return use
}
