package toolsearch

import (
	"math"
	"slices"
	"strings"
	"sync"
)

// saturation is how soon further occurrences of a word add nothing: k1 of BM25.
const saturation = 0.8

// posting says that a term occurs in a document, and what it counts there, in 0…1.
type posting struct {
	doc   int32
	score float32
	// named is set where it is in the name, and plural where it is so there.
	named, plural bool
}

// snapshot is all tools at one moment, and where their terms are. It is read only.
type snapshot struct {
	number   uint64
	docs     []*document // sorted by id
	byID     map[string]int32
	postings map[string][]posting
	servers  map[string]bool // terms that are said of all tools of a server, and of no other
	names    []float32       // how much the words of each name weigh
	words    []spelled       // sorted
	scratch  *sync.Pool      // of *scratch, as long as docs
}

func newSnapshot(number uint64, docs []*document) *snapshot {
	slices.SortFunc(docs, func(a, b *document) int { return strings.Compare(a.id, b.id) })
	docs = slices.CompactFunc(docs, func(a, b *document) bool { return a.id == b.id })
	s := &snapshot{number: number, docs: docs, byID: make(map[string]int32, len(docs)), postings: map[string][]posting{}}
	weight, evenness := emphasis()
	average := averages(docs)
	for i, d := range docs {
		s.byID[d.id] = int32(i)
		var norm [fields]float32
		for f := range fields {
			norm[f] = weight[f]
			if average[f] > 0 {
				norm[f] /= 1 - evenness[f] + evenness[f]*d.length[f]/average[f]
			}
		}
		for text, counts := range d.terms {
			var sum float32
			for f, n := range counts {
				if n > 0 { // a description that repeats itself says no more
					sum += norm[f]
				}
			}
			s.postings[text] = append(s.postings[text], posting{int32(i), sum / (saturation + sum), counts[inName] > 0, d.plurals[text]})
		}
	}
	s.servers = map[string]bool{}
	s.names = make([]float32, len(docs))
	for text, list := range s.postings {
		s.servers[text] = !slices.ContainsFunc(list, func(p posting) bool { return docs[p.doc].terms[text][inServer] == 0 })
		for _, p := range list {
			if p.named {
				s.names[p.doc] += s.rarity(float32(len(list)))
			}
		}
	}
	s.words = spellings(docs)
	n := len(docs)
	s.scratch = &sync.Pool{New: func() any { return newScratch(n) }}
	return s
}

// averages are the lengths that the fields of tools have, of those that have them.
func averages(docs []*document) (out [fields]float32) {
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

// rarity is the inverse document frequency of what df tools have; one that hardly has it
// counts as a part.
func (s *snapshot) rarity(df float32) float32 {
	n := float64(len(s.docs))
	return float32(math.Log(1 + (n-float64(df)+0.5)/(float64(df)+0.5)))
}
