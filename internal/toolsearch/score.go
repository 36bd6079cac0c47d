package toolsearch

import "slices"

const (
	// unheard is how much a word weighs against all tools that none of them knows: names
	// of people and files mostly, which no tool could know.
	unheard = 0.25
	// otherNumber is what a word counts that a name has in the singular and the query in the
	// plural, or the other way round: list_issues and get_issue.
	otherNumber = 0.8
	// addressed is how many times a word counts that is the name of a server and nothing
	// else: who says it means that server.
	addressed = 2
	// elsewhere is what a tool of another server counts then: who names a server wants another
	// of its tools before the right one of another server.
	elsewhere = 0.5
	// special is what is taken off a tool whose name has words that nobody asked for: who
	// wants to read a file does not want read_multiple_files.
	special = 0.2
	// outdated is what a tool counts that says it is deprecated.
	outdated = 0.9
)

// scratch is where one search adds up. The slices are as long as there are tools.
type scratch struct {
	total, best    []float32
	covered, named []float32 // of the name: by all groups, by the one at hand
	addressed      []bool    // of a server that is named
	addressing     bool      // one is
	touched        []int32   // with a total
	seen           []int32   // by the group at hand
}

func newScratch(n int) *scratch {
	return &scratch{total: make([]float32, n), best: make([]float32, n), covered: make([]float32, n), named: make([]float32, n), addressed: make([]bool, n)}
}

// clear makes it as new.
func (a *scratch) clear() {
	for _, doc := range a.touched {
		a.total[doc], a.covered[doc], a.addressed[doc] = 0, 0, false
	}
	a.touched, a.addressing = a.touched[:0], false
}

// address notes the tools of a server that is named.
func (a *scratch) address(tools []posting) {
	a.addressing = true
	for _, p := range tools {
		a.addressed[p.doc] = true
	}
}

// wanted turns what was said into what is looked for.
func (w *words) wanted(heard *said) []wanted {
	list, l := heard.words, heard.language
	var out []wanted
	kept := make([]string, 0, len(list))
	for i := 0; i < len(list) && len(kept)+len(out) < maxQueryWords; i++ {
		if n, found := w.saying(list[i:], l); n > 0 {
			out = append(w.meant(out, kept, l), wantedAs(found, list[i+n-1], true, l)...)
			kept, i = kept[:0], i+n-1
		} else if !w.stop(fold(list[i]), l) {
			kept = append(kept, list[i])
		}
	}
	if len(kept)+len(out)+len(heard.names) == 0 { // nothing but small words: then they are meant
		kept = list[:min(len(list), maxQueryWords)]
	}
	return w.mentions(w.meant(out, kept, l), heard)
}

// meant adds what is meant by words, of which none is a small one, to what is wanted.
func (w *words) meant(out []wanted, kept []string, l language) []wanted {
	for i := 0; i < len(kept); {
		n, found := w.phrase(kept[i:], l)
		bridged := true
		if n == 0 {
			n = 1
			found, bridged = w.word(kept[i], l)
		}
		out = append(out, wantedAs(found, kept[i+n-1], bridged, l)...)
		i += n
	}
	return out
}

// wantedAs is what is wanted by a word, or by a phrase that ends with it.
func wantedAs(found []group, word string, bridged bool, l language) []wanted {
	out := make([]wanted, 0, len(found))
	for _, g := range found {
		out = append(out, wanted{group: g, word: fold(word), plural: plural(word), bridged: bridged, general: bridged, language: l, share: 1})
	}
	return out
}

// stop reports whether a word says nothing in a language; where that is not clear, both
// have to say so, or one that is not the name of anything.
func (w *words) stop(word string, l language) bool {
	if l == unclear {
		return w.stops[anglais][word] || w.stops[francais][word] && len(word) <= 2
	}
	return w.stops[l][word]
}

// phrase returns what the longest phrase at the beginning of list means, and its length.
func (w *words) phrase(list []string, l language) (int, []group) {
	for n := min(w.longest, len(list)); n > 1; n-- {
		if g := w.intent(list[:n], l); g != nil {
			return n, g
		}
		if l != anglais {
			if g := w.french[w.key(list[:n], francais)]; g != nil {
				return n, g
			}
		}
		if g := w.near[w.key(list[:n], anglais)]; g != nil {
			return n, g
		}
	}
	return 0, nil
}

// word returns what one word may mean: itself, what is near to it, and, unless the text is
// English, what it means in French; and whether the vocabulary has it.
func (w *words) word(word string, l language) ([]group, bool) {
	en := stem(word, anglais)
	own := group{{en, 1}}
	if l != anglais {
		own = append(own, choice{french(word), 1})
	}
	if g := w.intent([]string{word}, l); g != nil {
		return joined(own, g), true
	}
	if l != anglais {
		if g := w.french[stem(word, francais)]; g != nil {
			return joined(own, g), true
		}
	}
	if l == francais && len(w.near[en]) < 2 { // a false friend mostly, but "PR" is one too in French
		return []group{own}, w.near[en] != nil
	}
	return joined(own, w.near[en]), w.near[en] != nil
}

// joined adds what a word means to the word itself; where that is several words, each of
// them is looked for.
func joined(own group, meanings []group) []group {
	if len(meanings) < 2 {
		for _, m := range meanings {
			for _, c := range m {
				if c.term != own[0].term {
					own = append(own, c)
				}
			}
		}
		return []group{own}
	}
	out := make([]group, 0, len(meanings))
	for _, m := range meanings {
		out = append(out, append(slices.Clone(own), m...))
	}
	return out
}

// score adds up what each tool has of what is looked for, in 0…1 of all that was asked:
// a word that no tool has, or that this one has not, is missing from the whole. So the
// best of bad hits stays a bad one. It returns the documents with a score above 0.
func (s *snapshot) score(list []wanted, a *scratch) {
	var asked float32
	for i := range list {
		g := list[i].group
		if len(g) == 0 {
			asked += unheard * s.rarity(0) * list[i].share
			continue
		}
		a.seen = a.seen[:0]
		for _, c := range g {
			all := s.postings[c.term]
			share := s.rarity(float32(len(all))) * c.weight
			for _, p := range all {
				v := p.score * c.weight
				if p.named {
					a.named[p.doc] = max(a.named[p.doc], share)
					if p.plural != list[i].plural {
						v *= otherNumber
					}
				}
				switch {
				case a.best[p.doc] == 0:
					a.best[p.doc] = v
					a.seen = append(a.seen, p.doc)
				case v > a.best[p.doc]:
					a.best[p.doc] = v
				}
			}
		}
		among := float32(0)
		for _, doc := range a.seen {
			among += a.best[doc]
		}
		rare := s.rarity(among)
		if s.servers[g[0].term] && !list[i].general {
			rare *= addressed
			a.address(s.postings[g[0].term])
		} else {
			rare *= list[i].share
		}
		asked += rare
		for _, doc := range a.seen {
			if a.total[doc] == 0 {
				a.touched = append(a.touched, doc)
			}
			a.total[doc] += rare * a.best[doc]
			a.covered[doc] += a.named[doc]
			a.best[doc], a.named[doc] = 0, 0
		}
	}
	for _, doc := range a.touched {
		a.total[doc] /= asked
		if a.addressing && !a.addressed[doc] {
			a.total[doc] *= elsewhere
		}
		if s.names[doc] > 0 {
			a.total[doc] *= 1 - special*(1-min(a.covered[doc]/s.names[doc], 1))
		}
		if s.docs[doc].deprecated {
			a.total[doc] *= outdated
		}
	}
}
