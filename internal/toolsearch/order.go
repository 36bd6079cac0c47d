package toolsearch

const (
	// inOrder is how much is added to, or taken off, what a tool scores whose first
	// sentence has the words in the order of the query, or the other way round: to convert
	// an address into coordinates is not to convert coordinates into an address.
	inOrder = 0.07
	// notLess is the share of the best score that a tool must have for its order to be
	// looked at.
	notLess = 0.5
)

// order looks at the order of the words in the tools that come first.
func (s *snapshot) order(list []wanted, a *scratch) {
	best := float32(0)
	for _, doc := range a.touched {
		best = max(best, a.total[doc])
	}
	for _, doc := range a.touched {
		if a.total[doc] >= notLess*best {
			a.total[doc] *= 1 + inOrder*s.docs[doc].follows(list)
		}
	}
}

// follows is 1 where the words of the first sentence are in the order in which they are
// wanted, -1 where they are the other way round, and 0 where that cannot be said.
func (d *document) follows(list []wanted) float32 {
	before, pairs, sum := -1, 0, 0
	for i := range list {
		at := d.place(list[i].group)
		switch {
		case at < 0:
			continue
		case before >= 0 && at > before:
			pairs, sum = pairs+1, sum+1
		case before >= 0 && at < before:
			pairs, sum = pairs+1, sum-1
		}
		before = at
	}
	if pairs == 0 {
		return 0
	}
	return float32(sum) / float32(pairs)
}

// place is where the first sentence has a word, -1 for nowhere.
func (d *document) place(g group) int {
	for _, c := range g {
		if at, ok := d.places[c.term]; ok {
			return at
		}
	}
	return -1
}
