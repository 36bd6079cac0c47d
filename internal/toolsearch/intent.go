package toolsearch

import (
	"slices"
	"strings"
)

// putAway is what a tool counts that takes something away or ends it, by its name, where
// nobody asked for that: who says "remember" or "connect" does not want delete first. It
// stays a hit.
const putAway = 0.6

// addDestroyers takes the row of words that take something away or end it.
func (w *words) addDestroyers(en, fr []string) {
	w.destroyers, w.destroying = set(strings.Join(append(en, fr...), " ")), map[string]bool{}
	for _, word := range en {
		w.destroying[stem(word, anglais)] = true
	}
	for _, word := range fr {
		w.destroying[french(word)] = true
	}
}

// addIntent takes a row whose words stand for one word of each part of its head, and whose
// head does not stand for them.
func (w *words) addIntent(head string, en, fr []string) {
	var all []group
	for part := range strings.SplitSeq(head, "+") {
		g := group{}
		for word := range strings.SplitSeq(strings.TrimSpace(part), "/") {
			g = append(g, choice{stem(word, anglais), nearby})
		}
		all = append(all, g)
	}
	for l, list := range [2][]string{en, fr} {
		for _, word := range list {
			parts := strings.Split(word, "_")
			w.longest = max(w.longest, len(parts))
			key := w.key(parts, language(l))
			switch {
			case len(parts) == 1:
				w.written[l][fold(word)] = word
				fallthrough
			case strings.Contains(key, " "):
				w.intents[l][key] = all
			default:
				w.sayings[l][plainly(parts)], w.begins[fold(parts[0])] = all, true
			}
		}
	}
}

// plainly is under what a phrase is kept with its small words.
func plainly(parts []string) string { return fold(strings.Join(parts, " ")) }

// saying returns what somebody wants who begins with the longest phrase of which small words
// are a part, and its length.
func (w *words) saying(list []string, l language) (int, []group) {
	if !w.begins[fold(list[0])] {
		return 0, nil
	}
	for n := min(w.longest, len(list)); n > 1; n-- {
		key := plainly(list[:n])
		if g := w.sayings[francais][key]; g != nil && l != anglais {
			return n, g
		}
		if g := w.sayings[anglais][key]; g != nil && l != francais {
			return n, g
		}
	}
	return 0, nil
}

// intent returns what somebody wants who says a word or a phrase.
func (w *words) intent(list []string, l language) []group {
	if l != anglais {
		if g := w.intents[francais][w.key(list, francais)]; g != nil {
			return g
		}
	}
	if l != francais {
		return w.intents[anglais][w.key(list, anglais)]
	}
	return nil
}

// spellings returns the single words of the vocabulary, and the small words.
func (w *words) spellings() []spelled {
	var out []spelled
	for l, list := range w.written {
		for plain, word := range list {
			out = append(out, spelled{plain, word, letters(plain), language(l), false})
		}
		for plain := range w.stops[l] {
			out = append(out, spelled{plain, plain, letters(plain), language(l), true})
		}
	}
	slices.SortFunc(out, func(a, b spelled) int { return strings.Compare(a.word, b.word) })
	return out
}

// destroys reports whether a query is about taking something away or ending it. What
// stands only beside a translation does not count.
func (w *words) destroys(list []wanted) bool {
	for i := range list {
		for _, c := range list[i].group {
			if c.weight > secondary && w.destroying[c.term] {
				return true
			}
		}
	}
	return false
}

// putBack puts the tools that destroy behind others where the query does not.
func (s *snapshot) putBack(w *words, list []wanted, a *scratch) {
	if w.destroys(list) {
		return
	}
	for _, doc := range a.touched {
		if total := a.total[doc]; s.docs[doc].destroys && total >= least {
			a.total[doc] = max(total*putAway, least)
		}
	}
}
