package toolsearch

import (
	"math"
	"slices"
	"strings"
	"sync"
)

const (
	// saturation limits the weight of repeated words: k1 of BM25, with its usual value.
	saturation = 1.2
	// unknownWeight is the weight of a word that no tool has, mostly a name of a person or a file.
	unknownWeight = 0.25
	// otherNumber is the factor for a word that a name has in the singular and the query in the
	// plural, or the reverse: list_issues and get_issue.
	otherNumber = 0.8
	// unusedName is taken off a tool in proportion to the words of its name that the query does
	// not have: "read a file" does not mean read_multiple_files.
	unusedName = 0.2
	// minScore is the score below which a tool shares a word with the query only by accident.
	minScore = 0.04
	// deprecatedFactor is the factor for a tool whose description says that it is deprecated.
	deprecatedFactor = 0.9
	// otherAction is the factor for a tool whose name has a verb of another kind than the query.
	otherAction = 0.7
	// unwantedDelete is the factor for a tool that deletes where the query has no such verb.
	unwantedDelete = 0.6
)

// posting is an occurrence of a term in a document, with its score in 0…1.
type posting struct {
	doc   int32
	score float32
	// inName is true where the name has the term, and plural where it has it in the plural.
	inName, plural bool
}

// snapshot is the inverted index of all tools at one moment. It is read only.
type snapshot struct {
	number       uint64
	docs         []*document // sorted by id
	byID         map[string]int32
	postings     map[string][]posting
	nameWeight   []float32  // by document: the rarities of the words of its name
	spellings    []spelling // of all words, sorted
	accumulators *sync.Pool // of *accumulator, as long as docs
}

func newSnapshot(number uint64, docs []*document) *snapshot {
	slices.SortFunc(docs, func(a, b *document) int { return strings.Compare(a.id, b.id) })
	docs = slices.CompactFunc(docs, func(a, b *document) bool { return a.id == b.id })
	s := &snapshot{number: number, docs: docs, byID: make(map[string]int32, len(docs)), postings: map[string][]posting{}}
	// The weight of each field and its length normalisation (b of BM25F), 0 for none. Names are short
	// and chosen with care; parameter texts mention everything.
	weight := [fields]float32{nameField: 5.5, serverField: 2.5, titleField: 1.4, summaryField: 1.6, descriptionField: 0.6, parameterField: 0.3, parameterTextField: 0.3}
	normalisation := [fields]float32{nameField: 0.4, serverField: 0, titleField: 0.4, summaryField: 0.4, descriptionField: 0.6, parameterField: 0.65, parameterTextField: 0.7}
	average := averageLengths(docs)
	for i, d := range docs {
		s.byID[d.id] = int32(i)
		var norm [fields]float32
		for f := range fields {
			norm[f] = weight[f]
			if average[f] > 0 {
				norm[f] /= 1 - normalisation[f] + normalisation[f]*d.length[f]/average[f]
			}
		}
		for text, counts := range d.terms {
			var sum float32
			for f, n := range counts {
				if n > 0 { // a repeated word counts once per field
					sum += norm[f]
				}
			}
			s.postings[text] = append(s.postings[text], posting{int32(i), sum / (saturation + sum), counts[nameField] > 0, d.plurals[text]})
		}
	}
	s.nameWeight = make([]float32, len(docs))
	for _, list := range s.postings {
		for _, p := range list {
			if p.inName {
				s.nameWeight[p.doc] += s.rarity(float32(len(list)))
			}
		}
	}
	s.spellings = toolSpellings(docs)
	n := len(docs)
	s.accumulators = &sync.Pool{New: func() any {
		return &accumulator{total: make([]float32, n), best: make([]float32, n), covered: make([]float32, n), inName: make([]float32, n)}
	}}
	return s
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

// averageLengths returns the mean length of each field over the tools that have it.
func averageLengths(docs []*document) (out [fields]float32) {
	var n [fields]float32
	for _, d := range docs {
		for f, length := range d.length {
			if length > 0 {
				out[f] += length
				n[f]++
			}
		}
	}
	for f := range out {
		if n[f] > 0 {
			out[f] /= n[f]
		}
	}
	return out
}

// rarity is the inverse document frequency of a term. A tool that hardly has it counts in part.
func (s *snapshot) rarity(df float32) float32 {
	n := float64(len(s.docs))
	return float32(math.Log(1 + (n-float64(df)+0.5)/(float64(df)+0.5)))
}

// accumulator adds up the scores of one search. The slices are as long as there are documents.
type accumulator struct {
	total   []float32
	covered []float32 // rarities of the words of the name that the query has
	touched []int32   // documents with a total

	best, inName []float32 // of the term at hand
	seen         []int32   // documents with a best
}

func (a *accumulator) reset() {
	for _, doc := range a.touched {
		a.total[doc], a.covered[doc] = 0, 0
	}
	a.touched = a.touched[:0]
}

// score computes for each tool the share of the query, 0 to 1, that the tool matches, so words that a
// tool does not have lower its score.
func (s *snapshot) score(terms []queryTerm, a *accumulator) {
	var whole float32
	for i := range terms {
		if len(terms[i].alternatives) == 0 {
			whole += unknownWeight * s.rarity(0)
			continue
		}
		s.match(&terms[i], a)
		df := float32(0)
		for _, doc := range a.seen {
			df += a.best[doc]
		}
		rarity := s.rarity(df)
		whole += rarity
		for _, doc := range a.seen {
			if a.total[doc] == 0 {
				a.touched = append(a.touched, doc)
			}
			a.total[doc] += rarity * a.best[doc]
			a.covered[doc] += a.inName[doc]
			a.best[doc], a.inName[doc] = 0, 0
		}
		a.seen = a.seen[:0]
	}
	for _, doc := range a.touched {
		a.total[doc] /= whole
		if s.nameWeight[doc] > 0 {
			a.total[doc] *= 1 - unusedName*(1-min(a.covered[doc]/s.nameWeight[doc], 1))
		}
		if s.docs[doc].deprecated {
			a.total[doc] *= deprecatedFactor
		}
	}
}

// match finds the documents with one of a term's alternatives, and the best score of each.
func (s *snapshot) match(term *queryTerm, a *accumulator) {
	for _, t := range term.alternatives {
		list := s.postings[t.text]
		rarity := s.rarity(float32(len(list))) * t.weight
		for _, p := range list {
			score := p.score * t.weight
			if p.inName {
				a.inName[p.doc] = max(a.inName[p.doc], rarity)
				if p.plural != term.plural {
					score *= otherNumber
				}
			}
			if a.best[p.doc] == 0 {
				a.seen = append(a.seen, p.doc)
			}
			a.best[p.doc] = max(a.best[p.doc], score)
		}
	}
}

// demote lowers the scores of tools whose names do something else; a hit stays one.
func (s *snapshot) demote(wanted action, acc *accumulator) {
	for _, doc := range acc.touched {
		factor := float32(1)
		switch a := s.docs[doc].action; {
		case a == deletes && wanted&deletes == 0:
			factor = unwantedDelete
		case a != 0 && wanted != 0 && a&wanted == 0:
			factor = otherAction
		}
		if total := acc.total[doc]; total >= minScore {
			acc.total[doc] = max(total*factor, minScore)
		}
	}
}
