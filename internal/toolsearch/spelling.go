package toolsearch

import (
	"math"
	"math/bits"
	"slices"

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

// nearestSpelling returns the nearest word: of several a stop word, then the most common one.
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
			use := len(s.postings[k.term])
			if k.word == "" {
				use = math.MaxInt // a stop word
			}
			if d < fewest || use > bestUse {
				best, ok, fewest, bestUse = *k, true, d, use
			}
		}
	}
	return best, ok
}
